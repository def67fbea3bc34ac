"""The numbered outbox of one Process epoch: everything that a Process tells its Session.

Facts go in on the Process's thread and leave from the host's loop, in order, one report under way
at a time. A fact gets its number when it is first sent, and stays until the Session is known to
have it; the outcome of a Turn carries what is left, so nothing is lost and nothing overtakes.
"""

import asyncio
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from activities.link import SessionLink
from turnhold.session import limits
from turnhold.session.hosting import Fact, OutputWritten, Report
from turnhold.session.values import merged

log = logging.getLogger(__name__)

FIRST_FLUSH_SECONDS = 0.015  # grace before a Turn's first report: a Turn that ends within sends none
FLUSH_SECONDS = (0.1, 2.0)  # between reports; grows with the Turn, a hundredth of its age
BREATH = 5.0  # … and never less than so many times what a report takes: a busy system is told less often
BUFFER_BYTES = limits.MIB  # past it `write` waits
RETRY_SECONDS = (0.1, 5.0)
_SMALL_FACT_BYTES = 200


@dataclass(frozen=True, slots=True)
class _Entry:
    fact: Fact
    size: int
    on_ack: Callable[[], None] | None = None


class Outbox:
    """Made and closed on the host's loop; `put` and `room` are for the Process's thread.

    Args:
        on_ghost: called once when the Session turns out to be gone (S-26).
    """

    def __init__(self, link: SessionLink, session_id: str, epoch: int, on_ghost: Callable[[], None]) -> None:
        self._link = link
        self._session_id = session_id
        self._epoch = epoch
        self._on_ghost = on_ghost
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._first = 1  # the number of `_sent[0]`
        self._sent: list[_Entry] = []  # numbered, not known to have arrived
        self._waiting: deque[_Entry] = deque()
        self._waiting_bytes = 0
        self._sent_bytes = 0
        self._short_of_room: list[asyncio.Future[None]] = []
        self._turn_id: str | None = None
        self._begun_at = 0.0
        self._flushed_at: float | None = None
        self._took = 0.0  # the last report, in seconds
        self._wake = asyncio.Event()
        self._rush = asyncio.Event()
        self._acknowledged = asyncio.Event()
        self._closed = False
        self._pump = asyncio.create_task(self._run(), name=f"outbox {session_id} {epoch}")

    # --- the Process's side ---------------------------------------------------------------------

    def put(
        self,
        fact: Fact,
        size: int = _SMALL_FACT_BYTES,
        *,
        urgent: bool = False,
        on_ack: Callable[[], None] | None = None,
    ) -> None:
        """Add a fact. `urgent` sends it at once; `on_ack` is called on the host's loop."""
        with self._lock:
            if self._closed:
                return
            wake = not self._waiting
            was_full = self._waiting_bytes >= limits.REPORT_BYTES
            self._waiting.append(_Entry(fact, size, on_ack))
            self._waiting_bytes += size
            rush = urgent or (not was_full and self._waiting_bytes >= limits.REPORT_BYTES)
        if wake:
            call_in(self._loop, self._wake.set)
        if rush:
            call_in(self._loop, self._rush.set)

    async def room(self) -> None:
        """Wait while too much is under way. Yields to the loop in any case."""
        await asyncio.sleep(0)
        while True:
            with self._lock:
                if self._closed or self._sent_bytes + self._waiting_bytes <= BUFFER_BYTES:
                    return
                room = asyncio.get_running_loop().create_future()
                self._short_of_room.append(room)
            await room

    # --- the host's side ------------------------------------------------------------------------

    def begin(self, turn_id: str) -> None:
        """Another Turn begins: so the Session has the last one's outcome, and all its facts."""
        self._acknowledge(self._first + len(self._sent) - 1)
        self._turn_id = turn_id
        self._begun_at = self._loop.time()
        self._rush.clear()
        self._flushed_at = None

    async def settle(self) -> tuple[int, tuple[Fact, ...]]:
        """Everything not acknowledged, for a Turn's outcome: the first number, and the facts.

        Waits until that fits beside a result in one payload.
        """
        while not self._closed and self._sent_bytes + self._waiting_bytes > limits.REPORT_BYTES:
            await self._hurry()
        with self._lock:
            self._number(len(self._waiting))
            return self._first, tuple(entry.fact for entry in self._sent)

    async def flushed(self) -> None:
        """Wait until the Session has everything."""
        while not self._closed and (self._sent or self._waiting):
            await self._hurry()

    def close(self) -> None:
        """Send nothing any more, and drop what comes in."""
        with self._lock:
            self._closed = True
            waiters, self._short_of_room = self._short_of_room, []
        self._pump.cancel()
        self._acknowledged.set()
        _resolve_all(waiters)

    async def _hurry(self) -> None:
        self._acknowledged.clear()
        self._rush.set()
        self._wake.set()
        await self._acknowledged.wait()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._waiting:
                await self._until_due()
            report = self._next_report()
            if report is not None:
                await self._send(report)
            if self._waiting:
                self._wake.set()

    async def _until_due(self) -> None:
        now = self._loop.time()
        if self._flushed_at is None:
            pause = FIRST_FLUSH_SECONDS
        else:
            shortest, longest = FLUSH_SECONDS
            interval = min(max((now - self._begun_at) / 100, self._took * BREATH, shortest), longest)
            pause = self._flushed_at + interval - now
        with suppress(TimeoutError):
            async with asyncio.timeout(max(pause, 0)):
                await self._rush.wait()

    def _next_report(self) -> Report | None:
        """The next facts to send, at most REPORT_BYTES of them, but at least one."""
        with self._lock:
            if not self._waiting:
                return None
            size = count = 0
            for entry in self._waiting:
                if count and size + entry.size > limits.REPORT_BYTES:
                    break
                size += entry.size
                count += 1
            self._number(count)
            if self._waiting_bytes < limits.REPORT_BYTES:
                self._rush.clear()
            facts = tuple(entry.fact for entry in self._sent)
        return Report(epoch=self._epoch, first=self._first, turn_id=self._turn_id, facts=facts)

    def _number(self, count: int) -> None:
        taken = [self._waiting.popleft() for _ in range(count)]
        size = sum(entry.size for entry in taken)
        self._waiting_bytes -= size
        self._sent_bytes += size
        self._sent += _joined(taken)

    async def _send(self, report: Report) -> None:
        pause, longest = RETRY_SECONDS
        failed = False
        while True:
            begun = self._loop.time()
            try:
                there = await self._link.report(self._session_id, report)
                break
            except Exception as error:
                if not failed:
                    log.warning("report not delivered, sending it again: %s", error, extra=self._ids)
                failed = True
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, longest)
        self._flushed_at = self._loop.time()
        self._took = self._flushed_at - begun
        if there:
            self._acknowledge(report.first + len(report.facts) - 1)
        else:
            self._on_ghost()

    def _acknowledge(self, last: int) -> None:
        with self._lock:
            count = max(last + 1 - self._first, 0)
            arrived, self._sent = self._sent[:count], self._sent[count:]
            self._first += count
            self._sent_bytes -= sum(entry.size for entry in arrived)
            waiters: list[asyncio.Future[None]] = []
            if self._sent_bytes + self._waiting_bytes <= BUFFER_BYTES:
                waiters, self._short_of_room = self._short_of_room, []
        _resolve_all(waiters)
        for entry in arrived:
            if entry.on_ack is not None:
                entry.on_ack()
        self._acknowledged.set()

    @property
    def _ids(self) -> dict[str, object]:
        return {"session_id": self._session_id, "turn_id": self._turn_id, "epoch": self._epoch}


def call_in(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    """`call_soon_threadsafe`, for a loop that may be gone: then nobody is left to be told."""
    if not loop.is_closed():
        try:
            loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            if not loop.is_closed():
                raise


def resolve(future: asyncio.Future[None]) -> None:
    """Resolve `future`, from whatever thread, unless it is done."""
    call_in(future.get_loop(), lambda: future.done() or future.set_result(None))


def _resolve_all(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        resolve(future)


def _joined(entries: Iterable[_Entry]) -> list[_Entry]:
    """Neighbouring output as one fact each, whose text is joined exactly (S-15)."""
    joined: list[_Entry] = []
    for is_output, run in groupby(entries, key=lambda entry: isinstance(entry.fact, OutputWritten)):
        if not is_output:
            joined += run
            continue
        parts: list[_Entry] = list(run)
        content = merged(tuple(p for e in parts if isinstance(e.fact, OutputWritten) for p in e.fact.content))
        joined.append(_Entry(OutputWritten(content=content), sum(entry.size for entry in parts)))
    return joined
