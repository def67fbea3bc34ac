"""turnhold as its callers have it: HTTP and event streams; API and worker are processes of their own."""

from benchmarks.viewer import viewing
from turnhold.client import Client

AGENT = "echo"


class Turnhold:
    name = "turnhold"

    def __init__(self, client: Client) -> None:
        self.client = client

    async def first_turn(self) -> str:
        """Ends when `turn.completed` is seen on the stream."""
        created = await self.client.create_session(AGENT, input="hi")
        async with viewing(self.client.url, created.session.id) as viewer:
            await viewer.until("turn.completed")
        return created.session.id

    async def open(self) -> str:
        created = await self.client.create_session(AGENT, input="hi")
        await self.finished(created.session.id, 1)
        return created.session.id

    async def enqueue(self, session: str) -> None:
        await self._enqueued(session)

    async def _enqueued(self, session: str) -> str:
        receipt = await self.client.enqueue(session, "hi")
        if receipt.turn_id is None:
            raise RuntimeError(f"the receipt of an enqueue is {receipt.status}")
        return receipt.turn_id

    async def finished(self, session: str, turns: int) -> None:
        page = await self.client.list_turns(session, after=turns - 1, limit=1)
        turn = await self.client.wait_turn(session, page.turns[0].id, patience=120)
        if turn.status != "completed":
            raise RuntimeError(f"Turn {turns} is {turn.status}")

    async def conversation(self, turns: int) -> str:
        created = await self.client.create_session(AGENT, input="hi")
        last = created.turn.id if created.turn else ""
        for _ in range(turns - 1):
            last = await self._enqueued(created.session.id)
        turn = await self.client.wait_turn(created.session.id, last, patience=120)
        if turn.status != "completed":
            raise RuntimeError(f"the last Turn is {turn.status}")
        return created.session.id

    async def end(self, session: str) -> None:
        await self.client.cancel(session)
