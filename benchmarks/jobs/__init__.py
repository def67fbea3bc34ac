"""What is measured. A job of contestants is the same for each of them; the others look at turnhold."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.contestants import Contestant
from benchmarks.ground import Ground, Setup
from benchmarks.jobs import contest, eviction, history, idle, interrupts, output

TUNED = Setup()


@dataclass(frozen=True)
class ContestJob:
    """The same for bare, turnhold and the peer."""

    name: str
    run: Callable[[Bench, Sequence[Contestant]], Awaitable[None]]
    setup: Setup = TUNED


@dataclass(frozen=True)
class OwnJob:
    """Of turnhold, or of what Temporal shows."""

    name: str
    run: Callable[[Bench, Ground], Awaitable[None]]
    setup: Setup = TUNED


JOBS: tuple[ContestJob | OwnJob, ...] = (
    ContestJob("create", contest.create),
    ContestJob("receipt", contest.receipt),
    ContestJob("throughput", contest.throughput),
    OwnJob("history", history.history),
    OwnJob("interrupt", interrupts.interrupt),
    OwnJob("output", output.output),
    ContestJob("burst", contest.burst, Setup(tuned=False)),
    OwnJob("first-read", eviction.first_read, eviction.SETUP),
    OwnJob("idle", idle.idle, idle.SETUP),
)
"""In the order in which they run: those with the same setup share one server."""
