"""The API is killed under load; and the workers are away while a closed Session is read."""

import asyncio
import time

import httpx2
import pytest

from tests.fault.conftest import appended, one_more_worker
from tests.harness import poll, settled, timeline
from turnhold.cli.stack import Stack
from turnhold.client import Client, TurnholdError
from turnhold.temporal.workers import BEAT_SECONDS

ENQUEUES = 100


async def test_s3_an_api_killed_amid_keyed_enqueues_makes_no_turn_twice_and_loses_none(
    own_stack: Stack, own_client: Client
):
    client = own_client
    created = await client.create_session("script")
    session_id = created.session.id

    async def enqueue(number: int) -> str | None:
        receipt = await client.enqueue(session_id, f"append runs {number}", idempotency_key=f"key-{number}")
        return receipt.turn_id

    api = own_stack.api
    assert api is not None
    at_once = asyncio.Semaphore(8)
    answered: list[int] = []

    async def tried(number: int) -> str | None:
        async with at_once:
            if not api.alive:
                return None
            try:
                turn_id = await enqueue(number)
            except TurnholdError:
                return None
            answered.append(number)
            return turn_id

    flight = asyncio.gather(*(tried(number) for number in range(ENQUEUES)))
    await poll(lambda: len(answered) > ENQUEUES / 3, interval=0)
    api.kill()
    first = await flight
    lost = first.count(None)
    own_stack.start_api()
    await poll(lambda: client.session(session_id))
    second = await asyncio.gather(*(enqueue(number) for number in range(ENQUEUES)))
    print(f"\n{lost} of {ENQUEUES} enqueues got no answer from the API that was killed")
    assert len(set(second)) == ENQUEUES
    assert all(before in (None, after) for before, after in zip(first, second, strict=True))
    for turn_id in second:
        assert turn_id is not None
        await settled(client, session_id, turn_id)
    assert (await client.session(session_id)).turns_admitted == ENQUEUES
    assert sorted(appended(own_stack, "runs"), key=int) == [str(number) for number in range(ENQUEUES)]


async def test_s92_a_killed_worker_is_missed_by_living_sessions_and_not_by_closed_ones(
    own_stack: Stack, own_client: Client
):
    created = await own_client.create_session("script", input="say hi")
    session_id = created.session.id
    await settled(own_client, session_id, created.turn.id)
    await own_client.close(session_id)
    await poll(lambda: _closed(own_client, session_id))
    before = await timeline(own_client, session_id)
    living = (await own_client.create_session("script")).session.id
    await poll(lambda: own_client.session(living))
    await asyncio.sleep(BEAT_SECONDS + 1)  # one that dies before its first beat is missed after a minute
    own_stack.workers[0].kill()
    began = time.monotonic()
    with pytest.raises(TurnholdError, match="worker_unavailable"):
        await own_client.session(living)
    assert time.monotonic() - began < 4
    assert await timeline(own_client, session_id) == before
    async with httpx2.AsyncClient(base_url=own_stack.api_url, trust_env=False) as http:

        async def ready() -> bool:
            return (await http.get("/readyz")).is_success

        async def unready() -> bool:
            return not await ready()

        await poll(unready, deadline=40, interval=0.5, what="an API that is not ready")
        await one_more_worker(own_stack)
        await poll(ready, what="an API that is ready")
    assert (await own_client.session(living)).status == "open"
    assert await timeline(own_client, session_id) == before


async def _closed(client: Client, session_id: str) -> bool:
    return (await client.session(session_id)).status == "closed"
