"""Bare Temporal: the minimal workflow of `benchmarks.bare`, driven by the SDK."""

import asyncio
import contextlib
import uuid

from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from benchmarks.bare import QUEUE, Bare, Start

_LOOK_SECONDS = 0.01


class BareTemporal:
    name = "bare"

    def __init__(self, client: Client) -> None:
        self.client = client

    async def first_turn(self) -> str:
        """Ends with the workflow's result: the fastest way there is to hear of it."""
        return await self.conversation(1)

    async def open(self) -> str:
        handle = await self._start(Start(["hi"]))
        await self.finished(handle.id, "1")
        return handle.id

    async def enqueue(self, session: str) -> str:
        """A signal, and a query that has seen it: what a receipt is without turnhold."""
        handle = self._handle(session)
        await handle.signal(Bare.enqueue, "hi")
        return str((await handle.query(Bare.read)).admitted)

    async def finished(self, session: str, turn: str) -> None:
        handle = self._handle(session)
        while True:
            if len((await handle.query(Bare.read)).results) >= int(turn):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def conversation(self, turns: int) -> str:
        """Signals alone, without queries: the most that bare Temporal can do."""
        handle = await self._start(Start(["hi"], turns=turns))
        await asyncio.gather(*(handle.signal(Bare.enqueue, "hi") for _ in range(turns - 1)))
        await handle.result()
        return handle.id

    async def end(self, session: str) -> None:
        with contextlib.suppress(RPCError):  # it has ended
            await self._handle(session).terminate()

    async def _start(self, start: Start) -> WorkflowHandle[Bare, list[str]]:
        return await self.client.start_workflow(Bare.run, start, id=f"bare-{uuid.uuid4()}", task_queue=QUEUE)

    def _handle(self, session: str) -> WorkflowHandle[Bare, list[str]]:
        return self.client.get_workflow_handle_for(Bare.run, session)
