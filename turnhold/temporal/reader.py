"""Reads, coalesced: one query at a time for a Session, answering everybody who waits.

Temporal keeps one query waiting for each pending workflow task and turns the others away. So each
process has one small actor per busy Session. A read joins the *next* query, which starts after the
read did, and therefore sees every command that was acknowledged before it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from turnhold.session.views import AsksRequest, PageRequest, ReadRequest, ReadResult, TurnsRequest
from turnhold.temporal.failures import Failure, worker_unavailable

_Large = PageRequest | TurnsRequest | AsksRequest | str
Query = Callable[[str, ReadRequest], Awaitable[ReadResult]]

RECEIPTS_PER_QUERY = 200  # about 100 KiB of a query's 2 MiB


@dataclass(eq=False)
class _Waiter:
    request: ReadRequest
    answer: asyncio.Future[ReadResult]


@dataclass
class _Batch:
    """Requests that one query answers. At most one of them is large: a page, a Turn or a list."""

    waiters: list[_Waiter] = field(default_factory=list[_Waiter])
    request_ids: dict[str, None] = field(default_factory=dict[str, None])
    large: list[_Large] = field(default_factory=list[_Large])
    explain: bool = False
    headroom: bool = False
    judging: bool = False

    @property
    def shared(self) -> bool:
        return len(self.waiters) > 1

    def takes(self, request: ReadRequest) -> bool:
        if not self.waiters:
            return True
        heavy = len(self.large) + len(self._new(request))
        receipts = len(self.request_ids.keys() | set(request.request_ids))
        return heavy <= 1 and receipts <= RECEIPTS_PER_QUERY and not (self.judging or request.judge)

    def add(self, waiter: _Waiter) -> None:
        request = waiter.request
        self.waiters.append(waiter)
        self.request_ids |= dict.fromkeys(request.request_ids)
        self.large += self._new(request)
        self.explain = self.explain or request.explain
        self.headroom = self.headroom or request.headroom
        self.judging = self.judging or request.judge is not None

    def _new(self, request: ReadRequest) -> list[_Large]:
        items = (*request.pages, *request.turns, *request.ask_pages, *request.turn_ids)
        return [item for item in items if item not in self.large]

    def request(self) -> ReadRequest:
        return ReadRequest(
            request_ids=tuple(self.request_ids),
            turn_ids=tuple(item for item in self.large if isinstance(item, str)),
            pages=tuple(item for item in self.large if isinstance(item, PageRequest)),
            turns=tuple(item for item in self.large if isinstance(item, TurnsRequest)),
            ask_pages=tuple(item for item in self.large if isinstance(item, AsksRequest)),
            explain=self.explain,
            headroom=self.headroom,
            judge=next((w.request.judge for w in self.waiters if w.request.judge), None),
        )

    def settle(self, asked: ReadRequest, result: ReadResult) -> None:
        for waiter in self.waiters:
            if not waiter.answer.done():
                waiter.answer.set_result(_cut(result, asked, waiter.request))

    def fail(self, error: Exception) -> None:
        for waiter in self.waiters:
            if not waiter.answer.done():
                waiter.answer.set_exception(error)


def _cut(result: ReadResult, asked: ReadRequest, mine: ReadRequest) -> ReadResult:
    if (asked.pages, asked.turns, asked.ask_pages) == (mine.pages, mine.turns, mine.ask_pages):
        return result
    return result.but(
        pages=tuple(result.pages[asked.pages.index(page)] for page in mine.pages),
        turns=tuple(result.turns[asked.turns.index(turns)] for turns in mine.turns),
        ask_pages=tuple(result.ask_pages[asked.ask_pages.index(page)] for page in mine.ask_pages),
    )


class Readers:
    """One actor per Session that is being read; it goes when nobody waits."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._actors: dict[str, _Actor] = {}

    async def read(self, session_id: str, request: ReadRequest, seconds: float) -> ReadResult:
        """The answers to `request`, from a query that starts after this call.

        Raises:
            Failure: what the query raised; `worker_unavailable` when `seconds` have passed.
        """
        actor = self._actors.get(session_id)
        if actor is None:
            actor = self._actors[session_id] = _Actor(session_id, self._query, self._forget)
        return await actor.read(request, seconds)

    def _forget(self, session_id: str) -> None:
        del self._actors[session_id]

    @property
    def busy(self) -> int:
        """How many Sessions are being read."""
        return len(self._actors)


class _Actor:
    def __init__(self, session_id: str, query: Query, forget: Callable[[str], None]) -> None:
        self._session_id = session_id
        self._query = query
        self._forget = forget
        self._waiting: list[_Waiter] = []
        self._apart: list[_Waiter] = []
        self._last_failure: Failure | None = None
        self._task = asyncio.create_task(self._run(), name=f"read {session_id}")

    async def read(self, request: ReadRequest, seconds: float) -> ReadResult:
        waiter = _Waiter(request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                return await waiter.answer
        except TimeoutError as error:
            failure = self._last_failure
            raise (failure or worker_unavailable(self._session_id)) from error

    async def _run(self) -> None:
        await asyncio.sleep(0)  # whoever asks in this turn of the loop shares the first query
        while batch := self._next():
            request = batch.request()
            try:
                result = await self._query(self._session_id, request)
            except Exception as error:
                self._last_failure = error if isinstance(error, Failure) else None
                if isinstance(error, Failure) or not batch.shared:
                    batch.fail(error)
                else:
                    self._apart += batch.waiters  # one of them may be at fault, the others are not
            else:
                self._last_failure = None
                batch.settle(request, result)
        self._forget(self._session_id)

    def _next(self) -> _Batch | None:
        batch, left = _Batch(), list[_Waiter]()
        while self._apart:
            waiter = self._apart.pop()
            if not waiter.answer.done():
                batch.add(waiter)
                return batch
        for waiter in self._waiting:
            if waiter.answer.done():
                continue
            if batch.takes(waiter.request):
                batch.add(waiter)
            else:
                left.append(waiter)
        self._waiting = left
        return batch if batch.waiters else None
