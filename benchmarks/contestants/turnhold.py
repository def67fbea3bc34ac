"""turnhold as its callers have it: HTTP and event streams; API and worker are processes of their own."""

import asyncio
import uuid

from benchmarks.viewer import viewing
from turnhold.client import Client, Problem
from turnhold.session.views import ReceiptView

AGENT = "echo"
_PATIENCE = 120.0
_PAUSE_SECONDS = 0.1


class Turnhold:
    """Asks again where it is told to come back later, as a caller should, and counts how often: `put_off`."""

    name = "turnhold"

    def __init__(self, client: Client) -> None:
        self.client = client
        self.put_off = 0

    async def first_turn(self) -> str:
        """Ends when `turn.completed` is seen on the stream."""
        created = await self.client.create_session(AGENT, input="hi")
        async with viewing(self.client.url, created.session.id) as viewer:
            await viewer.until("turn.completed")
        return created.session.id

    async def open(self) -> str:
        return await self.conversation(1)

    async def enqueue(self, session: str) -> str:
        return (await self._enqueued(session)).turn_id or ""

    async def finished(self, session: str, turn: str) -> None:
        async with asyncio.timeout(_PATIENCE):
            while True:
                try:
                    ended = await self.client.wait_turn(session, turn)
                    break
                except Problem as problem:
                    await self._put_off(problem)
        if ended.status != "completed":
            raise RuntimeError(f"{turn} is {ended.status}")

    async def conversation(self, turns: int) -> str:
        created = await self.client.create_session(AGENT, input="hi", idempotency_key=str(uuid.uuid4()))
        assert created.turn is not None
        session, last = created.session.id, created.turn.id
        if turns > 1:
            receipts = await asyncio.gather(*(self._enqueued(session) for _ in range(turns - 1)))
            last = max(receipts, key=lambda receipt: receipt.sequence or 0).turn_id or ""
        await self.finished(session, last)
        return session

    async def end(self, session: str) -> None:
        """Its last work is done then: else the next round would be measured beside it."""
        await self.client.cancel(session)
        async with asyncio.timeout(_PATIENCE):
            while True:
                try:
                    if (await self.client.session(session)).status == "closed":
                        return
                except Problem as problem:
                    await self._put_off(problem)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _enqueued(self, session: str) -> ReceiptView:
        receipt = await self.client.enqueue(session, "hi")
        async with asyncio.timeout(_PATIENCE):
            while receipt.status == "pending":
                try:
                    receipt = await self.client.receipt(session, receipt.request_id)
                except Problem as problem:
                    await self._put_off(problem)
        return receipt

    async def _put_off(self, problem: Problem) -> None:
        if problem.status not in (429, 503):
            raise problem
        self.put_off += 1
        await asyncio.sleep(problem.retry_after or _PAUSE_SECONDS)
