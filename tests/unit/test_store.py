"""The store on a real directory: objects, a Session's folder, and reading across it and the tail."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.driver import running
from turnhold.session import calls, limits, steps, timeline
from turnhold.session.handover import SealCall, SetAsideCall, WaitingInput
from turnhold.session.machine import Machine
from turnhold.session.values import TextPart, text_of
from turnhold.session.views import EventView, PageRequest, ReadRequest, ReadResult, TurnsRequest
from turnhold.store.archive import Archive
from turnhold.store.folder import Folder
from turnhold.store.objects import Missing, Store, StoreFailed, StoreUnusable


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.at(str(tmp_path / "store"), cache_bytes=limits.MIB)


# --- objects --------------------------------------------------------------------------------------


async def test_objects_are_written_read_listed_and_removed(store: Store) -> None:
    for name in ("a/1", "a/2", "b/c/3"):
        await store.put(name, name.encode())
    assert await store.get("a/2") == b"a/2"
    assert [found.path for found in await store.listing("a")] == ["a/1", "a/2"]
    assert [found.path for found in await store.listing("a", after="1")] == ["a/2"]
    assert await store.folders() == ["a", "b"]
    assert await store.folders("b") == ["b/c"]
    await store.delete(["a/1", "never/there"])
    assert [found.path for found in await store.listing("a")] == ["a/2"]
    with pytest.raises(Missing):
        await store.get("a/1")


async def test_a_directory_may_be_a_path_or_a_url_and_is_made(tmp_path: Path) -> None:
    for url in (f"{tmp_path}/0", f"file://{tmp_path}/1%20one"):
        opened = Store.at(url)
        assert await opened.check() is None
        await opened.put("x", b"x")
    assert sorted(path.parent.name for path in tmp_path.glob("*/x")) == ["0", "1 one"]  # noqa: ASYNC240


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://", "http://["])
def test_a_store_that_cannot_be_is_one_clear_line(url: str) -> None:
    with pytest.raises(StoreUnusable, match=r"^TURNHOLD_STORE: [^\n]*$"):
        Store.at(url)


def test_a_store_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable, match="TURNHOLD_STORE"):
        Store.at(str(tmp_path / "file"))


async def test_a_bucket_that_is_away_may_come_back_and_one_without_rights_will_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "k")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert await Store.at("s3://bucket").check() is not None


@pytest.mark.parametrize(("number", "usable"), [(28, True), (30, True), (5, True), (13, False), (1, False)])
async def test_a_folder_that_is_full_may_have_room_later_and_one_without_rights_will_not(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int, usable: bool
) -> None:
    async def refuse(path: str, data: bytes) -> None:
        raise StoreFailed(f"Generic LocalFileSystem error: {os.strerror(number)} (os error {number})")

    monkeypatch.setattr(store, "put", refuse)
    if usable:
        assert os.strerror(number) in (await store.check() or "")
    else:
        with pytest.raises(StoreUnusable, match=os.strerror(number)):
            await store.check()


async def test_what_the_store_says_is_one_line_of_bounded_length(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal keeps nothing of a failure that is too large; and it is for people."""

    def refuse(*_: object) -> None:
        raise OSError("<html>\n" * 1_000)

    monkeypatch.setattr("turnhold.store.objects._to_disk", refuse)
    with pytest.raises(StoreFailed, match=r"^<html> [^\n]{400,500}…$"):
        await store.put("a", b"a")


