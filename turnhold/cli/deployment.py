"""`turnhold deployment`: the versions of the workers, and the Sessions on each (S-4).

An operator's commands: they speak to Temporal, which `TEMPORAL_*` name, and not to the API.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from turnhold.cli import outcome, output
from turnhold.cli.connection import Json

if TYPE_CHECKING:
    from turnhold.temporal.deployments import Deployments, Drainage, Move, Overview

deployment_commands = typer.Typer(help="Versions of the workers: promote, drain, move.", no_args_is_help=True)
_T = TypeVar("_T")

Name = Annotated[
    str,
    typer.Option("--deployment", envvar="TURNHOLD_DEPLOYMENT", help="The worker deployment's name."),
]
TaskQueue = Annotated[
    str, typer.Option(envvar="TURNHOLD_TASK_QUEUE", help="The task queue that Sessions live on.")
]
Build = Annotated[str, typer.Argument(metavar="BUILD", help="A version's TURNHOLD_BUILD_ID.")]
_QUEUE = "turnhold"


@deployment_commands.command("ls", epilog="Example: turnhold deployment ls --deployment shop")
def list_versions(deployment: Name, task_queue: TaskQueue = _QUEUE, as_json: Json = False) -> None:
    """List the versions: which is current, how many open Sessions and workers each has."""
    overview = _call(deployment, task_queue, lambda d: d.overview())
    if as_json:
        output.document(overview)
        return
    _show(overview)


@deployment_commands.command("promote", epilog="Example: turnhold deployment promote 2 --deployment shop")
def promote(
    build: Build,
    deployment: Name,
    task_queue: TaskQueue = _QUEUE,
    force: Annotated[bool, typer.Option("--force", help="Also where workers of it are missing.")] = False,
    as_json: Json = False,
) -> None:
    """Make a version current: new Sessions begin on it. Those that are there stay where they are."""
    previous = _call(deployment, task_queue, lambda d: d.promote(build, force=force))
    now = f"{deployment}:{build}"
    if as_json:
        output.document({"current": now, "previous": previous})
    else:
        output.say(f"{now} is current." + (f" It was {previous}." if previous not in (None, now) else ""))


@deployment_commands.command("drain", epilog="Example: turnhold deployment drain 1 --deployment shop")
def drain(build: Build, deployment: Name, task_queue: TaskQueue = _QUEUE, as_json: Json = False) -> int:
    """Tell whether the workers of a version can go. Exit code 0: they can, 1: not yet."""
    drainage = _call(deployment, task_queue, lambda d: d.drain(build))
    if as_json:
        output.document(drainage)
    else:
        _show_drainage(drainage)
    return outcome.DONE if drainage.safe_to_retire else outcome.REFUSED


@deployment_commands.command("move", epilog="Example: turnhold deployment move --deployment shop")
def move(
    deployment: Name,
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SESSION]...", help="These; otherwise all that are on other versions."),
    ] = None,
    task_queue: TaskQueue = _QUEUE,
    as_json: Json = False,
) -> int:
    """Move idle Sessions to the current version. Exit code 1: some work, and stay; 4: some are under way."""

    async def work(deployments: "Deployments") -> tuple[str, list["Move"]]:
        target = await deployments.target()
        chosen = sessions or await deployments.elsewhere(target)
        return target, await deployments.move(chosen, target)

    target, moves = _call(deployment, task_queue, work)
    if as_json:
        output.document({"to": target, "sessions": moves})
    else:
        _show_moves(target, moves)
    outcomes = {move.outcome for move in moves}
    if outcomes & {"busy", "not_found"}:
        return outcome.REFUSED
    return outcome.PENDING if "pending" in outcomes else outcome.DONE


def _call(name: str, task_queue: str, work: Callable[["Deployments"], Awaitable[_T]]) -> _T:
    """Connects to Temporal, and does `work` with the deployment."""
    from turnhold.temporal.connection import CannotConnect, connect
    from turnhold.temporal.deployments import DeploymentError, Deployments

    async def main() -> _T:
        return await work(Deployments(await connect(), name, task_queue))

    try:
        return asyncio.run(main())
    except CannotConnect as error:
        raise outcome.CommandFailed(str(error), outcome.UNREACHABLE) from error
    except DeploymentError as error:
        raise outcome.CommandFailed(str(error)) from error


def _show(overview: "Overview") -> None:
    rows = [
        (
            version.deployment,
            "yes" if version.current else "-",
            str(version.open_sessions),
            str(version.workers),
            version.drainage or "-",
        )
        for version in overview.versions
    ]
    if overview.unversioned_sessions:
        rows.append(("none yet", "-", str(overview.unversioned_sessions), "-", "-"))
    output.table(("VERSION", "CURRENT", "OPEN SESSIONS", "WORKERS", "DRAINAGE"), rows)
    if overview.current is None:
        output.note(
            f"No version of {overview.name} is current: new Sessions do not run on any of these "
            f"before `turnhold deployment promote BUILD`."
        )


def _show_drainage(drainage: "Drainage") -> None:
    if drainage.safe_to_retire:
        output.say(f"No open Session is on {drainage.deployment}: its workers can be stopped.")
    else:
        output.say(f"Keep the workers of {drainage.deployment}: {drainage.reason}.")


def _show_moves(target: str, moves: list["Move"]) -> None:
    if moves:
        output.table(
            ("SESSION", "WAS ON", "OUTCOME", ""),
            [(move.session_id, move.was_on or "-", move.outcome, move.detail or "") for move in moves],
        )
    counts = Counter(move.outcome for move in moves)
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    output.say(f"To {target}: {told}." if told else f"Every open Session is on {target}.")
