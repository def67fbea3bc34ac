"""Watching Sessions: one reader for each watched Session and process, shared by all its viewers.

The reader keeps the newest events in a bounded ring. A viewer is only a cursor: it takes from the
ring what is newer, and where the ring does not reach back far enough it reads pages of its own
until it has caught up. So a viewer sees every event once and in order, a late or slow one costs
the others nothing, and nothing grows with their number.
"""

import asyncio
import contextlib
import logging
import math
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from pydantic_core import to_json

from turnhold.session.views import EventPage, EventView, PageRequest, ReadRequest, ReadResult, TurnView
from turnhold.temporal.calls import Mark
from turnhold.temporal.failures import Failure
from turnhold.temporal.terminated import is_terminated

log = logging.getLogger(__name__)

QUICK_SECONDS = 0.005  # after a command or a Turn's step, when more is about to follow …
FAST_SECONDS = 0.05  # … or after output: the host gathers what follows for longer than this …
SLOW_SECONDS = 0.5  # … growing to this while a Turn runs: an event is late by a tenth of the silence before
GROWTH = 1.1
SILENT_SECONDS = 0.25  # from then on it is read only when something has happened
BREATH = 2.0  # … and never less than so many times what a read takes …
AT_EASE_SECONDS = 0.02  # … beyond this, in which a system that has time answers: a busy one is read less
IDLE_SECONDS = 5.0
TOGETHER_SECONDS = 0.5  # looks at idle Sessions begin together: that halves what a thousand of them cost
QUIET_SECONDS = 15.0
RING_EVENTS = 1_000
RING_BYTES = 1024 * 1024
PAGE_EVENTS = 500
TERMINAL = frozenset({"turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled"})


class Source(Protocol):
    """What watching needs of the gateway."""

    async def read(self, session_id: str, request: ReadRequest, seconds: float = ...) -> ReadResult: ...

    async def turn(self, session_id: str, turn_id: str) -> TurnView: ...


Marker = Callable[[str], Awaitable[Mark]]


@dataclass(frozen=True)
class Watched:
    """An event, and how it looks in an event stream: encoded once for every viewer."""

    event: EventView
    frame: bytes

    @classmethod
    def of(cls, event: EventView) -> "Watched":
        head = f"id: {event.sequence}\nevent: {event.kind}\ndata: "
        return cls(event, head.encode() + to_json(event) + b"\n\n")


@dataclass(frozen=True)
class Gap:
    """Events up to `retained_after` are no longer available (S-82)."""

    retained_after: int


@dataclass(frozen=True)
class Quiet:
    """Nothing has come for `QUIET_SECONDS`."""


@dataclass(frozen=True)
class End:
    """Nothing will come any more: the Session has ended and every event has been seen."""

    terminated: bool = False


