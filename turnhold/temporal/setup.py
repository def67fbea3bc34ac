"""Registers our search attributes in a namespace. May be run again at any time."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from turnhold.temporal.names import SEARCH_ATTRIBUTES

_TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Bool": IndexedValueType.INDEXED_VALUE_TYPE_BOOL,
    "Datetime": IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
}
_VISIBLE_SECONDS = 60.0
_CALL = timedelta(seconds=10)


class CannotRegister(Exception):
    """The namespace does not take our search attributes. One clear line."""


async def register_search_attributes(client: Client) -> tuple[str, ...]:
    """Registers what is missing of `names.SEARCH_ATTRIBUTES` and waits until it is there.

    Returns:
        The names registered now; empty when everything was there already.

    Raises:
        CannotRegister: the namespace is unknown, refuses, is slow, or has one of the names with
            another type.
    """
    try:
        missing = _missing(await _registered(client))
        if missing:
            await _add(client, missing)
        await _until_usable(client)
    except RPCError as error:
        raise CannotRegister(f"namespace {client.namespace}: {error.message}") from error
    return tuple(missing)


async def _registered(client: Client) -> Mapping[str, IndexedValueType.ValueType]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    response = await client.operator_service.list_search_attributes(request, timeout=_CALL)
    return response.custom_attributes


def _missing(registered: Mapping[str, IndexedValueType.ValueType]) -> list[str]:
    for name, kind in SEARCH_ATTRIBUTES.items():
        if name in registered and registered[name] != _TYPES[kind]:
            raise CannotRegister(f"the search attribute {name} is there with another type than {kind}")
    return [name for name in SEARCH_ATTRIBUTES if name not in registered]


async def _add(client: Client, names: list[str]) -> None:
    request = AddSearchAttributesRequest(
        namespace=client.namespace,
        search_attributes={name: _TYPES[SEARCH_ATTRIBUTES[name]] for name in names},
    )
    try:
        await client.operator_service.add_search_attributes(request, timeout=_CALL)
    except RPCError as error:
        if error.status != RPCStatusCode.ALREADY_EXISTS:  # somebody else is at it
            raise


async def _until_usable(client: Client) -> None:
    """A frontend goes on refusing an attribute for a while after it is listed: try them in a query."""
    query = " AND ".join(f"{name} IS NULL" for name in SEARCH_ATTRIBUTES)
    try:
        async with asyncio.timeout(_VISIBLE_SECONDS):
            while True:
                try:
                    await client.count_workflows(query, rpc_timeout=_CALL)
                    return
                except RPCError as error:
                    if error.status != RPCStatusCode.INVALID_ARGUMENT:
                        raise
                await asyncio.sleep(0.2)
    except TimeoutError as error:
        raise CannotRegister(
            f"the search attributes were not there {_VISIBLE_SECONDS:g} s after they were registered"
        ) from error
