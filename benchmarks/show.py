"""A report for people."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.compare import Change
from benchmarks.figures import Report


def show(console: Console, report: Report) -> None:
    """Everything a report says: on what, every figure, every target."""
    console.print(f"[bold]{report.server}[/], {report.started_at:%Y-%m-%d %H:%M} UTC, {report.seconds:.0f} s")
    for facts in (report.machine, report.versions):
        console.print(", ".join(f"{name} {value}" for name, value in facts.items()), style="dim")
    for note in report.notes:
        console.print(note, style="dim")
    if report.quick:
        console.print("[yellow]quick: too few samples to say anything[/]")
    console.print(_figures(report))
    console.print(_verdicts(report))


def show_changes(console: Console, changes: Sequence[Change]) -> None:
    table = Table(title="Ratios against the last recorded run")
    for column in ("what", "before", "now", ""):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for change in changes:
        how = "[red]worse[/]" if change.worse else "[green]as before, or better[/]"
        table.add_row(change.what, _number(change.before), _number(change.now), how)
    console.print(table)


def _figures(report: Report) -> Table:
    table = Table(title="Measured")
    for column in ("job", "who"):
        table.add_column(column)
    for column in ("p50", "p95", "max", "medians of rounds", "samples"):
        table.add_column(column, justify="right")
    table.add_column("unit")
    last = ""
    for figure in report.figures:
        if figure.job != last and last:
            table.add_section()
        spread = f"{_number(figure.low)} – {_number(figure.high)}" if len(figure.rounds) > 1 else ""
        numbers = (
            _number(figure.p50),
            _number(figure.p95),
            _number(figure.most),
            spread,
            str(figure.samples),
        )
        table.add_row("" if figure.job == last else figure.job, figure.who, *numbers, figure.unit)
        last = figure.job
    return table


def _verdicts(report: Report) -> Table:
    table = Table(title="Targets")
    for column in ("job", "what", "value", "target", ""):
        table.add_column(column, justify="right" if column in ("value", "target") else "left")
    for verdict in report.verdicts:
        words = {True: "[green]holds[/]", False: "[red]missed[/]", None: "not measured"}
        limit = f"{'≥' if verdict.at_least else '≤'} {verdict.limit:g}"
        value = "" if verdict.value is None else _number(verdict.value)
        table.add_row(verdict.job, verdict.what, value, limit, words[verdict.holds])
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
