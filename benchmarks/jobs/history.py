"""What a short Turn leaves in Temporal's history. A sample is the mean of one conversation."""

from benchmarks.bench import Bench
from benchmarks.contestants import Contestant
from benchmarks.ground import Ground

_TURNS = 50


async def history(bench: Bench, ground: Ground) -> None:
    """History events per Turn of one that is idle before every input."""
    turns = bench.some(_TURNS)

    async def measure(contestant: Contestant) -> list[float]:
        session = await contestant.open()
        before = await _events(ground, session)
        for number in range(turns):
            await contestant.enqueue(session)
            await contestant.finished(session, number + 2)
        events = await _events(ground, session) - before
        await contestant.end(session)
        return [events / turns]

    await bench.alternately("history", "events", ground.contestants, bench.some(3, least=1), measure)


async def _events(ground: Ground, session: str) -> int:
    return (await ground.temporal.get_workflow_handle(session).describe()).history_length
