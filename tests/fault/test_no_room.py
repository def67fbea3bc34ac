"""A Session that nobody looks after fills up: it refuses in time what may wait (S-95)."""

import asyncio

import pytest
from temporalio.client import Client as Temporal

from tests.harness import poll
from turnhold.cli.stack import Stack
from turnhold.client import Client, Problem
from turnhold.session import limits
from turnhold.session.views import Headroom


async def fill(stack: Stack, session_id: str, signals: int) -> None:
    """Signals of no meaning: each is an event that waits for a worker."""
    temporal = await Temporal.connect(stack.temporal_address)
    handle = temporal.get_workflow_handle(session_id)
    room = asyncio.Semaphore(50)

    async def one() -> None:
        async with room:
            await handle.signal("nothing")

    await asyncio.gather(*(one() for _ in range(signals)))


async def test_s95_headroom_tells_what_is_left_of_a_run(stack: Stack, client: Client) -> None:
    session_id = (await client.create_session("script")).session.id
    before = await poll(lambda: _headroom(client, session_id))
    await fill(stack, session_id, 3)
    after = await poll(lambda: _headroom(client, session_id))
    assert after.signals == before.signals - 3
    assert limits.RUN_EVENTS > before.history_events > after.history_events
    assert limits.RUN_BYTES > before.history_bytes > after.history_bytes
    await client.enqueue(session_id, "say " + "x" * 10_000)
    grown = await poll(lambda: _headroom(client, session_id))
    assert grown.state_bytes < after.state_bytes - 10_000


async def _headroom(client: Client, session_id: str) -> Headroom | None:
    return (await client.session(session_id)).headroom


async def test_s92_s95_without_a_worker_what_may_wait_is_refused_before_the_wall(
    own_stack: Stack, own_client: Client
) -> None:
    client = own_client
    session_id = (await client.create_session("script")).session.id
    await poll(lambda: _headroom(client, session_id))
    own_stack.workers.pop().stop()
    await fill(own_stack, session_id, limits.BUSY_EVENTS)
    with pytest.raises(Problem) as caught:
        await client.enqueue(session_id, "say no")
    assert (caught.value.status, caught.value.code) == (429, "session_busy")
    held = await client.interrupt(session_id)
    ended = await client.close(session_id)
    assert (held.status, ended.status) == ("pending", "pending"), "controls are taken all the same"
    worker = own_stack.start_worker()

    async def closed() -> bool:
        return (await client.session(session_id)).status == "closed"

    await poll(closed, deadline=60, what="the close that had waited")
    receipt = await client.receipt(session_id, held.request_id)
    assert receipt.status == "accepted"
    assert "limit for tasks" not in worker.output()
