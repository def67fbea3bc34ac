"""`python -m benchmarks`: a few minutes, and nothing else should run on the machine meanwhile."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import compare
from benchmarks.bench import Bench
from benchmarks.figures import Report
from benchmarks.jobs import JOBS
from benchmarks.run import run
from benchmarks.show import show, show_changes
from turnhold.cli.outcome import CommandFailed

_NAMES = ", ".join(job.name for job in JOBS)


def main(
    only: Annotated[list[str] | None, typer.Option(help=f"this job; may be repeated. Jobs: {_NAMES}")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a tenth of the samples: to try it out")] = False,
    durable: Annotated[
        bool, typer.Option("--durable", help="the server keeps its database in a file")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="write the report to this file, as JSON")] = None,
    record: Annotated[
        bool, typer.Option("--record", help=f"keep the report in {compare.RESULTS.name}/, for --compare")
    ] = False,
    against_last: Annotated[
        bool, typer.Option("--compare", help="compare ratios with the last recorded run; exit 1 if worse")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="show this report instead of measuring")] = None,
) -> None:
    """Measure turnhold beside bare Temporal, and beside LangGraph's development server if installed."""
    unknown = [name for name in only or () if name not in {job.name for job in JOBS}]
    if unknown:
        raise typer.BadParameter(f"there is no job {unknown[0]}; there are {_NAMES}", param_hint="--only")
    last = compare.recorded()
    if against_last and last is None:
        raise typer.BadParameter("no run has been recorded yet", param_hint="--compare")
    measured = compare.load(report) if report else _measured(only, quick, durable)
    console = Console()
    show(console, measured)
    if json:
        json.write_text(measured.model_dump_json(indent=1) + "\n")
    if record:
        console.print(f"recorded as {compare.record(measured)}")
    if against_last and last:
        changes = compare.compared(compare.load(last), measured)
        show_changes(console, changes)
        if any(change.worse for change in changes):
            raise typer.Exit(1)


def _measured(only: list[str] | None, quick: bool, durable: bool) -> Report:
    jobs = [job for job in JOBS if not only or job.name in only]
    with Console(stderr=True).status("…") as status:
        try:
            return asyncio.run(run(Bench(quick=quick, tell=status.update), jobs, durable=durable))
        except CommandFailed as failure:
            print(f"benchmarks: {failure}", file=sys.stderr)
            raise typer.Exit(1) from failure


if __name__ == "__main__":
    typer.run(main)
