"""What we promise, and what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.figures import Figure, Verdict


class Figures:
    """A run's figures by job and contestant."""

    def __init__(self, figures: Sequence[Figure]) -> None:
        self._by = {(figure.job, figure.who): figure for figure in figures}

    def get(self, job: str, who: str) -> Figure | None:
        return self._by.get((job, who))

    def ratio(self, job: str, who: str, to: str) -> float | None:
        """The median of the rounds' ratios: rounds ran next to each other, under the same load."""
        ours, theirs = self.get(job, who), self.get(job, to)
        if ours is None or theirs is None:
            return None
        paired = zip(ours.rounds, theirs.rounds, strict=True)
        return median(mine / other for mine, other in paired)

    def apart(self, job: str, who: str, to: str) -> float | None:
        """How much more, in the median."""
        ours, theirs = self.get(job, who), self.get(job, to)
        return None if ours is None or theirs is None else ours.p50 - theirs.p50

    def p50(self, job: str, who: str) -> float | None:
        figure = self.get(job, who)
        return None if figure is None else figure.p50

    def p95(self, job: str, who: str) -> float | None:
        figure = self.get(job, who)
        return None if figure is None else figure.p95


@dataclass(frozen=True)
class Target:
    """`measure` gives the value; `relative` what `--compare` compares, where that is another."""

    job: str
    what: str
    limit: float
    measure: Callable[[Figures], float | None]
    at_least: bool = False
    relative: bool = True


def _output(percent: str, limit: float) -> list[Target]:
    def measure(who: str) -> Callable[[Figures], float | None]:
        return lambda f: f.p50("output", who) if percent == "p50" else f.p95("output", who)

    return [
        Target(
            "output",
            f"write to viewer, {pace}, {viewers} viewers, {percent}, ms",
            limit,
            measure(f"turnhold, {pace}, {viewers} viewers"),
            relative=False,
        )
        for pace in ("20 a second", "1 a second")
        for viewers in (1, 100)
    ]


TARGETS: tuple[Target, ...] = (
    Target(
        "create", "first Turn, p50, turnhold to bare", 2.0, lambda f: f.ratio("create", "turnhold", "bare")
    ),
    Target(
        "create",
        "first Turn, p50, turnhold to langgraph",
        1.0,
        lambda f: _quotient(f.p50("create", "turnhold"), f.p50("create", "langgraph")),
    ),
    Target(
        "receipt", "receipt, p50, turnhold to bare", 2.5, lambda f: f.ratio("receipt", "turnhold", "bare")
    ),
    Target(
        "burst",
        "64 receipts at once, slowest, turnhold to bare",
        0.15,
        lambda f: f.ratio("burst", "turnhold", "bare"),
    ),
    Target(
        "interrupt",
        "request to handler stopped, 100 Turns running, p95, ms",
        200,
        lambda f: f.p95("interrupt", "turnhold"),
        relative=False,
    ),
    Target(
        "throughput",
        "Turns a second, turnhold to bare",
        0.7,
        lambda f: f.ratio("throughput", "turnhold", "bare"),
        at_least=True,
    ),
    Target(
        "history",
        "events a short Turn, turnhold more than bare",
        2,
        lambda f: f.apart("history", "turnhold", "bare"),
    ),
    *_output("p50", 120),
    *_output("p95", 400),
    Target(
        "idle",
        "1,000 idle Sessions and viewers, % of a core",
        10,
        lambda f: f.p50("idle", "API and worker"),
        relative=False,
    ),
    Target(
        "first-read",
        "read of an evicted Session with 200 Turns, p50, ms",
        500,
        lambda f: f.p50("first-read", "turnhold, evicted"),
        relative=False,
    ),
)


def judged(figures: Sequence[Figure], jobs: Sequence[str]) -> tuple[Verdict, ...]:
    """Every target of these jobs."""
    found = Figures(figures)
    return tuple(
        Verdict(
            job=target.job,
            what=target.what,
            value=(value := target.measure(found)),
            limit=target.limit,
            at_least=target.at_least,
            compared=value if target.relative else None,
        )
        for target in TARGETS
        if target.job in jobs
    )


def _quotient(value: float | None, by: float | None) -> float | None:
    return None if value is None or by is None else value / by