class Watcher:
    """All the Sessions that this process watches.

    Args:
        source: reads, coalesced.
        marker: tells cheaply, without a worker, whether anything has happened.
        slowest: seconds between looks at a Session whose Turn has long been silent.
    """

    def __init__(self, source: Source, marker: Marker, slowest: float = SLOW_SECONDS) -> None:
        self._source = source
        self._marker = marker
        self._slowest = slowest
        self._feeds: dict[str, Feed] = {}
        self._closed = False

    def close(self) -> None:
        """Ends every view and wait, now and from now on: this process stops, and they begin elsewhere."""
        self._closed = True
        for feed in self._feeds.values():
            feed.dismiss()

    def poke(self, session_id: str) -> None:
        """Something has just been sent to this Session: look at once."""
        feed = self._feeds.get(session_id)
        if feed is not None:
            feed.poke()

    @property
    def viewers(self) -> int:
        return sum(feed.viewers for feed in self._feeds.values())

    @contextlib.contextmanager
    def _joined(self, session_id: str, first: ReadResult) -> Generator["Feed"]:
        feed = self._feeds.get(session_id)
        if feed is None:
            feed = self._feeds[session_id] = Feed(
                session_id, first, self._source, self._marker, self._slowest
            )
        feed.viewers += 1
        if self._closed:
            feed.dismiss()
        try:
            yield feed
        finally:
            feed.viewers -= 1
            if not feed.viewers:
                del self._feeds[session_id]
                feed.stop()

    async def events(
        self, session_id: str, after: int, first: ReadResult
    ) -> AsyncGenerator[Watched | Gap | Quiet | End]:
        """Every retained event after `after`, once and in order, as it happens; ends with an `End`.

        `first` is a fresh answer of the Session, perhaps with the page after `after`: whoever begins
        to watch has just looked at it.
        """
        with self._joined(session_id, first) as feed:
            cursor = after
            read = first.pages[0] if first.pages else None
            while not self._closed:
                if read is not None or not feed.reaches(cursor):
                    page, read = read or await feed.page(cursor), None
                    if page.retained_after > cursor:
                        cursor = page.retained_after
                        yield Gap(cursor)
                    for event in page.records:
                        if event.sequence > cursor:
                            cursor = event.sequence
                            yield Watched.of(event)
                    continue
                seen = feed.changes
                for item in feed.newer_than(cursor):
                    cursor = item.event.sequence
                    yield item
                if feed.changes != seen:
                    continue
                if feed.end is not None:
                    yield feed.end
                    return
                try:
                    async with asyncio.timeout(_together(QUIET_SECONDS)):
                        await feed.change_after(seen)
                except TimeoutError:
                    yield Quiet()

    async def wait_turn(self, session_id: str, turn_id: str, seconds: float) -> TurnView:
        """The Turn as soon as it has ended, or as it is after `seconds`.

        Raises:
            Failure: as a read.
        """
        turn, first = await asyncio.gather(  # one query answers both
            self._source.turn(session_id, turn_id),
            self._source.read(session_id, ReadRequest(turn_ids=(turn_id,))),
        )
        if turn.status not in ("queued", "running"):
            return turn
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._turn_ends(session_id, turn_id, first)
        return await self._source.turn(session_id, turn_id)

    async def _turn_ends(self, session_id: str, turn_id: str, first: ReadResult) -> None:
        events = self.events(session_id, first.session.last_event_sequence, first)
        async with contextlib.aclosing(events):
            async for item in events:
                if isinstance(item, Watched):
                    if item.event.turn_id == turn_id and item.event.kind in TERMINAL:
                        return
                elif isinstance(item, End):
                    return


