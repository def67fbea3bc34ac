"""From `output.write` in the handler to a viewer of the stream."""

import asyncio
from contextlib import AsyncExitStack

from benchmarks.bench import Bench
from benchmarks.ground import Ground
from benchmarks.viewer import Viewer, viewing

CROWD = 100
_PACES = {"20 a second": (200, 0.05), "1 a second": (15, 1.0)}


async def output(bench: Bench, ground: Ground) -> None:
    """A Turn writes the time; every viewer looks how long ago that was when it sees it.

    A sample is one fragment at one viewer. A stream like a model's, and one that says something
    now and then.
    """
    for pace, (count, pause) in _PACES.items():
        for viewers in (1, CROWD):
            bench.tell(f"output: {pace}, {viewers} viewers")
            samples = await _watched(ground, viewers, bench.some(count, least=5), pause)
            bench.add("output", f"turnhold, {pace}, {viewers} viewers", "ms", [samples])


async def _watched(ground: Ground, viewers: int, count: int, pause: float) -> list[float]:
    client = ground.client
    session = (await client.create_session("ticker")).session.id
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(viewing(client.url, session)) for _ in range(viewers)]
        await client.enqueue(session, f"{count} {pause}")
        seen = await asyncio.gather(*(_delays(viewer) for viewer in opened))
    await client.close(session)
    if any(len(delays) != count for delays in seen):
        raise RuntimeError("a viewer has not seen every fragment once")
    return [delay for delays in seen for delay in delays]


async def _delays(viewer: Viewer) -> list[float]:
    return [
        (event.at - float(written)) * 1000
        for event in await viewer.until("turn.completed")
        if event.kind == "turn.output"
        for written in event.text().split()
    ]