async def test_s82_a_full_store_gets_room_by_what_retention_has_dropped(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(store, "ses_test/run")
    session = Session(store)
    session.world.write("x" * 100)
    seal = SealCall(prefix=folder.prefix, events=tuple(session.world.state.timeline))
    await folder.seal(seal)
    last = session.world.state.last_sequence

    async def full(path: str, data: bytes) -> None:
        raise StoreFailed("no space")

    monkeypatch.setattr(store, "put", full)
    session.world.write("y" * 100)
    later = tuple(session.world.state.timeline[last:])
    with pytest.raises(StoreFailed):
        await folder.seal(seal.but(events=later, retained_after=last))
    assert await store.listing("ses_test/run/events") == []


async def test_a_folder_that_went_away_fails_and_is_not_empty(store: Store, tmp_path: Path) -> None:
    """A volume that is not mounted any more looks like a folder with nothing in it."""
    await store.put("a/1", b"1")
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    (tmp_path / "store").mkdir()
    with pytest.raises(StoreFailed):
        await store.get("a/2")
    with pytest.raises(StoreFailed):
        await store.put("a/2", b"2")
    (tmp_path / "store").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    assert await store.get("a/1") == b"1"


# --- a Session's folder and the tail --------------------------------------------------------------


class Session:
    """A Session whose store is real, and everything that ever stood in its timeline."""

    def __init__(self, store: Store) -> None:
        self.world = running()
        self.world.store_works = False
        self.world.state.prefix = "ses_test/run"
        self.archive = Archive(store)
        self.events: list[EventView] = []
        self._folder = Folder(store, "ses_test/run")

    async def do(self, act: str) -> None:
        """One thing that happens; `note` it before it may leave the state."""
        world = self.world
        if act.isdigit():
            world.write(act * int(act) * 10)
        elif act == "turn" and world.state.running is not None:
            world.enqueue()
            world.end(result=act * 20)
        elif act == "seal":
            await self.seal()
        elif act == "unheard" and (found := self.seals()):
            await self._folder.seal(calls.seal(world.state, found[0]))
        self.note()

    async def seal(self) -> None:
        self.note()
        while found := self.seals():
            await self._folder.seal(calls.seal(self.world.state, found[0]))
            self.world.machine.step_done(found[0].id, self.world.now)
            self.note()

    async def set_aside(self) -> None:
        while found := [s for s in self.world.machine.outstanding() if isinstance(s, steps.SetAside)]:
            await self._folder.set_aside(calls.set_aside(self.world.state, found[0]))
            self.world.machine.step_done(found[0].id, self.world.now)

    def seals(self) -> list[steps.Seal]:
        return [step for step in self.world.machine.outstanding() if isinstance(step, steps.Seal)]

    def note(self) -> None:
        state = self.world.state
        new = state.timeline[len(self.events) - state.tail_after :]
        self.events += [timeline.view(state.id, event) for event in new]

    async def read(self, **wanted: object) -> ReadResult:
        request = ReadRequest.model_validate(wanted)
        result = self.world.machine.read(request, self.world.now)
        return await self.archive.complete(request, result)


ACTS = st.lists(st.sampled_from(["1", "3", "9", "turn", "turn", "seal", "unheard"]), min_size=5, max_size=60)


@given(acts=ACTS, data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_s80_s81_tail_and_segments_read_as_one(
    acts: list[str], data: st.DataObject, short_tails: None
) -> None:
    async def all_of_it() -> None:
        with tempfile.TemporaryDirectory() as folder:
            session = Session(Store.at(folder))
            for act in acts:
                await session.do(act)
            await _pages_are_the_timeline(session, data)
            await _turns_are_all_there(session, data)

    asyncio.run(all_of_it())


async def _pages_are_the_timeline(session: Session, data: st.DataObject) -> None:
    last = session.world.state.last_sequence
    assert [event.sequence for event in session.events] == list(range(1, last + 1))
    for _ in range(5):
        after = data.draw(st.integers(0, last))
        through = data.draw(st.none() | st.integers(after, last))
        end = last if through is None else through
        limit = data.draw(st.integers(1, 20))
        kinds = data.draw(st.sampled_from([(), ("turn.output",), ("turn.queued", "turn.completed"), ("no",)]))
        turn = data.draw(st.none() | st.integers(1, session.world.state.turns_admitted))
        turn_id = None if turn is None else session.world.state.turn_id(turn)
        wanted = [
            event
            for event in session.events
            if after < event.sequence <= end
            and (not kinds or event.kind in kinds)
            and turn_id in (None, event.turn_id)
        ]
        request = PageRequest(after=after, through=through, limit=limit, kinds=kinds, turn_id=turn_id)
        page = (await session.read(pages=[request])).pages[0]
        assert list(page.records) == wanted[:limit], "S-81: exactly these, once, in order"
        assert page.has_more == (len(wanted) > limit)
        assert page.next_after == (wanted[:limit][-1].sequence if wanted else after)


async def _turns_are_all_there(session: Session, data: st.DataObject) -> None:
    state = session.world.state
    after = data.draw(st.integers(0, state.turns_admitted))
    limit = data.draw(st.integers(1, 10))
    status = data.draw(st.sampled_from([None, "completed", "queued"]))
    request = TurnsRequest(after=after, limit=limit, status=status)
    turn_ids = [state.turn_id(number) for number in range(1, state.turns_admitted + 1)]
    result = await session.read(turns=[request], turn_ids=turn_ids)
    ended = [event.turn_id for event in session.events if event.kind == "turn.completed"]
    assert set(result.turns_by_id) == set(turn_ids)
    assert [t for t in turn_ids if result.turns_by_id[t].status == "completed"] == ended
    wanted = [turn_id for turn_id in turn_ids[after:] if status in (None, result.turns_by_id[turn_id].status)]
    assert [turn.id for turn in result.turns[0]] == wanted[:limit]
    for turn_id, turn in result.turns_by_id.items():
        first, last = result.extents[turn_id]
        of_turn = [event for event in session.events if event.turn_id == turn_id]
        assert of_turn[0].sequence == first
        assert of_turn[-1].sequence == last or turn.status in ("queued", "running")


async def test_s80_what_was_sealed_and_is_gone_is_an_error_and_no_gap(
    store: Store, short_tails: None
) -> None:
    session = Session(store)
    for _ in range(10):
        await session.do("9")
        await session.do("seal")
    assert session.world.state.tail_after > 0
    for found in (await store.listing("ses_test/run/events"))[:1]:
        await store.delete([found.path])
    with pytest.raises(Missing):
        await Session.read(session, pages=[PageRequest()])


async def test_s83_a_closed_session_is_read_from_its_last_record(store: Store) -> None:
    session = Session(store)
    session.world.write("said")
    session.world.cancel()
    session.world.settle(steps.StopProcess)
    await session.seal()
    assert session.world.machine.finished
    record = await session.archive.record("ses_test/run")
    assert record is not None
    turn_id = record.turn_id(1)
    request = ReadRequest(pages=(PageRequest(),), turns=(TurnsRequest(),), turn_ids=(turn_id,))
    result = await session.archive.complete(request, Machine(record).read(request, session.world.now))
    assert result.session.status == "closed"
    assert list(result.pages[0].records) == session.events
    assert result.turns[0][0].status == result.turns_by_id[turn_id].status == "cancelled"
    assert await session.archive.record("ses_test/other") is None


async def test_s95_an_input_that_was_set_aside_reads_as_if_it_had_not(store: Store) -> None:
    session = Session(store)
    world = session.world
    given = {world.state.turn_id(number): f"{number}ä" * 60_000 for number in range(2, 6)}
    for text in given.values():
        world.enqueue(text)
        await session.set_aside()
    away = [turn.sequence for turn in world.state.turns.values() if turn.input_away]
    assert away == [3, 4, 5]

    async def shown() -> dict[str, str]:
        result = await session.read(turn_ids=tuple(given))
        return {turn_id: text_of(turn.input or ()) for turn_id, turn in result.turns_by_id.items()}

    assert await shown() == given, "queued"
    world.cancel()
    world.settle(steps.StopProcess)
    assert await shown() == given, "cancelled"
    await session.seal()
    assert await shown() == given, "sealed"
    record = await session.archive.record("ses_test/run")
    assert record is not None
    request = ReadRequest(turn_ids=tuple(given))
    result = await session.archive.complete(request, Machine(record).read(request, world.now))
    assert {turn_id: text_of(turn.input or ()) for turn_id, turn in result.turns_by_id.items()} == given


async def test_s82_an_input_is_removed_with_its_turn(store: Store) -> None:
    folder = Folder(store, "ses_test/run")
    inputs = tuple(
        WaitingInput(sequence=number, content=(TextPart(text=f"{number}"),)) for number in range(1, 31)
    )
    await folder.set_aside(SetAsideCall(prefix=folder.prefix, inputs=inputs))
    assert text_of(await folder.input(9)) == "9"
    await folder.seal(SealCall(prefix=folder.prefix, turns_retained_after=9))
    assert len(await store.listing("ses_test/run/inputs")) == 21
    assert text_of(await folder.input(10)) == "10"
    with pytest.raises(Missing):
        await Folder(Store(store._objects), folder.prefix).input(9)  # pyright: ignore[reportPrivateUsage]
