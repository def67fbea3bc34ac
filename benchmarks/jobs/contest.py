"""What every contestant does: first Turn, receipt, many callers at once, many conversations."""

import asyncio
import time
from collections.abc import Sequence

from benchmarks.bench import Bench, timed
from benchmarks.contestants import Contestant

CALLERS = 64
CONVERSATIONS = 100
TURNS = 5
_ROUNDS = 3


async def create(bench: Bench, contestants: Sequence[Contestant]) -> None:
    """From creating a conversation with an input to its result, one after another."""
    each = bench.some(15)

    async def measure(contestant: Contestant) -> list[float]:
        samples: list[float] = []
        for _ in range(each):
            took, session = await timed(contestant.first_turn())
            samples.append(took)
            await contestant.end(session)
        return samples

    await _warmed_up(contestants)
    await bench.alternately("create", "ms", contestants, _ROUNDS, measure)


async def receipt(bench: Bench, contestants: Sequence[Contestant]) -> None:
    """From an input to its receipt: one caller, one conversation that is idle every time."""
    each = bench.some(20)

    async def measure(contestant: Contestant) -> list[float]:
        session = await contestant.open()
        samples: list[float] = []
        for _ in range(each):
            took, turn = await timed(contestant.enqueue(session))
            samples.append(took)
            await contestant.finished(session, turn)
        await contestant.end(session)
        return samples

    await _warmed_up(contestants)
    await bench.alternately("receipt", "ms", contestants, _ROUNDS, measure)


async def burst(bench: Bench, contestants: Sequence[Contestant]) -> None:
    """64 inputs at once to one conversation: the slowest receipt. A sample is a burst."""

    async def measure(contestant: Contestant) -> list[float]:
        session = await contestant.open()
        took = await asyncio.gather(*(timed(contestant.enqueue(session)) for _ in range(CALLERS)))
        for _, turn in took:
            await contestant.finished(session, turn)
        await contestant.end(session)
        return [max(milliseconds for milliseconds, _ in took)]

    await _warmed_up(contestants)
    await bench.alternately("burst", "ms", contestants, bench.some(_ROUNDS, least=2), measure)


async def throughput(bench: Bench, contestants: Sequence[Contestant]) -> None:
    """Many conversations at once with five inputs each: Turns a second. A sample is all of them."""
    conversations = bench.some(CONVERSATIONS)

    async def measure(contestant: Contestant) -> list[float]:
        begun = time.perf_counter()
        made = await asyncio.gather(*(contestant.conversation(TURNS) for _ in range(conversations)))
        rate = conversations * TURNS / (time.perf_counter() - begun)
        await asyncio.gather(*(contestant.end(session) for session in made))
        return [rate]

    await _warmed_up(contestants)
    await bench.alternately("throughput", "turns/s", contestants, bench.some(_ROUNDS, least=2), measure)


async def _warmed_up(contestants: Sequence[Contestant]) -> None:
    for contestant in contestants:
        for _ in range(3):
            await contestant.end(await contestant.first_turn())
