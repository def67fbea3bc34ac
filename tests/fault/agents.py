"""An Agent that writes down when it is stopped, and when its Process ends, in files of the scratch folder."""

import asyncio
import os
import time
from pathlib import Path

from turnhold import Context, Turn, agent


def record(name: str, line: str) -> None:
    with Path(os.environ["TURNHOLD_SCRATCH"], name).open("a") as file:
        file.write(f"{line} {time.time()}\n")


@agent("recorder")
async def recorder(turn: Turn, ctx: Context):
    """Begins, and sleeps for as long as its input says."""
    record("begun", turn.id)
    try:
        await asyncio.sleep(float(turn.text))
    except asyncio.CancelledError:
        record("stopped", turn.id)
        raise


@recorder.init
async def init(ctx: Context):
    """The task lives as long as the Process does, whether or not a Turn runs."""
    return asyncio.create_task(until_the_end(ctx.session.id))


async def until_the_end(session_id: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        record("gone", session_id)
