"""Figures: what a job has measured, summed up, and the report that holds them all."""

import math
import statistics
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Unit = Literal["ms", "turns/s", "events", "% of a core", "KiB", "requests"]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Figure(Record):
    """One contestant's samples in one job.

    `rounds` are the medians of its rounds, in order: rounds of the same number ran next to each
    other, so their ratio is what compares. `low` and `high`, the smallest and the largest of them,
    are the spread.
    """

    job: str
    who: str
    unit: Unit
    samples: int
    p50: float
    p95: float
    most: float
    low: float
    high: float
    rounds: tuple[float, ...]


class Verdict(Record):
    """A target and what came of it. `value` is None where a part of it was not measured."""

    job: str
    what: str
    value: float | None
    limit: float
    at_least: bool = False
    compared: float | None = Field(
        default=None, description="what `--compare` compares: a ratio, whatever the machine"
    )

    @property
    def holds(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


class Report(Record):
    """A run: what was measured, on what, with what."""

    started_at: datetime
    seconds: float
    quick: bool
    server: str
    machine: dict[str, str]
    versions: dict[str, str]
    notes: tuple[str, ...]
    figures: tuple[Figure, ...]
    verdicts: tuple[Verdict, ...]


def summed_up(job: str, who: str, unit: Unit, rounds: Sequence[Sequence[float]]) -> Figure:
    """A figure of all samples. `rounds` are not empty, and neither is any of them."""
    samples = sorted(sample for samples in rounds for sample in samples)
    medians = tuple(statistics.median(samples) for samples in rounds)
    return Figure(
        job=job,
        who=who,
        unit=unit,
        samples=len(samples),
        p50=_percentile(samples, 50),
        p95=_percentile(samples, 95),
        most=samples[-1],
        low=min(medians),
        high=max(medians),
        rounds=medians,
    )


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """The nearest rank: a value that was measured, never one between two."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]
