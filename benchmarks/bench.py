"""A benchmark run: how much of everything, and what has come of it so far."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.contestants import Contestant
from benchmarks.figures import Figure, Unit, summed_up

T = TypeVar("T")


@dataclass
class Bench:
    """Args: quick: a tenth of the samples, for trying it out; tell: hears what is being done."""

    quick: bool = False
    tell: Callable[[str], None] = lambda _: None
    figures: list[Figure] = field(default_factory=list[Figure])
    notes: list[str] = field(default_factory=list[str])

    def some(self, count: int, *, least: int = 1) -> int:
        """How many of something this run takes, of `count` in a full one."""
        return max(count // 10, least) if self.quick else count

    def add(self, job: str, who: str, unit: Unit, rounds: Sequence[Sequence[float]]) -> None:
        self.figures.append(summed_up(job, who, unit, rounds))

    async def alternately(
        self,
        job: str,
        unit: Unit,
        contestants: Sequence[Contestant],
        rounds: int,
        measure: Callable[[Contestant], Awaitable[list[float]]],
    ) -> None:
        """Round after round, each contestant in its turn; the order changes from round to round."""
        taken: dict[str, list[list[float]]] = {contestant.name: [] for contestant in contestants}
        for number in range(rounds):
            for contestant in contestants[:: 1 if number % 2 == 0 else -1]:
                self.tell(f"{job}: {contestant.name}, round {number + 1} of {rounds}")
                taken[contestant.name].append(await measure(contestant))
        for who, samples in taken.items():
            self.add(job, who, unit, samples)


async def timed(work: Awaitable[T]) -> tuple[float, T]:
    """How long it takes, in ms, and what comes of it."""
    begun = time.perf_counter()
    answer = await work
    return (time.perf_counter() - begun) * 1000, answer
