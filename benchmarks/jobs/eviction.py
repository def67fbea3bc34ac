"""The first read of a Session that the worker's cache has let go: its history is replayed."""

import asyncio

from benchmarks.bench import Bench, timed
from benchmarks.ground import Ground, Setup

TURNS = 200
_CACHED = 20
SETUP = Setup(settings={"TURNHOLD_CACHED_SESSIONS": str(_CACHED)})


async def first_read(bench: Bench, ground: Ground) -> None:
    """A sample is one Session, read once; the read after it, which replays nothing, beside it."""
    client = ground.client
    turns = bench.some(TURNS)
    sessions: list[str] = []
    for number in range(bench.some(3)):
        bench.tell(f"first-read: Session {number + 1} with {turns} Turns")
        session = (await client.create_session("echo", input="hi")).session.id
        for _ in range(turns - 1):
            receipt = await client.enqueue(session, "hi")
            await client.wait_turn(session, receipt.turn_id or "", patience=60)
        sessions.append(session)
    for _ in range(2 * _CACHED):
        other = (await client.create_session("echo")).session.id
        await client.session(other)
    first = [(await timed(client.session(session)))[0] for session in sessions]
    again = [(await timed(client.session(session)))[0] for session in sessions]
    bench.add("first-read", "turnhold, evicted", "ms", [first])
    bench.add("first-read", "turnhold, cached", "ms", [again])
    await asyncio.gather(*(client.cancel(session) for session in sessions))
