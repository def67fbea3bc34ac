"""Where it is measured: an embedded server, and the processes of the contestants around it."""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import psutil
import temporalio.client

from benchmarks.contestants import Contestant, langgraph
from benchmarks.contestants.bare import BareTemporal
from benchmarks.contestants.turnhold import Turnhold
from turnhold.cli.children import Child, StackError, free_port
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client

_START_SECONDS = 60.0
_GRACE = 10.0


@dataclass(frozen=True)
class Setup:
    """What a job needs.

    Args:
        tuned: the server has the settings that our stack gives it; else its own defaults.
        settings: `TURNHOLD_*` of the worker and the API.
    """

    tuned: bool = True
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Ground:
    """A running server with everything on it."""

    stack: Stack
    temporal: temporalio.client.Client
    turnhold: Turnhold

    @property
    def client(self) -> Client:
        return self.turnhold.client

    @property
    def contestants(self) -> tuple[Contestant, ...]:
        return BareTemporal(self.temporal), self.turnhold

    def process(self, child: Child | None) -> psutil.Process:
        assert child is not None
        return psutil.Process(child.pid)


@asynccontextmanager
async def ground(setup: Setup, *, durable: bool) -> AsyncGenerator[Ground]:
    """The stack, and a worker of the bare workflow beside it.

    Raises:
        StackError: it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="turnhold-benchmark-") as folder:
        data = Path(folder)
        plan = Plan(
            data,
            durable=durable,
            tuned=setup.tuned,
            settings={"TURNHOLD_AGENTS": "benchmarks.agents", **setup.settings},
        )
        with Stack(plan) as stack:
            environment = {**_outside(), "TEMPORAL_ADDRESS": stack.temporal_address}
            command = [sys.executable, "-P", "-m", "benchmarks.bare"]
            bare = Child("bare worker", command, environment, data / "logs" / "bare.log", _GRACE)
            try:
                temporal = await temporalio.client.Client.connect(stack.temporal_address)
                async with Client(stack.api_url) as client:
                    yield Ground(stack, temporal, Turnhold(client))
            finally:
                bare.stop()


@asynccontextmanager
async def peer(program: Path) -> AsyncGenerator[Contestant]:
    """LangGraph's development server.

    Raises:
        StackError: it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="turnhold-benchmark-") as folder:
        app = Path(folder) / "app"
        shutil.copytree(langgraph.APP, app)
        port = free_port(set())
        quiet = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1"}
        log = Path(folder) / "langgraph.log"
        server = Child(
            "langgraph", langgraph.command(program, app, port), {**_outside(), **quiet}, log, _GRACE
        )
        try:
            url = f"http://127.0.0.1:{port}"
            async with httpx2.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:
                await _answers(server, http)
                yield langgraph.LangGraph(http)
        finally:
            server.stop()


async def _answers(server: Child, http: httpx2.AsyncClient) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if not server.alive:
            raise StackError(server.epitaph())
        with contextlib.suppress(httpx2.TransportError):
            if (await http.get("/ok")).is_success:
                return
        await asyncio.sleep(0.2)
    raise StackError(f"langgraph did not answer within {_START_SECONDS:g} s")


def _outside() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "TURNHOLD_"))}
