"""A lead that hires researchers and merges what they find, without a model.

TURNHOLD_AGENTS=examples.research_team turnhold dev
turnhold session create lead --text 'tides, comets, volcanoes' --follow
"""

import asyncio
from typing import Any

from turnhold import Context, SpawnedSession, Turn, agent

LIBRARY = {
    "tides": ["The Moon raises two bulges of water.", "Spring tides come at new and full Moon."],
    "comets": ["A comet's tail points away from the Sun.", "Halley's returns every 76 years or so."],
    "volcanoes": ["Magma rises because it is lighter than the rock around it."],
}


@agent("researcher", close_after_idle="PT1H")
async def researcher(turn: Turn, ctx: Context) -> dict[str, list[str]]:
    """Looks a topic up; a real one would ask a model and search."""
    topic = turn.text.strip()
    facts: list[str] = []
    for fact in LIBRARY[topic]:  # an unknown topic fails this Turn, and no other
        await asyncio.sleep(1)
        await turn.output.write(f"{fact}\n")
        facts.append(fact)
    return {"facts": facts}


@agent("lead")
async def lead(turn: Turn, ctx: Context) -> dict[str, Any]:
    """Gives each topic of its input to a researcher of its own, and merges their results."""
    topics = list(dict.fromkeys(filter(None, map(str.strip, turn.text.split(",")))))
    team: dict[str, SpawnedSession] = {}
    for topic in topics:
        team[topic] = await ctx.sessions.spawn("researcher", topic, key=f"{turn.id} {topic}")
    await turn.output.write(f"{len(team)} researchers are at work.\n")

    async def finding(topic: str) -> tuple[str, list[str]]:
        done = await ctx.sessions.wait_turn(team[topic].id, team[topic].turn_id, timeout="PT5M")
        await turn.output.write(f"{topic}: {done.status}\n")
        await ctx.sessions.close(team[topic].id)
        found: Any = done.result or {"facts": []}
        return topic, found["facts"]

    findings = dict(await asyncio.gather(*map(finding, topics)))
    known = {topic: facts for topic, facts in findings.items() if facts}
    turn.respond("\n".join(f"{topic}: {' '.join(facts)}" for topic, facts in known.items()))
    return {"facts": known, "nothing_found": [topic for topic in topics if topic not in known]}
