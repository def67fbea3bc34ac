"""The API with parts of the stack away: what it answers, how quickly, and that nothing is lost."""

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.harness import poll, settled
from turnhold.cli.stack import Stack
from turnhold.client import Client

RECEIPT_SECONDS = "1"


@pytest.fixture
async def http(own_stack: Stack) -> AsyncIterator[httpx2.AsyncClient]:
    assert own_stack.api is not None
    own_stack.api.stop()
    own_stack.start_api({"TURNHOLD_RECEIPT_TIMEOUT": RECEIPT_SECONDS})
    async with httpx2.AsyncClient(base_url=own_stack.api_url, timeout=20, trust_env=False) as opened:

        async def up() -> bool:
            try:
                return (await opened.get("/healthz")).is_success
            except httpx2.TransportError:
                return False

        await poll(up)
        yield opened


async def test_s92_without_a_worker_commands_are_pending_and_reads_say_so(
    own_stack: Stack, own_client: Client, http: httpx2.AsyncClient
) -> None:
    session_id = (await own_client.create_session("script", input="say one")).session.id
    await settled(own_client, session_id, (await own_client.list_turns(session_id)).turns[0].id)
    for worker in own_stack.workers:
        worker.stop()
    path = f"/v1/sessions/{session_id}"

    created = await http.post("/v1/sessions", json={"agent": "script", "input": "say hello"})
    assert created.status_code == 201
    assert created.json()["session"]["deployment"] is None

    pending = await http.post(f"{path}/turns", json={"input": "say two"}, headers={"Idempotency-Key": "two"})
    receipt = pending.json()
    assert (pending.status_code, receipt["status"], receipt["turn_id"]) == (202, "pending", None)
    assert pending.headers["location"] == f"{path}/receipts/{receipt['request_id']}"
    again = await http.post(f"{path}/turns", json={"input": "say two"}, headers={"Idempotency-Key": "two"})
    assert again.status_code == 202

    turn = created.json()["turn"]["id"]
    for read in (
        path,
        f"{path}/events",
        f"{path}/turns",
        pending.headers["location"],
        f"/v1/sessions/{created.json()['session']['id']}/turns/{turn}?wait=60",
    ):
        began = time.monotonic()
        answer = await http.get(read)
        assert (answer.status_code, answer.json()["code"]) == (503, "worker_unavailable"), read
        assert answer.headers["retry-after"] == "1"
        assert time.monotonic() - began < 2.5
    assert (await http.get("/v1/sessions")).status_code == 200

    own_stack.start_worker()

    async def judged() -> bool:
        return (await http.get(pending.headers["location"])).json().get("status") == "accepted"

    await poll(judged)
    first = (await http.get(pending.headers["location"])).json()
    second = (await http.get(f"{path}/receipts/{again.json()['request_id']}")).json()
    assert first == second
    assert (await settled(own_client, session_id, first["turn_id"])).sequence == 2
    assert (await own_client.session(session_id)).turns_admitted == 2


async def test_s93_with_temporal_away_the_api_says_so_and_recovers_by_itself(
    own_stack: Stack, http: httpx2.AsyncClient
) -> None:
    session_id = (await http.post("/v1/sessions", json={"agent": "script"})).json()["session"]["id"]
    path = f"/v1/sessions/{session_id}"
    assert own_stack.temporal is not None
    own_stack.temporal.kill()
    for answer in (
        await http.get(path),
        await http.get(f"{path}/events"),
        await http.get("/v1/sessions"),
        await http.get("/readyz"),
        await http.post(f"{path}/turns", json={"input": "say lost?"}),
        await http.post("/v1/sessions", json={"agent": "script"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (503, "temporal_unavailable")
        assert answer.elapsed.total_seconds() < 3
    assert (await http.get("/healthz")).status_code == 200
    own_stack.start_temporal()

    async def ready() -> bool:
        return (await http.get("/readyz")).is_success

    await poll(ready)


async def test_s90_a_terminated_session_reads_as_closed(
    own_stack: Stack, own_client: Client, http: httpx2.AsyncClient
) -> None:
    made = await own_client.create_session("script", input="sleep 60")
    assert made.turn is not None
    session_id, turn_id = made.session.id, made.turn.id
    queued = await own_client.enqueue(session_id, "say never")
    path = f"/v1/sessions/{session_id}"

    async def running() -> bool:
        return (await own_client.turn(session_id, turn_id)).status == "running"

    await poll(running)
    temporal(own_stack, "workflow", "terminate", "--workflow-id", session_id)
    session = (await http.get(path)).json()
    assert (session["status"], session["closed_how"]) == ("closed", "terminated")
    assert session["closed_at"] is not None
    assert (session["running_turn_id"], session["queued_turns"], session["holds"]) == (None, 0, [])
    for unfinished in (turn_id, queued.turn_id):
        turn = (await http.get(f"{path}/turns/{unfinished}", params={"wait": 20})).json()
        assert (turn["status"], turn["reason"]) == ("interrupted", "terminated")
    interrupted = (await http.get(f"{path}/turns", params={"status": "interrupted"})).json()["turns"]
    assert [turn["sequence"] for turn in interrupted] == [1, 2]
    late = await http.post(f"{path}/turns", json={"input": "say late"})
    assert (late.status_code, late.json()["code"]) == (409, "session_closed")
    receipt = (await http.get(f"{path}/receipts/{late.json()['request_id']}")).json()
    assert receipt["problem"]["code"] == "session_closed"
    assert (await http.post(f"{path}/close")).json()["session_status"] == "closed"
    stream = await http.get(f"{path}/events", headers={"Accept": "text/event-stream"})
    assert stream.text.rstrip().endswith(": the Session was terminated")

    async def listed() -> bool:
        rows = (await http.get("/v1/sessions", params={"status": "closed"})).json()["sessions"]
        return [row["closed_how"] for row in rows if row["id"] == session_id] == ["terminated"]

    await poll(listed)


def temporal(stack: Stack, *arguments: str) -> None:
    binary = Path(sys.executable).with_name("temporal")
    subprocess.run(
        [str(binary), *arguments, "--address", stack.temporal_address], check=True, capture_output=True
    )


async def test_an_api_that_is_asked_to_stop_ends_its_streams_in_order(
    own_stack: Stack, http: httpx2.AsyncClient
) -> None:
    session_id = (await http.post("/v1/sessions", json={"agent": "script"})).json()["session"]["id"]
    path = f"/v1/sessions/{session_id}/events"
    async with http.stream("GET", path, headers={"Accept": "text/event-stream"}) as response:
        lines = response.aiter_lines()
        assert (await anext(lines)).startswith(":")
        assert own_stack.api is not None
        began = time.monotonic()
        own_stack.api.terminate()
        async for line in lines:
            assert not line.startswith("data"), line
    assert own_stack.api.stop() == 0
    assert time.monotonic() - began < 4
