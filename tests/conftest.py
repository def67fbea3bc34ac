"""Fixtures: a real stack (Temporal, one worker, the API) and a client of it.

`stack` is shared by all tests of one process (with pytest-xdist: one each). A test that stops or
kills a part uses `own_stack`.
"""

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client

# A shell's background job ignores Ctrl-C, and so would every program that these tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(Plan(tmp_path_factory.mktemp("stack"))) as running:
        yield running


@pytest.fixture(scope="session")
async def client(stack: Stack) -> AsyncIterator[Client]:
    async with Client(stack.api_url) as opened:
        yield opened


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    """A stack for this test alone, whose parts it may stop, kill and start again."""
    with Stack(Plan(tmp_path)) as running:
        yield running


@pytest.fixture
async def own_client(own_stack: Stack) -> AsyncIterator[Client]:
    async with Client(own_stack.api_url) as opened:
        yield opened
