"""`explain` over real HTTP: a Session brought into each cause, and the call that clears it followed."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.test_api_faults import temporal
from tests.e2e.test_controls import begin, begin_running, closed, enqueue, output
from tests.harness import poll, settled
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client, Problem
from turnhold.session.views import Cause, Explanation


@pytest.fixture(scope="module")
async def http(stack: Stack) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=stack.api_url, timeout=20, trust_env=False) as opened:
        yield opened


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    """One Process slot, so that a second Session has none."""
    with Stack(Plan(tmp_path, settings={"TURNHOLD_MAX_PROCESSES": "1"})) as running:
        yield running


async def explained(client: Client, session_id: str, *codes: str) -> Explanation:
    """What is explained, once it is exactly these causes in this order."""

    async def found() -> Explanation | None:
        explanation = await client.explain(session_id)
        return explanation if tuple(cause.code for cause in explanation.causes) == codes else None

    return await poll(found, interval=0.02, what=f"{codes} of {session_id}")


async def cleared(http: httpx2.AsyncClient, cause: Cause) -> None:
    assert cause.clear is not None
    answer = await http.request(cause.clear.method, cause.clear.path, json=cause.clear.body)
    assert answer.is_success, answer.text


async def test_s94_held_and_the_resume_that_clears_it(client: Client, http: httpx2.AsyncClient) -> None:
    session_id, turn_id = await begin_running(client, "sleep 30")
    hold_id = (await client.interrupt(session_id)).hold_id
    await settled(client, session_id, turn_id)
    (queued,) = await enqueue(client, session_id, "return 2")
    explanation = await explained(client, session_id, "held")
    (held,) = explanation.causes
    assert (explanation.moving, held.hold_id, held.session_id) == (False, hold_id, session_id)
    assert held.since == (await client.session(session_id)).holds[0].created_at
    await cleared(http, held)
    assert (await settled(client, session_id, queued)).result == 2


async def test_s94_nothing_to_do_and_the_enqueue_that_clears_it(
    client: Client, http: httpx2.AsyncClient
) -> None:
    session_id, _ = await begin(client)
    explanation = await explained(client, session_id, "nothing_to_do")
    assert not explanation.moving
    await cleared(http, explanation.causes[0])
    assert (await client.session(session_id)).turns_admitted == 1


async def test_s94_queued_behind_and_the_interrupt_that_clears_it(
    client: Client, http: httpx2.AsyncClient
) -> None:
    session_id, turn_id = await begin_running(client, "sleep 30")
    await enqueue(client, session_id, "sleep 30")
    explanation = await explained(client, session_id, "queued_behind")
    assert (explanation.moving, explanation.causes[0].turn_id) == (True, turn_id)
    await cleared(http, explanation.causes[0])
    explanation = await explained(client, session_id)
    assert explanation.moving
    await client.cancel(session_id)


async def test_s94_stopping_ends_by_itself(client: Client) -> None:
    session_id, turn_id = await begin_running(client, "stubborn 1")
    await client.interrupt_turn(session_id, turn_id)
    explanation = await explained(client, session_id, "stopping")
    (stopping,) = explanation.causes
    assert (explanation.moving, stopping.turn_id, stopping.clear) == (True, turn_id, None)
    await explained(client, session_id, "nothing_to_do")


async def test_s94_starting_and_backing_off_end_by_themselves(client: Client) -> None:
    made = await client.create_session(
        "script", input="say hi", metadata={"fail_init": "1", "slow_init": "0.3"}
    )
    assert made.turn
    session_id = made.session.id
    assert (await explained(client, session_id, "process_starting")).moving
    explanation = await explained(client, session_id, "process_backing_off")
    assert explanation.moving
    assert explanation.causes[0].until is not None
    assert explanation.causes[0].turn_id == made.turn.id
    await settled(client, session_id, made.turn.id)


async def test_s94_asking_names_the_question_and_the_answer_that_clears_it(
    client: Client, http: httpx2.AsyncClient
) -> None:
    session_id, turn_id = await begin(client, "ask Which city?\nchoose-many Sure? | yes,no")
    explanation = await explained(client, session_id, "asking")
    (asking,) = explanation.causes
    assert (explanation.moving, asking.turn_id) == (False, turn_id)
    assert asking.clear is not None
    assert asking.clear.path == f"/v1/sessions/{session_id}/turns/{turn_id}/asks/{asking.ask_id}/answer"
    await cleared(http, asking)

    async def next_question() -> Cause | None:
        causes = (await client.explain(session_id)).causes
        return next((c for c in causes if c.code == "asking" and c.ask_id != asking.ask_id), None)

    await cleared(http, await poll(next_question))
    turn = await settled(client, session_id, turn_id)
    assert output(turn) == "answer: …\nchose: yes\n"


async def test_s94_closed_and_unknown(client: Client, stack: Stack) -> None:
    session_id, _ = await begin(client)
    await client.close(session_id)
    (cause,) = (await explained(client, session_id, "closed")).causes
    assert cause.since == (await client.session(session_id)).closed_at
    ended, _ = await begin(client)
    temporal(stack, "workflow", "terminate", "--workflow-id", ended)
    (cause,) = (await explained(client, ended, "closed")).causes
    assert "Temporal" in cause.message
    with pytest.raises(Problem) as caught:
        await client.explain("ses_00000000")
    assert caught.value.code == "session_not_found"


async def test_s90_temporals_own_cancel_is_a_session_cancel(client: Client, stack: Stack) -> None:
    session_id, turn_id = await begin_running(client, "sleep 30")
    temporal(stack, "workflow", "cancel", "--workflow-id", session_id)
    await poll(lambda: closed(client, session_id))
    assert (await client.session(session_id)).closed_how == "cancel"
    assert (await client.turn(session_id, turn_id)).status == "cancelled"


async def test_s94_no_slot_no_worker_no_temporal(own_stack: Stack, own_client: Client) -> None:
    client = own_client
    async with httpx2.AsyncClient(base_url=own_stack.api_url, timeout=20, trust_env=False) as http:
        at_work, _ = await begin_running(client, "sleep 60")
        waiting, turn_id = await begin(client, "return 1")
        explanation = await explained(client, waiting, "no_free_slot")
        (slot,) = explanation.causes
        assert (explanation.moving, slot.turn_id, slot.clear) == (False, turn_id, None)
        held, _ = await begin(client, "sleep 60")
        hold_id = (await client.interrupt(held)).hold_id
        ended, _ = await begin(client)
        await client.cancel(ended)
        await client.cancel(at_work)
        assert (await settled(client, waiting, turn_id)).result == 1, "a slot was free again"

        own_stack.workers.pop().kill()
        untouched, _ = await begin(client)
        began = time.monotonic()
        found = await asyncio.gather(*map(client.explain, (waiting, untouched, held, ended)))
        assert time.monotonic() - began < 2.3
        assert [[cause.code for cause in explanation.causes] for explanation in found] == [
            ["no_worker"],
            ["no_worker"],
            ["no_worker", "held"],
            ["closed"],
        ]
        assert not any(explanation.moving for explanation in found)
        no_worker, hold = found[2].causes
        assert "unversioned" in no_worker.message
        assert hold.clear is not None
        assert (hold.clear.path, hold.clear.body) == (f"/v1/sessions/{held}/resume", {"hold_id": hold_id})
        own_stack.start_worker()
        await explained(client, waiting, "nothing_to_do")

        own_stack.workers.pop().kill()
        assert own_stack.temporal is not None
        own_stack.temporal.kill()
        answer = await http.get(f"/v1/sessions/{waiting}/explain")
        body: dict[str, Any] = answer.json()
        assert (answer.status_code, body["moving"]) == (200, False)
        assert [cause["code"] for cause in body["causes"]] == ["temporal_unavailable"]
        assert answer.elapsed.total_seconds() < 2
