"""`turnhold store`: the operator's commands for what Sessions keep outside Temporal."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from turnhold.cli import outcome, output
from turnhold.cli.connection import Json

if TYPE_CHECKING:
    from turnhold.temporal.sweeping import Swept

store_commands = typer.Typer(help="What Sessions keep outside Temporal.", no_args_is_help=True)


@store_commands.callback()
def commands() -> None:
    """What Sessions keep outside Temporal."""


@store_commands.command("sweep", epilog="Example: turnhold store sweep --dry-run")
def sweep(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only name what would be removed.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what the store has of Sessions that Temporal no longer knows."""
    swept = _sweep(dry_run)
    if as_json:
        output.document({"looked_at": swept.looked_at, "removed": list(swept.removed), "dry_run": dry_run})
        return
    for folder in swept.removed:
        output.say(folder)
    done = "would be removed" if dry_run else "removed"
    output.say(f"{len(swept.removed)} of {swept.looked_at} folders {done}.")


def _sweep(dry_run: bool) -> "Swept":
    from temporalio.service import RPCError

    from turnhold.settings import Settings
    from turnhold.store.objects import Store, StoreError, StoreUnusable
    from turnhold.temporal import failures
    from turnhold.temporal.connection import CannotConnect, connect
    from turnhold.temporal.sweeping import Shared, Sweeper

    async def main() -> "Swept":
        store = Store.at(Settings().store)
        return await Sweeper(await connect(), store).sweep(dry_run=dry_run)

    try:
        return asyncio.run(main())
    except CannotConnect as error:
        raise outcome.CommandFailed(str(error), outcome.UNREACHABLE) from error
    except (StoreError, StoreUnusable, Shared, RPCError) as error:
        raise outcome.CommandFailed(failures.plain(error)) from error
