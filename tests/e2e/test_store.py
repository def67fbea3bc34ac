"""Sessions whose past is in the store: a directory, and a bucket behind an S3 endpoint."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.bucket import Bucket
from tests.harness import assert_gapless, is_sealed, poll, settled, timeline
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client, Gap, Problem
from turnhold.session import limits
from turnhold.session.values import text_of
from turnhold.session.views import Cause, EventView, TurnView


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A bucket on an S3 server of our own; the settings that lead there."""
    made = Bucket(tmp_path_factory.mktemp("moto"))
    server = made.make()
    yield made.settings
    server.stop()


@pytest.fixture(scope="module", params=["directory", "s3"])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    settings = {} if request.param == "directory" else request.getfixturevalue("bucket")
    with Stack(Plan(tmp_path_factory.mktemp(request.param), settings=settings)) as running:
        yield running


@pytest.fixture(scope="module")
async def client(stack: Stack) -> AsyncIterator[Client]:
    async with Client(stack.api_url) as opened:
        yield opened


async def written(client: Client, count: int, size: int) -> tuple[str, str]:
    """A Session with one Turn that wrote so many fragments of so many bytes, and the Turn's ID."""
    made = await client.create_session("script", input=f"emit {count} {size}")
    assert made.turn is not None
    turn = await settled(client, made.session.id, made.turn.id, deadline=90)
    assert turn.status == "completed"
    return made.session.id, made.turn.id


def emitted(count: int, size: int) -> str:
    return "".join(f"{number} ".ljust(size, "x")[:size] for number in range(1, count + 1))


async def test_s15_s80_output_that_left_the_state_reads_as_if_it_had_not(client: Client) -> None:
    session_id, turn_id = await written(client, 600, 2_000)
    events = await timeline(client, session_id)
    assert_gapless(events)
    output = [event for event in events if event.kind == "turn.output"]
    said = "".join(part["text"] for event in output for part in event.data["content"])  # type: ignore[index]
    turn = await client.turn(session_id, turn_id)
    assert said == emitted(600, 2_000)
    assert text_of(turn.output or ()) == said
    assert turn.output_bytes == 1_200_000
    after = await client.events(session_id, after=output[2].sequence, limit=3)
    assert after.records == tuple(events[output[2].sequence : output[2].sequence + 3])
    filtered = await client.events(session_id, kinds=["turn.queued", "turn.completed"])
    assert [event.kind for event in filtered.records] == ["turn.queued", "turn.completed"]
    assert not filtered.has_more


