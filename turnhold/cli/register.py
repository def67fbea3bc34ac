"""`turnhold setup`: what a namespace needs before Sessions can be listed."""

import asyncio

from turnhold.cli import outcome
from turnhold.temporal.connection import CannotConnect, connect
from turnhold.temporal.names import SEARCH_ATTRIBUTES
from turnhold.temporal.setup import CannotRegister, register_search_attributes


def register() -> tuple[str, list[str], list[str]]:
    """Registers the search attributes in the namespace that `TEMPORAL_*` name.

    Returns:
        The namespace, what was registered now, and what had been there.
    """
    try:
        namespace, registered = asyncio.run(_register())
    except CannotConnect as error:
        raise outcome.CommandFailed(str(error), outcome.UNREACHABLE) from error
    except CannotRegister as error:
        raise outcome.CommandFailed(str(error)) from error
    return namespace, list(registered), [name for name in SEARCH_ATTRIBUTES if name not in registered]


async def _register() -> tuple[str, tuple[str, ...]]:
    client = await connect()
    return client.namespace, await register_search_attributes(client)
