"""Sessions over real HTTP, a real server and a real worker."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.harness import poll, settled
from turnhold.cli.stack import Stack
from turnhold.client import Client


@pytest.fixture(scope="module")
async def http(stack: Stack) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=stack.api_url, timeout=70, trust_env=False) as opened:
        yield opened


def fresh() -> str:
    return uuid.uuid4().hex


async def create(http: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await http.post("/v1/sessions", json={"agent": "script", **body})
    assert response.status_code == 201, response.text
    return response.json()


async def test_s1_creation_with_input_admits_turn_1_and_without_none(http: httpx2.AsyncClient) -> None:
    with_input = await create(http, input="say hi")
    assert with_input["turn"]["sequence"] == 1
    assert with_input["turn"]["status"] == "queued"
    assert with_input["session"]["turns_admitted"] == 1
    without = await create(http)
    assert without["turn"] is None
    assert (without["session"]["turns_admitted"], without["session"]["admission_tokens"]) == (0, 1)


async def test_s2_an_occupied_key_is_a_conflict_that_names_the_session(http: httpx2.AsyncClient) -> None:
    key = fresh()
    session = (await create(http, key=key))["session"]
    again = await http.post("/v1/sessions", json={"agent": "script", "key": key})
    assert (again.status_code, again.json()["code"]) == (409, "session_key_conflict")
    assert again.json()["session_id"] == session["id"]
    found = await http.get("/v1/sessions/lookup", params={"agent": "script", "key": key})
    assert found.json()["id"] == session["id"]
    missing = await http.get("/v1/sessions/lookup", params={"agent": "script", "key": fresh()})
    assert (missing.status_code, missing.json()["code"]) == (404, "session_not_found")


async def test_s2_a_key_stays_occupied_when_its_session_is_closed(http: httpx2.AsyncClient) -> None:
    key = fresh()
    session_id = (await create(http, key=key))["session"]["id"]
    await http.post(f"/v1/sessions/{session_id}/close")
    again = await http.post("/v1/sessions", json={"agent": "script", "key": key})
    assert again.json()["code"] == "session_key_conflict"


@pytest.mark.parametrize("keyed", [True, False])
async def test_s3_an_exact_retry_of_a_creation_answers_the_same(
    http: httpx2.AsyncClient, client: Client, keyed: bool
) -> None:
    headers = {"Idempotency-Key": fresh()}
    body: dict[str, Any] = {"agent": "script", "input": "say once", "metadata": {"a": "b"}}
    if keyed:
        body["key"] = fresh()
    first = await http.post("/v1/sessions", json=body, headers=headers)
    await settled(client, first.json()["session"]["id"], first.json()["turn"]["id"])
    body["input"] = [{"type": "text", "text": "say once"}]
    second = await http.post("/v1/sessions", json=body, headers=headers)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["idempotent-replay"] == "true"
    assert second.json() == first.json()
    other = await http.post("/v1/sessions", json=body | {"input": "say twice"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


async def test_s3_an_exact_retry_of_an_enqueue_admits_one_turn(
    http: httpx2.AsyncClient, client: Client
) -> None:
    session_id = (await create(http))["session"]["id"]
    path, headers = f"/v1/sessions/{session_id}/turns", {"Idempotency-Key": fresh()}
    answers = await asyncio.gather(
        *(http.post(path, json={"input": "say once"}, headers=headers) for _ in range(5))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    assert sum("idempotent-replay" in answer.headers for answer in answers) == 4
    other = await http.post(path, json={"input": "say twice"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert (await client.session(session_id)).turns_admitted == 1


async def test_s3_a_retry_is_answered_from_a_closed_session_too(
    http: httpx2.AsyncClient, client: Client
) -> None:
    session_id = (await create(http))["session"]["id"]
    path, headers = f"/v1/sessions/{session_id}/turns", {"Idempotency-Key": fresh()}
    first = await http.post(path, json={"input": "say once"}, headers=headers)
    await http.post(f"/v1/sessions/{session_id}/close")
    await poll(lambda: closed(client, session_id))
    again = await http.post(path, json={"input": "say once"}, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    other = await http.post(path, json={"input": "say twice"}, headers=headers)
    assert other.json()["code"] == "idempotency_conflict"


async def closed(client: Client, session_id: str) -> bool:
    return (await client.session(session_id)).status == "closed"


async def test_s3_every_outcome_can_be_read_by_its_request_id(
    http: httpx2.AsyncClient, client: Client
) -> None:
    session_id = (await create(http, config={"queue_limit": 1}))["session"]["id"]
    accepted = (await http.post(f"/v1/sessions/{session_id}/turns", json={"input": "sleep 1"})).json()
    receipts = f"/v1/sessions/{session_id}/receipts"
    assert (await http.get(f"{receipts}/{accepted['request_id']}")).json() == accepted
    rejected = await http.post(f"/v1/sessions/{session_id}/resume", json={"hold_id": "hld_nothing12345"})
    assert (rejected.status_code, rejected.json()["code"]) == (404, "hold_not_found")
    later = (await http.get(f"{receipts}/{rejected.json()['request_id']}")).json()
    assert (later["status"], later["problem"]["code"]) == ("rejected", "hold_not_found")
    unknown = await http.get(f"{receipts}/req_{fresh()[:24]}")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "receipt_not_found")


async def test_s55_close_of_a_closed_session_changes_nothing_and_is_accepted(
    http: httpx2.AsyncClient, client: Client
) -> None:
    session_id = (await create(http))["session"]["id"]
    path = f"/v1/sessions/{session_id}"
    assert (await http.post(f"{path}/close")).json()["status"] == "accepted"
    await poll(lambda: closed(client, session_id))
    last = (await http.get(path)).json()["last_event_sequence"]
    again = (await http.post(f"{path}/close")).json()
    assert (again["status"], again["session_status"], again["event_sequence"]) == ("accepted", "closed", last)
    assert (await http.get(f"{path}/receipts/{again['request_id']}")).json() == again
    late = await http.post(f"{path}/turns", json={"input": "say late"})
    assert (late.status_code, late.json()["code"]) == (409, "session_closed")
    receipt = (await http.get(f"{path}/receipts/{late.json()['request_id']}")).json()
    assert (receipt["status"], receipt["problem"]["code"]) == ("rejected", "session_closed")


async def test_s10_s11_64_concurrent_enqueues_run_in_order(http: httpx2.AsyncClient, client: Client) -> None:
    session_id = (await create(http))["session"]["id"]

    async def enqueue(number: int) -> tuple[int, str, float]:
        began = time.monotonic()
        answer = await http.post(f"/v1/sessions/{session_id}/turns", json={"input": f"return {number}"})
        assert answer.status_code == 201, answer.text
        return answer.json()["sequence"], answer.json()["turn_id"], time.monotonic() - began

    answers = sorted(await asyncio.gather(*(enqueue(number) for number in range(64))))
    assert [sequence for sequence, _, _ in answers] == list(range(1, 65))
    assert max(seconds for _, _, seconds in answers) < 20
    await settled(client, session_id, answers[-1][1])
    page = await client.events(session_id, limit=1000, kinds=["turn.running"])
    assert [event.turn_id for event in page.records] == [turn_id for _, turn_id, _ in answers]


async def test_a_wait_returns_as_soon_as_the_turn_has_ended(http: httpx2.AsyncClient) -> None:
    made = await create(http, input="sleep 1")
    path = f"/v1/sessions/{made['session']['id']}/turns/{made['turn']['id']}"
    early = await http.get(path, params={"wait": 0.2})
    assert early.json()["status"] in ("queued", "running")
    began = time.monotonic()
    turn = (await http.get(path, params={"wait": 30})).json()
    assert turn["status"] == "completed"
    assert time.monotonic() - began < 5


async def test_s15_output_larger_than_a_page_reads_whole(http: httpx2.AsyncClient, client: Client) -> None:
    made = await create(http, input="emit 40 60000")
    turn = await settled(client, made["session"]["id"], made["turn"]["id"])
    assert turn.status == "completed"
    assert turn.output_bytes > 2_000_000
    assert turn.output is not None
    assert sum(len(part.text) for part in turn.output if part.type == "text") == turn.output_bytes


async def test_turns_are_listed_by_sequence_without_input_and_output(
    http: httpx2.AsyncClient, client: Client
) -> None:
    made = await create(http, input="say one")
    session_id = made["session"]["id"]
    for text in ("fail two", "say three"):
        last = await client.enqueue(session_id, text)
    assert last.turn_id
    await settled(client, session_id, last.turn_id)
    path = f"/v1/sessions/{session_id}/turns"
    page = (await http.get(path, params={"limit": 2})).json()
    assert [turn["sequence"] for turn in page["turns"]] == [1, 2]
    assert all(turn["input"] is None and turn["output"] is None for turn in page["turns"])
    assert page["turns"][0]["output_bytes"] == 4
    rest = (await http.get(path, params={"after": page["next_after"]})).json()
    assert ([turn["sequence"] for turn in rest["turns"]], rest["next_after"]) == ([3], 3)
    failed = (await http.get(path, params={"status": "failed"})).json()
    assert [turn["error"]["message"] for turn in failed["turns"]] == ["two"]
    none = (await http.get(path, params={"after": 3})).json()
    assert (none["turns"], none["next_after"]) == ([], 3)


async def test_the_list_shows_filters_and_pages(http: httpx2.AsyncClient) -> None:
    tag = fresh()
    made = [(await create(http, key=f"{tag}-{n}", metadata={"tag": tag}))["session"]["id"] for n in range(3)]
    await http.post(f"/v1/sessions/{made[0]}/close")

    async def listed(**query: Any) -> list[str]:
        rows: list[str] = []
        cursor: str | None = None
        while True:
            params = {"limit": 2, **query} | ({"cursor": cursor} if cursor else {})
            page = (await http.get("/v1/sessions", params=params)).json()
            rows += [row["id"] for row in page["sessions"] if row["metadata"].get("tag") == tag]
            cursor = page["next_cursor"]
            if cursor is None:
                return rows

    async def shows(expected: set[str], **query: Any) -> bool:
        return set(await listed(**query)) == expected

    await poll(lambda: shows(set(made)))
    await poll(lambda: shows({made[0]}, status="closed"))
    await poll(lambda: shows(set(made[1:]), status="open"))
    assert await shows(set(made), agent="script", held=False, asking=False)
    assert await shows(set(), agent="o'brien")
    assert await shows(set(), held=True)
    assert await shows(set(), active_since="2999-01-01T00:00:00Z")
    assert await shows(set(made), active_since="2020-01-01T00:00:00Z")
    for cursor in ("!!!", "bm9uc2Vuc2U="):
        bad = await http.get("/v1/sessions", params={"cursor": cursor})
        assert (bad.status_code, bad.json()["code"]) == (422, "invalid_request")


async def test_s53_a_closing_session_takes_no_more_turns(http: httpx2.AsyncClient) -> None:
    made = await create(http, input="sleep 1")
    path = f"/v1/sessions/{made['session']['id']}"
    closing = (await http.post(f"{path}/close")).json()
    assert closing["session_status"] == "closing"
    late = await http.post(f"{path}/turns", json={"input": "say late"})
    assert (late.status_code, late.json()["code"]) == (409, "session_closing")


async def test_s11_past_the_queue_limit_it_is_full(http: httpx2.AsyncClient) -> None:
    made = await create(http, input="sleep 2", config={"queue_limit": 1})
    path = f"/v1/sessions/{made['session']['id']}"

    async def running() -> bool:
        return (await http.get(path)).json()["running_turn_id"] is not None

    await poll(running)
    assert (await http.post(f"{path}/turns", json={"input": "say 2"})).status_code == 201
    full = await http.post(f"{path}/turns", json={"input": "say 3"})
    assert (full.status_code, full.json()["code"], full.headers["retry-after"]) == (429, "queue_full", "1")
