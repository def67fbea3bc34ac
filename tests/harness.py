"""What the tests share: waiting for a condition, and reading a Session as a caller would."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from turnhold.client import Client, TurnholdError
from turnhold.session import limits
from turnhold.session.views import EventView, TurnView

T = TypeVar("T")

DEADLINE = 30.0


async def poll(
    until: Callable[[], T | Awaitable[T | None] | None],
    *,
    deadline: float = DEADLINE,
    interval: float = 0.05,
    what: str = "the condition",
) -> T:
    """Calls `until` until it answers something true, and returns that.

    An answer that does not come (any error of the client) counts as not yet.

    Raises:
        AssertionError: it did not within `deadline` seconds.
    """
    end = time.monotonic() + deadline
    last: object = None
    while True:
        try:
            answer = until()
            last = await answer if inspect.isawaitable(answer) else answer
            if last:
                return last  # type: ignore[return-value]
        except TurnholdError as error:
            last = error
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {deadline:g} s; last: {last!r}")
        await asyncio.sleep(interval)


async def settled(client: Client, session_id: str, turn_id: str, *, deadline: float = DEADLINE) -> TurnView:
    """The Turn, once it has ended."""
    turn = await client.wait_turn(session_id, turn_id, patience=deadline)
    assert turn.status not in ("queued", "running"), f"{turn_id} is still {turn.status} after {deadline:g} s"
    return turn


async def settled_after_fault(
    client: Client, session_id: str, turn_id: str, *, deadline: float = 60.0
) -> TurnView:
    """The Turn once it has ended; that for a while nobody can tell is no failure."""

    async def ended() -> TurnView | None:
        turn = await client.turn(session_id, turn_id)
        return turn if turn.ended_at else None

    return await poll(ended, deadline=deadline, what="the Turn's end")


async def admitted(client: Client, session_id: str, text: str, *, deadline: float = 60.0) -> str:
    """The ID of a Turn that this input makes, once it is known, however long a fault delays that."""
    receipt = await client.enqueue(session_id, text)

    async def turn_id() -> str | None:
        return (await client.receipt(session_id, receipt.request_id)).turn_id

    return receipt.turn_id or await poll(turn_id, deadline=deadline, what="a Turn")


async def running(client: Client, session_id: str) -> str:
    """The ID of the Turn that runs, once one does and has written something."""

    async def turn_id() -> str | None:
        session = await client.session(session_id)
        written = await client.events(session_id, kinds=["turn.output"])
        return session.running_turn_id if written.records else None

    return await poll(turn_id, what="a running Turn")


async def timeline(client: Client, session_id: str, *, after: int = 0) -> list[EventView]:
    """Every retained event after a sequence, page by page."""
    records: list[EventView] = []
    more = True
    while more:
        page = await client.events(session_id, after=after, limit=1000)
        records += page.records
        after, more = page.next_after, page.has_more
    return records


def assert_gapless(events: list[EventView], *, after: int = 0) -> None:
    """Sequences follow each other without a gap or a double (S-80)."""
    assert [event.sequence for event in events] == list(range(after + 1, after + 1 + len(events)))


async def is_sealed(client: Client, session_id: str) -> bool:
    """Whether what a Session has written has left its state for the store, which knows it for good."""
    headroom = (await client.session(session_id)).headroom
    return headroom is not None and headroom.state_bytes > limits.CARRIED_BYTES - 100 * limits.KIB
