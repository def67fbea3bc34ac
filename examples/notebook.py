"""An Agent that keeps notes: `TURNHOLD_AGENTS=examples.notebook turnhold dev`."""

from turnhold import Context, Turn, agent


@agent("notebook", close_after_idle="P30D")
async def notebook(turn: Turn, ctx: Context) -> dict[str, int]:
    """Writes every input down, and remembers it over restarts."""
    notes = [*(ctx.state or []), turn.text]
    await turn.output.write(f"Noted as number {len(notes)}.\n")
    ctx.state = notes
    turn.respond(f"I have {len(notes)} notes now.")
    return {"notes": len(notes)}
