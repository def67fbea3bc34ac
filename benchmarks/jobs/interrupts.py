"""From an interrupt of a Turn to the end of its handler, while a hundred Turns run."""

import asyncio
import time

from benchmarks.agents import stops_file
from benchmarks.bench import Bench
from benchmarks.ground import Ground
from turnhold.client import Client

_RUNNING = 100
_INTERRUPTS = 100
_PATIENCE = 60.0
_LOOK_SECONDS = 0.02


async def interrupt(bench: Bench, ground: Ground) -> None:
    """Measured from the request to the handler's own note: acceptance and its answer are within.

    Every Session has a second Turn waiting, so that as many run afterwards as before.
    """
    client, stops = ground.client, stops_file(ground.stack.scratch)
    sessions = bench.some(_RUNNING)
    bench.tell(f"interrupt: starting {sessions} Turns")
    made = await asyncio.gather(*(_two_turns(client) for _ in range(sessions)))
    whole: list[float] = []
    receipts: list[float] = []
    try:
        turns = [await _running(client, session) for session in made]
        for number in range(bench.some(_INTERRUPTS)):
            bench.tell(f"interrupt: {number + 1}")
            session, turn = made[number % sessions], turns[number % sessions]
            begun = time.time()
            await client.interrupt_turn(session, turn)
            receipts.append((time.time() - begun) * 1000)
            noted: dict[str, float] = {}
            async with asyncio.timeout(_PATIENCE):
                while turn not in noted:
                    await asyncio.sleep(_LOOK_SECONDS)
                    lines = stops.read_text().splitlines() if stops.exists() else []
                    noted = {of: float(at) for of, at in (line.split() for line in lines)}
            whole.append((noted[turn] - begun) * 1000)
    finally:
        await asyncio.gather(*(client.cancel(session) for session in made))
    bench.add("interrupt", "turnhold", "ms", [whole])
    bench.add("interrupt", "turnhold, receipt", "ms", [receipts])


async def _two_turns(client: Client) -> str:
    session = (await client.create_session("patient", input="wait")).session.id
    await client.enqueue(session, "wait")
    return session


async def _running(client: Client, session: str) -> str:
    async with asyncio.timeout(_PATIENCE):
        while True:
            if turn := (await client.session(session)).running_turn_id:
                return turn
            await asyncio.sleep(_LOOK_SECONDS)
