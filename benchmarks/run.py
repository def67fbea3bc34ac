"""A whole run: every job on its server, then the peer, then the report."""

import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import httpx2

from benchmarks import ground, machine
from benchmarks.bench import Bench
from benchmarks.contestants import langgraph
from benchmarks.figures import Report
from benchmarks.jobs import JOBS, ContestJob, OwnJob
from benchmarks.targets import judged
from turnhold.cli.children import StackError

log = logging.getLogger(__name__)

_NO_PEER = "langgraph is not installed, so there is no peer: benchmarks/contestants/langgraph.py says how"
_PEER = (
    "langgraph is the development server of langgraph-cli[inmem]: in memory, not durable; "
    f"it may run {langgraph.ROOM} runs at once"
)


async def run(bench: Bench, jobs: Sequence[ContestJob | OwnJob] = JOBS, *, durable: bool = False) -> Report:
    """Carry out the jobs and judge what came of them.

    Raises:
        StackError: a server does not start.
    """
    started_at, begun = datetime.now(UTC), time.monotonic()
    before = machine.machine()
    for setup in _setups(jobs):
        bench.tell("starting a server")
        async with ground.ground(setup, durable=durable) as place:
            for job in (job for job in jobs if job.setup is setup):
                bench.tell(job.name)
                try:
                    await (
                        job.run(bench, place.contestants)
                        if isinstance(job, ContestJob)
                        else job.run(bench, place)
                    )
                except Exception as error:  # the other jobs are worth their minutes
                    log.exception("%s", job.name)
                    bench.notes.append(f"{job.name} was not measured to the end: {error}")
            if place.turnhold.put_off:
                bench.notes.append(
                    f"turnhold put its callers off {place.turnhold.put_off} times (503 or 429)"
                )
    await _measure_peer(bench, [job for job in jobs if isinstance(job, ContestJob)])
    return Report(
        started_at=started_at,
        seconds=round(time.monotonic() - begun, 1),
        quick=bench.quick,
        server="embedded, database " + ("in a file" if durable else "in memory"),
        machine={**before, "load afterwards": machine.machine()["load"]},
        versions=machine.versions(),
        notes=tuple(bench.notes),
        figures=tuple(bench.figures),
        verdicts=judged(bench.figures, [job.name for job in jobs]),
    )


async def _measure_peer(bench: Bench, jobs: Sequence[ContestJob]) -> None:
    program = langgraph.program()
    if not jobs:
        return
    if program is None:
        bench.notes.append(_NO_PEER)
        return
    bench.notes.append(_PEER)
    bench.tell("starting langgraph")
    try:
        async with ground.peer(program) as contestant:
            for job in jobs:
                await job.run(bench, [contestant])
    except (StackError, httpx2.HTTPError) as error:
        bench.notes.append(f"langgraph was not measured to the end: {error}")


def _setups(jobs: Sequence[ContestJob | OwnJob]) -> list[ground.Setup]:
    """Each setup once, in the order of its first job."""
    found: list[ground.Setup] = []
    for job in jobs:
        if not any(job.setup is setup for setup in found):
            found.append(job.setup)
    return found
