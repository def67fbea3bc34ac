"""Coalesced reads, against a query that the test releases by hand."""

import asyncio
from datetime import UTC, datetime

import pytest

from tests.harness import poll
from turnhold.session.creation import Config
from turnhold.session.views import (
    EventPage,
    PageRequest,
    ReadRequest,
    ReadResult,
    ReceiptView,
    SessionView,
)
from turnhold.temporal.failures import Failure, worker_unavailable
from turnhold.temporal.reader import RECEIPTS_PER_QUERY, Readers

SESSION = "ses_abcdefgh12345678"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def view() -> SessionView:
    return SessionView(
        id=SESSION, agent="a", root_id=SESSION, created_at=NOW, last_activity_at=NOW, config=Config()
    )


def receipt(request_id: str) -> ReceiptView:
    return ReceiptView(request_id=request_id, status="accepted", session_id=SESSION)


class Session:
    """Answers like a Session's query would, one query when the gate opens."""

    def __init__(self) -> None:
        self.asked: list[ReadRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.running = 0
        self.error: Exception | None = None

    async def query(self, session_id: str, request: ReadRequest) -> ReadResult:
        self.asked.append(request)
        self.running += 1
        assert self.running == 1, "two queries of one Session at once"
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.running -= 1
        if self.error:
            raise self.error
        return ReadResult(
            session=view(),
            receipts={r: receipt(r) for r in request.request_ids},
            pages=tuple(EventPage(next_after=page.after) for page in request.pages),
        )


async def test_64_callers_at_once_share_one_query() -> None:
    session = Session()
    readers = Readers(session.query)
    wanted = [f"req_{n:012d}" for n in range(64)]
    results = await asyncio.gather(*(readers.read(SESSION, ReadRequest(request_ids=(r,)), 5) for r in wanted))
    assert len(session.asked) == 1
    assert all(r in result.receipts for r, result in zip(wanted, results, strict=True))


async def test_a_read_is_never_answered_by_a_query_that_began_before_it() -> None:
    session = Session()
    session.gate.clear()
    readers = Readers(session.query)
    first = asyncio.create_task(readers.read(SESSION, ReadRequest(), 5))
    await poll(lambda: session.asked, interval=0)
    late = [asyncio.create_task(readers.read(SESSION, ReadRequest(request_ids=("r",)), 5)) for _ in range(3)]
    await asyncio.sleep(0)
    session.gate.set()
    await asyncio.gather(first, *late)
    assert [request.request_ids for request in session.asked] == [(), ("r",)]


async def test_large_answers_never_share_a_query_but_equal_ones_do() -> None:
    session = Session()
    readers = Readers(session.query)
    pages = [PageRequest(after=after) for after in (0, 0, 7)]
    results = await asyncio.gather(*(readers.read(SESSION, ReadRequest(pages=(page,)), 5) for page in pages))
    assert [result.pages[0].next_after for result in results] == [0, 0, 7]
    assert all(len(result.pages) == 1 for result in results)
    assert [len(request.pages) for request in session.asked] == [1, 1]


async def test_a_query_asks_for_a_bounded_number_of_receipts() -> None:
    session = Session()
    readers = Readers(session.query)
    wanted = [f"req_{n:012d}" for n in range(RECEIPTS_PER_QUERY + 1)]
    await asyncio.gather(*(readers.read(SESSION, ReadRequest(request_ids=(r,)), 5) for r in wanted))
    assert [len(request.request_ids) for request in session.asked] == [RECEIPTS_PER_QUERY, 1]


async def test_s92_a_read_that_nobody_answers_ends_in_time() -> None:
    session = Session()
    session.gate.clear()
    readers = Readers(session.query)
    with pytest.raises(Failure) as caught:
        await readers.read(SESSION, ReadRequest(), 0.05)
    assert caught.value.code == "worker_unavailable"
    session.gate.set()


async def test_a_failure_reaches_everybody_and_the_next_read_asks_again() -> None:
    session = Session()
    session.error = worker_unavailable(SESSION)
    readers = Readers(session.query)
    failures = await asyncio.gather(
        *(readers.read(SESSION, ReadRequest(), 5) for _ in range(3)), return_exceptions=True
    )
    assert [getattr(failure, "code", None) for failure in failures] == ["worker_unavailable"] * 3
    session.error = None
    assert (await readers.read(SESSION, ReadRequest(), 5)).session.id == SESSION


async def test_an_actor_goes_when_nobody_waits() -> None:
    session = Session()
    readers = Readers(session.query)
    await readers.read(SESSION, ReadRequest(), 5)
    await poll(lambda: not readers.busy, interval=0)
