"""Stacks whose parts are killed, and what their Agents wrote down."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from temporalio.client import Client as Temporal

from tests.harness import poll
from turnhold.cli.children import Child
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client
from turnhold.temporal.plugin import PLUGIN

SLOTS = 20


@pytest.fixture(scope="session")
def slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One worker with `SLOTS` Process slots; tests cancel what they created, so that all are free again."""
    settings = {"TURNHOLD_MAX_PROCESSES": str(SLOTS), "TURNHOLD_AGENTS": "tests.fault.agents"}
    with Stack(Plan(tmp_path_factory.mktemp("slots"), settings=settings)) as running:
        yield running


@pytest.fixture
async def slots_client(slots: Stack) -> AsyncIterator[Client]:
    async with Client(slots.api_url) as opened:
        yield opened


async def temporal(stack: Stack) -> Temporal:
    return await Temporal.connect(stack.temporal_address, plugins=[PLUGIN])


async def one_more_worker(stack: Stack, **settings: str) -> Child:
    """Another worker, once it runs."""
    worker = stack.start_worker(settings)
    await poll(lambda: "worker runs" in worker.output(), what="another worker")
    return worker


def recorded(stack: Stack, name: str) -> dict[str, float]:
    """When the Agents wrote what into this file; for a line that stands there twice, the last time."""
    path: Path = stack.scratch / name
    lines = path.read_text().splitlines() if path.exists() else []
    return {what: float(at) for what, at in (line.split() for line in lines)}


def appended(stack: Stack, name: str) -> list[str]:
    """The lines that `append` steps wrote into this file."""
    path = stack.scratch / name
    return path.read_text().splitlines() if path.exists() else []
