"""Watching Sessions: one reader for each watched Session and process, shared by all its viewers.

The reader keeps the newest events in a bounded ring. A viewer is only a cursor: it takes from the
ring what is newer, and where the ring does not reach back far enough it reads pages of its own
until it has caught up. So a viewer sees every event once and in order, a late or slow one costs
the others nothing, and nothing grows with their number.
"""

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from turnhold.session.views import EventPage, EventView, PageRequest, ReadRequest, ReadResult, TurnView
from turnhold.temporal.failures import Failure
from turnhold.temporal.terminated import is_terminated

log = logging.getLogger(__name__)

FAST_SECONDS = 0.05  # after something new …
SLOW_SECONDS = 0.5  # … growing to this while a Turn runs
IDLE_SECONDS = 5.0
GROWTH = 1.5
RING_EVENTS = 1_000
RING_BYTES = 4 * 1024 * 1024
PAGE_EVENTS = 500
TERMINAL = frozenset({"turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled"})


@dataclass(frozen=True)
class Mark:
    """Where a run of a Session stands in Temporal: if it has not changed, nothing has happened."""

    run_id: str
    history_length: int


class Source(Protocol):
    """What watching needs of the gateway."""

    async def read(self, session_id: str, request: ReadRequest, seconds: float = ...) -> ReadResult: ...

    async def turn(self, session_id: str, turn_id: str) -> TurnView: ...


Marker = Callable[[str], Awaitable[Mark]]


@dataclass(frozen=True)
class Watched:
    """An event, and its JSON: encoded once for every viewer."""

    event: EventView
    json: str


@dataclass(frozen=True)
class Gap:
    """Events up to `retained_after` are no longer available (S-82)."""

    retained_after: int


@dataclass(frozen=True)
class End:
    """Nothing will come any more: the Session has ended and every event has been seen."""

    terminated: bool = False


class Watcher:
    """All the Sessions that this process watches.

    Args:
        source: reads, coalesced.
        marker: tells cheaply, without a worker, whether anything has happened.
    """

    def __init__(self, source: Source, marker: Marker) -> None:
        self._source = source
        self._marker = marker
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
            feed = self._feeds[session_id] = Feed(session_id, first, self._source, self._marker)
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
    ) -> AsyncGenerator[Watched | Gap | End]:
        """Every retained event after `after`, once and in order, as it happens; ends with an `End`.

        `first` is a fresh answer of the Session: whoever begins to watch has just looked at it.
        """
        with self._joined(session_id, first) as feed:
            cursor = after
            while not self._closed:
                if not feed.reaches(cursor):
                    page = await feed.page(cursor)
                    if page.retained_after > cursor:
                        cursor = page.retained_after
                        yield Gap(cursor)
                    for event in page.records:
                        if event.sequence > cursor:
                            cursor = event.sequence
                            yield Watched(event, event.model_dump_json())
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
                await feed.change_after(seen)

    async def wait_turn(self, session_id: str, turn_id: str, seconds: float) -> TurnView:
        """The Turn as soon as it has ended, or as it is after `seconds`.

        Raises:
            Failure: as a read.
        """
        first = await self._source.read(session_id, ReadRequest(turn_ids=(turn_id,)))
        seen = first.turns_by_id.get(turn_id)
        if seen is not None and seen.status in ("queued", "running"):
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

    def __init__(self, session_id: str, first: ReadResult, source: Source, marker: Marker) -> None:
        self.viewers = 0
        self.changes = 0
        self.end: End | None = None
        self._session_id = session_id
        self._source = source
        self._marker = marker
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
        pause = FAST_SECONDS
        while self.end is None:
            try:
                await self._pause(pause)
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
            found = bool(result.pages[0].records)
            self._take(result)
            pause = FAST_SECONDS if found else min(pause * GROWTH, SLOW_SECONDS)

    async def _pause(self, seconds: float) -> None:
        """Returns when it is time to read: soon while a Turn runs, else once something has happened."""
        if self._poked.is_set() or self._working:
            await self._poke_within(seconds if not self._poked.is_set() else 0)
            self._mark = None
            return
        while True:
            mark = await self._marker(self._session_id)
            if mark != self._mark:
                self._mark = mark
                return
            if await self._poke_within(_jittered(IDLE_SECONDS)):
                return

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
            self._ring.clear()
            self._ring_bytes = 0
            self._base = self._last = page.retained_after
        before = self._last
        for event in page.records:
            if event.sequence == self._last + 1:
                item = Watched(event, event.model_dump_json())
                self._ring.append(item)
                self._ring_bytes += len(item.json)
                self._last = event.sequence
        while self._ring and (len(self._ring) > RING_EVENTS or self._ring_bytes > RING_BYTES):
            self._ring_bytes -= len(self._ring.popleft().json)
            self._base += 1
        self._working = result.working or page.has_more
        if page.has_more:
            self._poked.set()
        self._note_end(result)
        if self._last != before:
            self._announce()

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
