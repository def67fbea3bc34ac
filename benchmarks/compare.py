"""A run against the last recorded one: ratios alone, for the absolute figures belong to a machine."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Report

RESULTS = Path(__file__).parent / "results"
TOLERANCE = 0.3
"""How much worse a ratio may be before it counts: on a shared machine they differ by a fifth."""


@dataclass(frozen=True)
class Change:
    """A compared target: then and now. `worse`: by more than the tolerance."""

    what: str
    before: float
    now: float
    worse: bool


def recorded() -> Path | None:
    """The last recorded run."""
    return max(RESULTS.glob("*.json"), default=None)


def record(report: Report) -> Path:
    """Keep this run as the one that later runs are compared with."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{report.started_at:%Y-%m-%dT%H%M%SZ}.json"
    path.write_text(report.model_dump_json(indent=1) + "\n")
    return path


def load(path: Path) -> Report:
    return Report.model_validate_json(path.read_bytes())


def compared(before: Report, now: Report, tolerance: float = TOLERANCE) -> list[Change]:
    """Every ratio that both have."""
    then = {verdict.what: verdict.compared for verdict in before.verdicts}
    changes: list[Change] = []
    for verdict in now.verdicts:
        old = then.get(verdict.what)
        if old is None or verdict.compared is None:
            continue
        slack = abs(old) * tolerance
        worse = verdict.compared < old - slack if verdict.at_least else verdict.compared > old + slack
        changes.append(Change(verdict.what, old, verdict.compared, worse))
    return changes
