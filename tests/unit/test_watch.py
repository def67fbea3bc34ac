"""Watching, against a timeline that the test writes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest

from tests.harness import poll
from turnhold.session.creation import Config
from turnhold.session.model import SessionStatus, TurnStatus
from turnhold.session.values import Origin
from turnhold.session.views import EventPage, EventView, ReadRequest, ReadResult, SessionView, TurnView
from turnhold.temporal import watch
from turnhold.temporal.failures import worker_unavailable
from turnhold.temporal.watch import End, Gap, Mark, Watched, Watcher

SESSION = "ses_abcdefgh12345678"
TURN = "trn_abcdefgh12345678"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Timeline:
    """A Session as the watcher sees it."""

    def __init__(self, events: int = 0) -> None:
        self.events: list[EventView] = []
        self.status: SessionStatus = "open"
        self.turn_status: TurnStatus = "running"
        self.retained_after = 0
        self.working = True
        self.reads = 0
        self.marks = 0
        self.broken = False
        for _ in range(events):
            self.write("turn.output")

    def write(self, kind: str) -> None:
        sequence = len(self.events) + 1
        self.events.append(
            EventView(session_id=SESSION, turn_id=TURN, sequence=sequence, created_at=NOW, kind=kind, data={})
        )

    def close(self) -> None:
        self.write("session.closed")
        self.status = "closed"

    async def read(self, session_id: str, request: ReadRequest, seconds: float = 2) -> ReadResult:
        self.reads += 1
        await asyncio.sleep(0)
        if self.broken:
            raise worker_unavailable(session_id)
        session = SessionView(
            id=SESSION,
            agent="a",
            root_id=SESSION,
            created_at=NOW,
            last_activity_at=NOW,
            config=Config(),
            status=self.status,
            last_event_sequence=len(self.events),
            retained_after=self.retained_after,
        )
        pages: list[EventPage] = []
        for wanted in request.pages:
            start = max(wanted.after, self.retained_after)
            records = self.events[start : start + wanted.limit]
            pages.append(
                EventPage(
                    records=tuple(records),
                    next_after=records[-1].sequence if records else wanted.after,
                    has_more=start + len(records) < len(self.events),
                    retained_after=self.retained_after,
                )
            )
        return ReadResult(
            session=session,
            pages=tuple(pages),
            turns_by_id={t: self.view() for t in request.turn_ids},
            working=self.working,
        )

    def view(self) -> TurnView:
        return TurnView(
            id=TURN,
            session_id=SESSION,
            sequence=1,
            status=self.turn_status,
            origin=Origin(),
            created_at=NOW,
        )

    async def turn(self, session_id: str, turn_id: str) -> TurnView:
        return self.view()

    async def mark(self, session_id: str) -> Mark:
        self.marks += 1
        return Mark("run", len(self.events))


@contextlib.asynccontextmanager
async def viewing(watcher: Watcher, timeline: Timeline, after: int = 0) -> AsyncIterator["Viewer"]:
    first = await timeline.read(SESSION, ReadRequest())
    viewer = Viewer()
    task = asyncio.create_task(viewer.follow(watcher.events(SESSION, after, first)))
    try:
        yield viewer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Viewer:
    def __init__(self) -> None:
        self.items: list[Watched | Gap | End] = []
        self.pause = 0.0

    async def follow(self, events: AsyncIterator[Watched | Gap | End]) -> None:
        async for item in events:
            self.items.append(item)
            if self.pause:
                await asyncio.sleep(self.pause)

    @property
    def sequences(self) -> list[int]:
        return [item.event.sequence for item in self.items if isinstance(item, Watched)]

    @property
    def ended(self) -> bool:
        return bool(self.items) and isinstance(self.items[-1], End)


async def until(condition: Callable[[], bool], seconds: float = 5) -> None:
    await poll(condition, deadline=seconds, interval=0.005)


async def test_s81_late_and_early_viewers_see_every_event_once_and_in_order() -> None:
    timeline = Timeline(events=1_234)
    watcher = Watcher(timeline, timeline.mark)
    async with viewing(watcher, timeline) as early, viewing(watcher, timeline, after=1_200) as middle:
        await until(lambda: len(early.sequences) == 1_234)
        for _ in range(50):
            timeline.write("turn.output")
        await until(lambda: len(early.sequences) == 1_284)
        async with viewing(watcher, timeline) as late:
            timeline.close()
            await until(lambda: early.ended and middle.ended and late.ended)
            assert early.sequences == late.sequences == list(range(1, 1_286))
            assert middle.sequences == list(range(1_201, 1_286))
    assert watcher.viewers == 0


async def test_viewers_share_one_reader() -> None:
    timeline = Timeline()
    watcher = Watcher(timeline, timeline.mark)
    async with contextlib.AsyncExitStack() as stack:
        viewers = [await stack.enter_async_context(viewing(watcher, timeline)) for _ in range(100)]
        await until(lambda: watcher.viewers == 100)
        before = timeline.reads
        for _ in range(10):
            timeline.write("turn.output")
        await until(lambda: all(len(viewer.sequences) == 10 for viewer in viewers))
        assert timeline.reads - before < 20


async def test_a_slow_viewer_delays_nobody_and_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "RING_EVENTS", 5)
    timeline = Timeline()
    watcher = Watcher(timeline, timeline.mark)
    async with viewing(watcher, timeline) as fast, viewing(watcher, timeline) as slow:
        slow.pause = 0.02
        await until(lambda: watcher.viewers == 2)
        for _ in range(60):
            timeline.write("turn.output")
        timeline.close()
        await until(lambda: fast.ended)
        assert len(slow.sequences) < 61
        await until(lambda: slow.ended)
        assert fast.sequences == slow.sequences == list(range(1, 62))


async def test_s82_a_boundary_is_shown_never_a_silent_gap() -> None:
    timeline = Timeline(events=10)
    timeline.retained_after = 6
    watcher = Watcher(timeline, timeline.mark)
    async with viewing(watcher, timeline, after=2) as viewer:
        await until(lambda: len(viewer.sequences) == 4)
        assert viewer.items[0] == Gap(6)
        assert viewer.sequences == [7, 8, 9, 10]


async def test_an_idle_session_is_not_queried_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDLE_SECONDS", "TOGETHER_SECONDS"):
        monkeypatch.setattr(watch, name, 0.01)
    timeline = Timeline(events=1)
    timeline.working = False
    watcher = Watcher(timeline, timeline.mark)
    async with viewing(watcher, timeline, after=1) as viewer:
        await until(lambda: timeline.marks >= 20)
        assert timeline.reads <= 3
        timeline.write("turn.queued")
        await until(lambda: viewer.sequences == [2])


async def test_a_command_through_this_process_is_looked_at_at_once() -> None:
    timeline = Timeline(events=1)
    timeline.working = False
    watcher = Watcher(timeline, timeline.mark)
    async with viewing(watcher, timeline, after=1) as viewer:
        await until(lambda: timeline.reads == 2)
        timeline.write("turn.queued")
        watcher.poke(SESSION)
        await until(lambda: viewer.sequences == [2], seconds=1)


async def test_a_stream_outlives_an_outage() -> None:
    timeline = Timeline(events=1)
    watcher = Watcher(timeline, timeline.mark)
    async with viewing(watcher, timeline) as viewer:
        await until(lambda: viewer.sequences == [1])
        timeline.broken = True
        reads = timeline.reads
        await until(lambda: timeline.reads > reads)
        timeline.write("turn.output")
        timeline.broken = False
        await until(lambda: viewer.sequences == [1, 2])


async def test_a_wait_returns_with_the_turns_end_or_when_its_time_is_over() -> None:
    timeline = Timeline(events=3)
    watcher = Watcher(timeline, timeline.mark)
    assert (await watcher.wait_turn(SESSION, TURN, 0.05)).status == "running"
    waiting = asyncio.create_task(watcher.wait_turn(SESSION, TURN, 30))
    await until(lambda: watcher.viewers == 1)
    timeline.turn_status = "completed"
    timeline.write("turn.completed")
    turn = await asyncio.wait_for(waiting, 5)
    assert turn.status == "completed"
    assert watcher.viewers == 0


async def test_a_process_that_stops_ends_its_views_and_waits() -> None:
    timeline = Timeline(events=3)
    watcher = Watcher(timeline, timeline.mark)
    waiting = asyncio.create_task(watcher.wait_turn(SESSION, TURN, 30))
    async with viewing(watcher, timeline) as viewer:
        await until(lambda: viewer.sequences == [1, 2, 3])
        watcher.close()
        assert (await asyncio.wait_for(waiting, 5)).status == "running"
        await until(lambda: watcher.viewers == 0)
