"""Temporal for workflow tests: one that skips time, and one that is real."""

import shutil
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from turnhold.cli.stack import Stack
from turnhold.temporal.names import SEARCH_ATTRIBUTES
from turnhold.temporal.plugin import PLUGIN


def _binary(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is not installed; it comes with the dev extra"
    return found


@pytest.fixture
def task_queue() -> str:
    return f"sessions-{uuid.uuid4()}"


@pytest.fixture
async def real(stack: Stack) -> Client:
    """A real server; the tests' workers poll queues of their own there."""
    return await Client.connect(stack.temporal_address, plugins=[PLUGIN])


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A server whose clock jumps to the next timer; one a test, since a Session left open stops it."""
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=_binary("temporal-test-server"), plugins=[PLUGIN]
    ) as environment:
        await _define_search_attributes(environment)
        yield environment


async def _define_search_attributes(environment: WorkflowEnvironment) -> None:
    """This server cannot list them, which `turnhold setup` wants to do."""
    types = {
        name: IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{kind.upper()}")
        for name, kind in SEARCH_ATTRIBUTES.items()
    }
    await environment.client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(namespace="default", search_attributes=types)
    )
