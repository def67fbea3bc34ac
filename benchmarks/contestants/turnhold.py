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
        assert created.turn is not None
        await self.finished(created.session.id, created.turn.id)
        return created.session.id

    async def enqueue(self, session: str) -> str:
        receipt = await self.client.enqueue(session, "hi")
        if receipt.turn_id is None:
            raise RuntimeError(f"the receipt of an enqueue is {receipt.status}")
        return receipt.turn_id

    async def finished(self, session: str, turn: str) -> None:
        ended = await self.client.wait_turn(session, turn, patience=120)
        if ended.status != "completed":
            raise RuntimeError(f"{turn} is {ended.status}")

    async def conversation(self, turns: int) -> str:
        created = await self.client.create_session(AGENT, input="hi")
        assert created.turn is not None
        last = created.turn.id
        for _ in range(turns - 1):
            last = await self.enqueue(created.session.id)
        await self.finished(created.session.id, last)
        return created.session.id

    async def end(self, session: str) -> None:
        await self.client.cancel(session)