async def cut_and_rejoin(client: Client, session_id: str, cuts: int, last: int) -> list[EventView]:
    """The timeline by streams, each cut after a random number of events and rejoined after the last."""
    chance = random.Random(cuts)
    lengths = [chance.randint(1, max(2 * last // cuts, 1)) for _ in range(cuts)]
    seen: list[EventView] = []
    for length in [*lengths, last]:
        position = seen[-1].sequence if seen else 0
        if position >= last:
            break
        async with aclosing(client.stream(session_id, after=position)) as stream:
            async for item in stream:
                assert isinstance(item, EventView)
                seen.append(item)
                length -= 1
                if not length or item.sequence >= last:
                    break
    return seen


async def test_s81_a_stream_across_segments_cut_at_random_is_the_timeline_in_pages(client: Client) -> None:
    session_id = (await client.create_session("script")).session.id
    for number in range(15):
        receipt = await client.enqueue(session_id, f"emit 20 {number * 100 + 100} 2")
        assert receipt.turn_id is not None
        await settled(client, session_id, receipt.turn_id)
    events = await timeline(client, session_id)
    seen = await cut_and_rejoin(client, session_id, 12, len(events))
    assert seen == events


async def test_s83_s92_a_closed_session_needs_no_worker_to_be_read(stack: Stack, client: Client) -> None:
    session_id, turn_id = await written(client, 200, 2_000)
    asked = await client.enqueue(session_id, 'ask who?\nreturn {"n": 1}', idempotency_key="asked")
    ask = (await poll(lambda: client.asks(session_id, status="pending"), what="a question"))[0]
    answered = await client.answer(session_id, ask.turn_id, ask.id, text="me", response_id="r-1")
    await settled(client, session_id, asked.turn_id or "")
    await client.close(session_id)
    live = (await client.create_session("script", input="say living")).session.id
    before = {
        "session": await poll(lambda: _closed(client, session_id)),
        "events": await timeline(client, session_id),
        "turns": (await client.list_turns(session_id)).turns,
        "turn": await client.turn(session_id, turn_id),
        "asks": await client.asks(session_id),
    }
    for worker in stack.workers:
        worker.stop()
    try:
        assert before["session"] == await client.session(session_id)
        assert before["events"] == await timeline(client, session_id)
        assert before["turns"] == (await client.list_turns(session_id)).turns
        assert before["turn"] == await client.turn(session_id, turn_id)
        assert before["asks"] == await client.asks(session_id)
        assert [a.status for a in await client.asks(session_id, turn_id=asked.turn_id)] == ["answered"]
        async with aclosing(client.stream(session_id)) as stream:
            assert [item async for item in stream] == before["events"]
        again = await client.enqueue(session_id, 'ask who?\nreturn {"n": 1}', idempotency_key="asked")
        assert again == asked.but(replay=True)
        repeated = await client.answer(session_id, ask.turn_id, ask.id, text="me", response_id="r-1")
        assert repeated == answered.but(replay=True)
        assert (await client.receipt(session_id, asked.request_id)).turn_id == asked.turn_id
        with pytest.raises(Problem, match="closed") as refused:
            await client.enqueue(session_id, "say late")
        assert refused.value.code == "session_closed"
        assert (await client.close(session_id)).session_status == "closed"
        began = time.monotonic()
        with pytest.raises(Problem) as away:
            await client.session(live)
        assert away.value.code == "worker_unavailable"
        assert time.monotonic() - began < 2.5
    finally:
        stack.workers.clear()
        stack.start_worker()
        await poll(lambda: client.session(live))


async def _closed(client: Client, session_id: str) -> object:
    session = await client.session(session_id)
    return session if session.status == "closed" and session.process.status == "none" else None


async def test_s81_s82_of_a_session_with_retention_a_late_reader_gets_the_gap_and_then_all(
    stack: Stack, client: Client
) -> None:
    made = await client.create_session("script", config={"retain_events": 1_000})
    session_id = made.session.id
    assert made.session.config.retain_events == 1_000
    first = await client.enqueue(session_id, "say first")
    for wave in range(4):
        receipts = [await client.enqueue(session_id, f"say {wave} {'x' * 300}") for _ in range(150)]
        await settled(client, session_id, receipts[-1].turn_id or "", deadline=90)
    session = await client.session(session_id)
    boundary, last = session.retained_after, session.last_event_sequence
    assert last > 2_400
    assert 0 < boundary <= last - 1_000
    assert boundary >= last - 2_000, "what is kept beyond what was asked for is a segment and the tail"
    async with aclosing(client.stream(session_id)) as stream:
        gap = await anext(stream)
        assert gap == Gap(retained_after=boundary)
        seen = [await anext(stream) for _ in range(last - boundary)]
    assert [event.sequence for event in seen if isinstance(event, EventView)] == list(
        range(boundary + 1, last + 1)
    )
    page = await client.events(session_id, limit=5)
    assert page.retained_after == boundary
    assert [record.sequence for record in page.records] == list(range(boundary + 1, boundary + 6))
    turns = (await client.list_turns(session_id, limit=1)).turns
    assert turns[0].sequence > 1
    with pytest.raises(Problem) as gone:
        await client.turn(session_id, first.turn_id or "")
    assert gone.value.code == "turn_not_found"
    if stack.store.exists():
        kept = await poll(
            lambda: asyncio.to_thread(_only_retained, stack.store, session_id, boundary), what="the removal"
        )
        assert kept


def _only_retained(folder: Path, session_id: str, boundary: int) -> bool:
    names = [path.name for path in _segments(folder, session_id)]
    return bool(names) and all(int(name.split("-")[0]) > boundary for name in names)


async def test_s83_s94_a_store_that_fails_is_said_openly_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Stack(Plan(tmp_path / "data", settings={"TURNHOLD_STORE": str(folder)})) as broken:
        async with Client(broken.api_url) as client:
            first = await client.create_session("script", input="emit 100 2000")
            assert first.turn is not None
            session_id, old = first.session.id, first.turn.id
            await poll(lambda: _idle(client, session_id), what="the first Turn's end")
            await poll(lambda: asyncio.to_thread(_segments, folder, session_id), what="a segment")
            await poll(lambda: is_sealed(client, session_id), what="no more of it in the state")
            folder.rename(tmp_path / "aside")
            folder.write_text("no folder")
            made = await client.enqueue(session_id, "emit 300 2000")
            await settled(client, session_id, made.turn_id or "", deadline=60)
            waiting = await client.enqueue(session_id, "say later")
            cause = await poll(lambda: _store_failure(client, session_id), what="a cause")
            assert str(folder) in cause.message
            assert cause.turn_id == waiting.turn_id
            assert cause.since is not None
            with pytest.raises(Problem) as away:
                await client.events(session_id)
            assert (away.value.status, away.value.code) == (503, "storage_unavailable")
            assert away.value.retry_after
            held = await client.interrupt(session_id)
            await client.resume(session_id, held.hold_id or "")
            assert (await client.turn(session_id, waiting.turn_id or "")).status == "queued"
            folder.unlink()
            (tmp_path / "aside").rename(folder)
            await settled(client, session_id, waiting.turn_id or "", deadline=60)
            assert "store_unavailable" not in [c.code for c in (await client.explain(session_id)).causes]
            assert_gapless(await timeline(client, session_id))
            assert text_of((await client.turn(session_id, old)).output or ()) == emitted(100, 2_000)
            again = await client.turn(session_id, made.turn_id or "")
            assert text_of(again.output or ()) == emitted(300, 2_000)


LARGE = 200 * 1024
WAITING = 40


def large(number: int) -> str:
    """A script of 200 KiB that writes as much; the rest of it is a line of blanks."""
    return f"say {number}\nemit 100 2048\n".ljust(LARGE)


async def _enqueued(client: Client, session_id: str, text: str) -> str:
    """Enqueue as soon as the Session takes it."""
    while True:
        try:
            receipt = await client.enqueue(session_id, text)
        except Problem as problem:
            if problem.code != "session_busy":
                raise
            await asyncio.sleep(problem.retry_after or 0)
        else:
            return receipt.turn_id or ""


async def _least_headroom(client: Client, session_id: str) -> int:
    """The least that was ever left of the state, until this is cancelled."""
    least = limits.CARRIED_BYTES
    try:
        while True:
            with contextlib.suppress(Problem):  # a busy worker is looked at again
                headroom = (await client.session(session_id)).headroom
                least = min(least, headroom.state_bytes if headroom else least)
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        return least


async def test_s10_s95_a_queue_larger_than_any_state_is_taken_run_and_read(client: Client) -> None:
    session_id = (await client.create_session("script", input="sleep 5")).session.id
    watching = asyncio.create_task(_least_headroom(client, session_id))
    given = [large(number) for number in range(WAITING)]
    turn_ids = [await _enqueued(client, session_id, text) for text in given]
    for turn_id, text in zip(turn_ids[-5:], given[-5:], strict=True):
        assert text_of((await _turn(client, session_id, turn_id)).input or ()) == text, "while it waits"
    await settled(client, session_id, turn_ids[-1], deadline=120)
    watching.cancel()
    assert await watching > 0
    said = [event.turn_id for event in await timeline(client, session_id) if event.kind == "turn.running"]
    assert said[1:] == turn_ids
    await _all_read(client, session_id, turn_ids, given)
    await client.close(session_id)
    await poll(lambda: _closed(client, session_id))
    await _all_read(client, session_id, turn_ids, given)


async def _turn(client: Client, session_id: str, turn_id: str) -> TurnView:
    """Of a Session whose worker may be busy for more than two seconds with what all these inputs bring."""

    async def answered() -> TurnView | None:
        try:
            return await client.turn(session_id, turn_id)
        except Problem as problem:
            if problem.code != "worker_unavailable":
                raise
            return None

    return await poll(answered)


async def _all_read(client: Client, session_id: str, turn_ids: list[str], given: list[str]) -> None:
    for number, turn_id in enumerate(turn_ids):
        turn = await _turn(client, session_id, turn_id)
        assert turn.status == "completed"
        assert text_of(turn.input or ()) == given[number]
        assert text_of(turn.output or ()) == f"{number}\n{emitted(100, 2048)}"


async def test_s94_s95_inputs_wait_for_a_store_that_is_away_and_are_not_lost(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Stack(Plan(tmp_path / "data", settings={"TURNHOLD_STORE": str(folder)})) as broken:
        async with Client(broken.api_url) as client:
            session_id = (await client.create_session("script", input="sleep 2")).session.id
            given = [f"say {number}".ljust(LARGE) for number in range(4)]
            turn_ids = [await _enqueued(client, session_id, text) for text in given]
            await poll(lambda: len(list(folder.glob("*/*/inputs/*"))) >= 2, what="inputs in the store")
            folder.rename(tmp_path / "away")
            folder.write_text("no folder")
            cause = await poll(lambda: _store_failure(client, session_id), deadline=60, what="a cause")
            assert str(folder) in cause.message
            with pytest.raises(Problem, match="waits"):
                await asyncio.gather(*(client.enqueue(session_id, given[0]) for _ in range(8)))
            folder.unlink()
            (tmp_path / "away").rename(folder)
            await settled(client, session_id, turn_ids[-1], deadline=90)
            for turn_id, text in zip(turn_ids, given, strict=True):
                turn = await client.turn(session_id, turn_id)
                assert (turn.status, text_of(turn.input or ())) == ("completed", text)


async def _idle(client: Client, session_id: str) -> bool:
    """Whether no Turn is left to be done; asked without reading what any has written."""
    session = await client.session(session_id)
    return session.running_turn_id is None and not session.queued_turns


def _segments(folder: Path, session_id: str) -> list[Path]:
    return list(folder.glob(f"{session_id}/*/events/*"))


async def _store_failure(client: Client, session_id: str) -> Cause | None:
    """The cause, once it is known what the store answers."""
    explanation = await client.explain(session_id)
    found = [
        c for c in explanation.causes if c.code == "store_unavailable" and "The store does not" in c.message
    ]
    return found[0] if found and not explanation.moving else None
