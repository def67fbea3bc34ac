"""The HTTP client: what it repeats, how problems arrive, and streams across broken connections."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing

import httpx2
import pytest

from turnhold import client as module
from turnhold import http
from turnhold.client import Client, Gap, Problem, TurnholdError, Unreachable
from turnhold.session.views import EventView

NOW = "2026-01-01T00:00:00.000Z"
RECEIPT = {
    "request_id": "req_00000001",
    "status": "accepted",
    "session_id": "ses_1",
    "session_status": "open",
    "event_sequence": 7,
    "turn_id": "trn_2",
    "sequence": 2,
}

Handler = Callable[[httpx2.Request], httpx2.Response]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_PAUSES", (0.0, 0.0))
    for each in (http, module):
        monkeypatch.setattr(each, "_LONGEST_PAUSE", 0.0)


def opened(handler: Handler) -> Client:
    return Client("http://api.test", "secret", transport=httpx2.MockTransport(handler))


def in_turn(*answers: httpx2.Response | Exception) -> tuple[Handler, list[httpx2.Request]]:
    """A server that gives these answers one after another, and what it was asked."""
    requests: list[httpx2.Request] = []
    waiting = list(answers)

    def handle(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        answer = waiting.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return handle, requests


def problem(status: int, code: str, **more: object) -> httpx2.Response:
    body = {"status": status, "code": code, "detail": "Because.", **more}
    return httpx2.Response(status, json=body, headers={"Content-Type": "application/problem+json"})


async def test_a_command_carries_key_and_body_and_returns_its_receipt():
    handle, requests = in_turn(httpx2.Response(201, json=RECEIPT, headers={"Idempotent-Replay": "true"}))
    async with opened(handle) as client:
        receipt = await client.enqueue("ses_1", "hello", idempotency_key="k 1")
    assert (receipt.turn_id, receipt.sequence, receipt.replay) == ("trn_2", 2, True)
    request = requests[0]
    assert request.url.path == "/v1/sessions/ses_1/turns"
    assert request.headers["Idempotency-Key"] == "k 1"
    assert request.headers["Authorization"] == "Bearer secret"
    assert json.loads(request.content) == {"input": "hello"}


async def test_a_problem_has_status_code_and_detail():
    handle, _ = in_turn(problem(409, "session_closed", session_id="ses_1", request_id="req_1"))
    async with opened(handle) as client:
        with pytest.raises(Problem) as caught:
            await client.close("ses_1")
    assert (caught.value.status, caught.value.code, caught.value.detail) == (
        409,
        "session_closed",
        "Because.",
    )
    assert caught.value.session_id == "ses_1"


async def test_an_answer_that_is_no_problem_document_is_still_a_problem():
    handle, _ = in_turn(httpx2.Response(502, text="<html>Bad gateway</html>"))
    async with opened(handle) as client:
        with pytest.raises(Problem, match="unexpected_response"):
            await client.session("ses_1")


async def test_an_answer_of_another_service_is_unreachable():
    handle, _ = in_turn(httpx2.Response(200, text="hello"))
    async with opened(handle) as client:
        with pytest.raises(Unreachable, match="is the URL right"):
            await client.session("ses_1")


async def test_s3_a_command_with_a_key_is_repeated_after_a_broken_connection():
    handle, requests = in_turn(httpx2.ReadError("cut"), httpx2.Response(201, json=RECEIPT))
    async with opened(handle) as client:
        assert (await client.enqueue("ses_1", "hi", idempotency_key="k")).status == "accepted"
    assert [request.headers["Idempotency-Key"] for request in requests] == ["k", "k"]


async def test_s3_a_command_without_a_key_is_never_sent_twice():
    handle, requests = in_turn(httpx2.ReadError("cut"))
    async with opened(handle) as client:
        with pytest.raises(Unreachable) as caught:
            await client.enqueue("ses_1", "hi")
    assert caught.value.uncertain
    assert len(requests) == 1


async def test_a_command_that_never_left_is_tried_again():
    handle, requests = in_turn(httpx2.ConnectError("refused"), httpx2.Response(201, json=RECEIPT))
    async with opened(handle) as client:
        await client.enqueue("ses_1", "hi")
    assert len(requests) == 2


async def test_s93_a_read_is_repeated_while_temporal_is_away_and_then_says_so():
    away = [problem(503, "temporal_unavailable") for _ in range(3)]
    handle, requests = in_turn(*away)
    async with opened(handle) as client:
        with pytest.raises(Problem, match="temporal_unavailable"):
            await client.session("ses_1")
    assert len(requests) == 3


async def test_s92_no_worker_is_said_at_once():
    handle, requests = in_turn(problem(503, "worker_unavailable"))
    async with opened(handle) as client:
        with pytest.raises(Problem, match="worker_unavailable"):
            await client.session("ses_1")
    assert len(requests) == 1


async def test_a_rejected_receipt_carries_its_problem():
    body = {
        "request_id": "req_00000001",
        "status": "rejected",
        "session_id": "ses_1",
        "problem": {"status": 429, "code": "queue_full", "detail": "Full.", "title": "Too Many Requests"},
    }
    handle, _ = in_turn(httpx2.Response(200, json=body))
    async with opened(handle) as client:
        receipt = await client.receipt("ses_1", "req_00000001")
    assert receipt.rejection is not None
    assert receipt.rejection.code == "queue_full"


async def test_an_id_cannot_leave_its_place_in_the_path():
    handle, requests = in_turn(problem(404, "session_not_found"))
    async with opened(handle) as client:
        with pytest.raises(Problem):
            await client.session("../healthz?x=")
    assert requests[0].url.raw_path == b"/v1/sessions/..%2Fhealthz%3Fx%3D"


# --- streams ---------------------------------------------------------------------------------------


def record(sequence: int, kind: str = "turn.output") -> bytes:
    body = {
        "session_id": "ses_1",
        "turn_id": None,
        "sequence": sequence,
        "created_at": NOW,
        "kind": kind,
        "data": {},
    }
    return f"id: {sequence}\nevent: {kind}\ndata: {json.dumps(body)}\n\n".encode()


class Cut(httpx2.AsyncByteStream):
    """A body that ends in the middle, with an error if there is one."""

    def __init__(self, chunks: Iterable[bytes], error: Exception | None = None) -> None:
        self._chunks = chunks
        self._error = error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
        if self._error:
            raise self._error


def stream_of(*chunks: bytes, error: Exception | None = None) -> httpx2.Response:
    return httpx2.Response(
        200, headers={"Content-Type": "text/event-stream; charset=utf-8"}, stream=Cut(chunks, error)
    )


def session_view(status: str, last: int) -> httpx2.Response:
    body = {
        "id": "ses_1",
        "agent": "script",
        "status": status,
        "root_id": "ses_1",
        "created_at": NOW,
        "last_activity_at": NOW,
        "config": {},
        "last_event_sequence": last,
    }
    return httpx2.Response(200, json=body)


async def collect(client: Client, after: int = 0) -> tuple[list[int | Gap], list[TurnholdError]]:
    lost: list[TurnholdError] = []
    seen: list[int | Gap] = []
    async for item in client.stream("ses_1", after=after, on_lost=lost.append):
        seen.append(item.sequence if isinstance(item, EventView) else item)
    return seen, lost


async def test_s81_a_broken_stream_goes_on_after_the_last_event_exactly_once():
    handle, requests = in_turn(
        stream_of(b": hi\n\n", record(1), record(2), record(3)[:20], error=httpx2.ReadError("cut")),
        httpx2.ConnectError("refused"),
        problem(503, "temporal_unavailable"),
        stream_of(record(2), record(3), record(4, "session.closed")),
    )
    async with opened(handle) as client:
        seen, lost = await collect(client)
    assert seen == [1, 2, 3, 4]
    assert len(lost) == 3
    assert [request.url.params["after"] for request in requests] == ["0", "2", "2", "2"]


async def test_s90_the_stream_of_a_terminated_session_ends():
    empty = httpx2.Response(200, json={"records": [], "next_after": 2, "has_more": False})
    handle, _ = in_turn(stream_of(record(1), record(2)), session_view("closed", 2), empty)
    async with opened(handle) as client:
        assert await collect(client) == ([1, 2], [])


async def test_a_stream_that_ends_early_is_joined_again():
    handle, _ = in_turn(stream_of(record(1)), session_view("open", 1), stream_of(record(2, "session.closed")))
    async with opened(handle) as client:
        seen, lost = await collect(client)
    assert seen == [1, 2]
    assert len(lost) == 1


async def test_s82_a_gap_is_passed_on_once():
    gap = b'event: gap\ndata: {"retained_after": 5}\n\n'
    handle, _ = in_turn(stream_of(gap, gap, record(6, "session.closed")))
    async with opened(handle) as client:
        seen, _ = await collect(client)
    assert seen == [Gap(retained_after=5), 6]


async def test_a_stream_that_is_refused_raises():
    handle, _ = in_turn(problem(404, "session_not_found"))
    async with opened(handle) as client:
        with pytest.raises(Problem, match="session_not_found"):
            await collect(client)


async def test_a_stream_that_nobody_serves_is_unreachable_soon():
    handle, requests = in_turn(*[httpx2.ConnectError("refused")] * 3)
    async with opened(handle) as client:
        with pytest.raises(Unreachable):
            await collect(client)
    assert len(requests) == 3


async def test_a_quiet_stream_that_was_there_once_is_joined_again_for_as_long_as_it_takes():
    handle, requests = in_turn(
        stream_of(b": hi\n\n", error=httpx2.ReadError("cut")),
        *[httpx2.ConnectError("refused")] * 5,
        stream_of(record(1, "session.closed")),
    )
    async with opened(handle) as client:
        seen, _ = await collect(client)
    assert seen == [1]
    assert len(requests) == 7


async def test_an_event_may_be_larger_than_a_mebibyte():
    body = json.loads(record(1, "session.closed").split(b"data: ")[1])
    body["data"] = {"content": [{"type": "text", "text": "x" * (1024 * 1024 + 1)}]}
    handle, _ = in_turn(stream_of(f"id: 1\nevent: x\ndata: {json.dumps(body)}\n\n".encode()))
    async with opened(handle) as client, aclosing(client.stream("ses_1")) as events:
        assert [event async for event in events]


async def test_however_many_wait_a_command_has_a_connection():
    server = await asyncio.start_server(_answers_commands_alone, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    async with server, Client(f"http://127.0.0.1:{port}") as client:
        waiting = [asyncio.create_task(client.wait_turn("ses_1", "trn_1")) for _ in range(150)]
        await asyncio.sleep(0.1)
        assert (await client.enqueue("ses_1", "hi")).turn_id == "trn_2"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _answers_commands_alone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if head.startswith(b"POST"):
        body = json.dumps(RECEIPT).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
    await reader.read()
    writer.close()