class Feed:
    """The shared reader of one Session, and its ring of the newest events.

    Invariant: the ring holds every event after `_base` up to `_last`, without a hole.
    """

    def __init__(
        self, session_id: str, first: ReadResult, source: Source, marker: Marker, slowest: float
    ) -> None:
        self.viewers = 0
        self.changes = 0
        self.end: End | None = None
        self._session_id = session_id
        self._source = source
        self._marker = marker
        self._slowest = slowest
        self._base = self._last = first.session.last_event_sequence
        self._ring: deque[Watched] = deque()
        self._ring_bytes = 0
        self._changed = asyncio.Event()
        self._poked = asyncio.Event()
        self._working = first.working
        self._mark: Mark | None = None
        self._note_end(first)
        self._task = asyncio.create_task(self._run(), name=f"watch {session_id}")

    def poke(self) -> None:
        self._poked.set()

    def stop(self) -> None:
        self._task.cancel()

    def dismiss(self) -> None:
        self.stop()
        self._ends(End())

    def reaches(self, cursor: int) -> bool:
        return cursor >= self._base

    def newer_than(self, cursor: int) -> list[Watched]:
        """What the ring has after `cursor`, which it reaches."""
        start = max(cursor - self._base, 0)
        return [self._ring[i] for i in range(start, len(self._ring))]

    async def change_after(self, seen: int) -> None:
        while self.changes == seen:
            await self._changed.wait()

    async def page(self, cursor: int) -> EventPage:
        """A page for a viewer that the ring does not reach; waits while no worker answers."""
        while True:
            try:
                return (await self._read(cursor)).pages[0]
            except Failure as failure:
                if failure.code == "session_not_found":
                    return EventPage(next_after=self._base, retained_after=self._base)
                await asyncio.sleep(_jittered(1.0))

    async def _read(self, cursor: int) -> ReadResult:
        request = ReadRequest(pages=(PageRequest(after=cursor, limit=PAGE_EVENTS),))
        return await self._source.read(self._session_id, request)

    async def _run(self) -> None:
        pause, clock = QUICK_SECONDS, asyncio.get_running_loop().time
        while self.end is None:
            try:
                poked = await self._pause(pause)
                begun = clock()
                result = await self._read(self._last)
            except Failure as failure:
                if failure.code == "session_not_found":
                    self._ends(End(terminated=True))
                self._mark = None
                pause = _jittered(1.0)
                self._working = True
                continue
            except Exception:
                log.exception("watching %s met an error; it goes on", self._session_id)
                pause = _jittered(1.0)
                continue
            self._take(result)
            records = result.pages[0].records
            if records:
                pause = FAST_SECONDS if records[-1].kind == "turn.output" else QUICK_SECONDS
            else:
                pause = QUICK_SECONDS if poked else min(pause * GROWTH, self._slowest)
            pause = max(pause, (clock() - begun - AT_EASE_SECONDS) * BREATH)

    async def _pause(self, seconds: float) -> bool:
        """Returns when it is time to read: soon while a Turn runs, else once something has happened.

        That is also the rule for a Turn that has been silent. Answers whether it is because of a poke.
        """
        while self._poked.is_set() or self._working:
            if await self._poke_within(seconds if not self._poked.is_set() else 0):
                self._mark = None
                return True
            mark = None if seconds < SILENT_SECONDS else await self._marker(self._session_id)
            if mark is None or mark != self._mark:
                self._mark = mark
                return False
            seconds = min(seconds * GROWTH, self._slowest)
        while True:
            mark = await self._marker(self._session_id)
            if mark != self._mark:
                self._mark = mark
                return False
            if await self._poke_within(_together(_jittered(IDLE_SECONDS))):
                return True
            self._drop_ring()  # a viewer that is still behind reads pages of its own

    async def _poke_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        poked = self._poked.is_set()
        self._poked.clear()
        return poked

    def _take(self, result: ReadResult) -> None:
        page = result.pages[0]
        if page.retained_after > self._last:
            self._last = page.retained_after
            self._drop_ring()
        before = self._last
        for event in page.records:
            if event.sequence == self._last + 1:
                item = Watched.of(event)
                self._ring.append(item)
                self._ring_bytes += len(item.frame)
                self._last = event.sequence
        while self._ring and (len(self._ring) > RING_EVENTS or self._ring_bytes > RING_BYTES):
            self._ring_bytes -= len(self._ring.popleft().frame)
            self._base += 1
        self._working = result.working or page.has_more
        if page.has_more:
            self._poked.set()
        self._note_end(result)
        if self._last != before:
            self._announce()

    def _drop_ring(self) -> None:
        self._ring.clear()
        self._ring_bytes = 0
        self._base = self._last

    def _note_end(self, result: ReadResult) -> None:
        session = result.session
        if session.status == "closed" and self._last >= session.last_event_sequence:
            self._ends(End(terminated=is_terminated(session)))

    def _ends(self, end: End) -> None:
        self.end = end
        self._announce()

    def _announce(self) -> None:
        self.changes += 1
        self._changed.set()
        self._changed = asyncio.Event()


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.8, 1.2)


def _together(seconds: float) -> float:
    """About so many seconds, to an instant that all the process's idle readers share."""
    now = asyncio.get_running_loop().time()
    return math.ceil((now + seconds) / TOGETHER_SECONDS) * TOGETHER_SECONDS - now
