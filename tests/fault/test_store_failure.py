"""Stores that fail under real workers: what still works meanwhile, and that Sessions go on by themselves."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from tests.bucket import Bucket
from tests.fault.conftest import appended, one_more_worker, temporal
from tests.fault.stores import FailingStore, Full, Hanging, InTheWay, Killed, ReadOnly
from tests.harness import assert_gapless, is_sealed, poll, settled, timeline
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client, Problem
from turnhold.session.values import text_of
from turnhold.session.views import AskView, Cause, EventView

BACK_SECONDS = 35.0
"""Within so long after the store is back, a Session has gone on: the longest pause, and its work."""

FRAGMENTS, SIZE = 600, 2_000


def emitted(count: int) -> str:
    return "".join(f"{number} ".ljust(SIZE, "x") for number in range(1, count + 1))


@dataclass
class Scene:
    """A Session whose store fails while its second Turn streams, and all that it was given.

    `unread` is another one with its Turn, in the store: what has been read once is in the API's memory.
    """

    stack: Stack
    store: FailingStore
    client: Client
    session_id: str = ""
    unread: tuple[str, str] = ("", "")
    turns: list[str] = field(default_factory=list[str])
    following: asyncio.Task[None] | None = None
    followed: list[EventView] = field(default_factory=list[EventView])

    async def enqueue(self, script: str) -> str:
        receipt = await self.client.enqueue(self.session_id, f"append runs {len(self.turns)}\n{script}")
        assert receipt.status == "accepted"
        assert receipt.turn_id is not None
        self.turns.append(receipt.turn_id)
        return receipt.turn_id

    async def follow(self) -> None:
        """See the Session to its end, as one stream."""
        async with aclosing(self.client.stream(self.session_id)) as stream:
            async for item in stream:
                assert isinstance(item, EventView)
                self.followed.append(item)

    async def segments(self) -> int:
        return await self.objects("events", self.session_id)

    async def objects(self, kind: str, session_id: str) -> int:
        return len([p for p in await asyncio.to_thread(self.store.paths, session_id) if f"/{kind}/" in p])

    async def asked(self) -> AskView | None:
        return next(iter(await self.client.asks(self.session_id, status="pending")), None)

    async def failure(self) -> Cause | None:
        """The cause, once it is known what the store says."""
        explanation = await self.client.explain(self.session_id)
        found = [
            c for c in explanation.causes if c.code == "store_unavailable" and self.store.words in c.message
        ]
        return found[0] if found and not explanation.moving else None

    async def finished(self, session_id: str) -> bool:
        """Its workflow has completed, so its last record is written."""
        description = await (await temporal(self.stack)).get_workflow_handle(session_id).describe()
        return description.status == WorkflowExecutionStatus.COMPLETED


@pytest.fixture(params=[ReadOnly, Full, InTheWay, Killed, Hanging])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    """The store works, and has a segment of the Session."""
    with request.param(tmp_path) as store, Stack(Plan(tmp_path / "data", settings=store.settings)) as stack:
        async with Client(stack.api_url) as client:
            made = Scene(stack, store, client)
            made.session_id = (await client.create_session("script")).session.id
            first = await made.enqueue("emit 100 2000")
            await settled(client, made.session_id, first)
            other = await client.create_session("script", input="emit 100 2000")
            assert other.turn is not None
            made.unread = (other.session.id, other.turn.id)
            await poll(made.segments, what="a segment")
            await poll(lambda: made.objects("events", other.session.id), what="a segment of the other")
            await poll(lambda: is_sealed(client, other.session.id), what="no more of the other in its state")
            following = made.following = asyncio.create_task(made.follow())
            yield made
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def test_s83_s94_sessions_outlive_a_store_that_fails(scene: Scene) -> None:
    client, session_id = scene.client, scene.session_id
    before = await scene.segments()
    long = await scene.enqueue(f"emit {FRAGMENTS} {SIZE} 5\nask who?")
    waiting = await scene.enqueue("say later")

    async def seals() -> bool:
        return await scene.segments() > before

    await poll(seals, what="another segment, while the Turn streams")
    scene.store.fail(session_id, scene.unread[0])
    ask = await poll(scene.asked, what="the question at the end of all output")
    assert (await client.answer(session_id, ask.turn_id, ask.id, text="me")).status == "accepted"

    cause = await poll(scene.failure, deadline=60, what="a cause")
    assert (cause.turn_id, cause.clear) == (waiting, None)
    assert cause.since is not None
    await reads_that_need_it(scene)
    await scene.enqueue("say small")
    held = await client.interrupt(session_id)
    await client.resume(session_id, held.hold_id or "")
    other = await a_session_with_room(scene)
    assert (await client.close(session_id)).session_status == "closing"
    for turn_id in scene.turns[2:]:
        assert (await client.turn(session_id, turn_id)).status == "queued"

    scene.store.mend()  # a server is started from the main thread, with which it ends
    mended = time.monotonic()
    assert scene.following is not None
    await asyncio.wait_for(scene.following, BACK_SECONDS)
    print(f"\n{type(scene.store).__name__}: went on within {time.monotonic() - mended:.1f} s")
    for done in (session_id, other):
        await poll(lambda done=done: scene.finished(done), deadline=BACK_SECONDS, what="its last record")
    events = await timeline(client, session_id)
    assert_gapless(events)
    assert events == scene.followed
    assert events[-1].kind == "session.closed"
    assert text_of((await client.turn(session_id, long)).output or ()) == emitted(FRAGMENTS) + "answer: me\n"
    ran = Counter(event.turn_id for event in events if event.kind in ("turn.running", "turn.completed"))
    assert ran == dict.fromkeys(scene.turns, 2)
    assert sorted(appended(scene.stack, "runs")) == sorted(["other", *map(str, range(len(scene.turns)))])
    assert not [path for path in scene.store.paths(session_id) if "#" in path], "nothing half written is left"


async def reads_that_need_it(scene: Scene) -> None:
    """What is in the store alone is a problem that says so, or is read where the store can be read."""
    client = scene.client
    reads = (lambda: client.events(scene.unread[0]), lambda: client.turn(*scene.unread))
    for read in reads:
        if scene.store.readable:
            await read()
            continue
        with pytest.raises(Problem) as away:
            await read()
        assert (away.value.status, away.value.code) == (503, "storage_unavailable")
        assert away.value.retry_after
    assert (await client.session(scene.session_id)).queued_turns


async def a_session_with_room(scene: Scene) -> str:
    """Another Session that needs no store, to its end: it runs, is interrupted and closed."""
    client = scene.client
    made = await client.create_session("script", input="sleep 60")
    session_id = made.session.id
    assert made.turn is not None

    async def runs() -> bool:
        return (await client.session(session_id)).running_turn_id is not None

    await poll(runs, what="a running Turn")
    await client.interrupt_turn(session_id, made.turn.id)
    assert (await settled(client, session_id, made.turn.id)).status == "interrupted"
    after = await client.enqueue(session_id, "append runs other")
    assert (await settled(client, session_id, after.turn_id or "")).status == "completed"
    await client.close(session_id)

    async def closed() -> bool:
        return (await client.session(session_id)).status == "closed"

    await poll(closed, what="the close")
    assert (await timeline(client, session_id))[-1].kind == "session.closed"
    return session_id


async def test_s83_a_bucket_that_is_away_from_the_start_takes_all_once_it_is_there(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    with Stack(Plan(tmp_path / "data", settings=bucket.settings)) as stack:
        async with Client(stack.api_url) as client:
            session_id = (await client.create_session("script")).session.id
            inputs = (f"append runs 0\nemit {FRAGMENTS} {SIZE}", "append runs 1")
            first, second = [(await client.enqueue(session_id, text)).turn_id or "" for text in inputs]
            assert (await settled(client, session_id, first)).status == "completed"

            async def refused() -> bool:
                causes = (await client.explain(session_id)).causes
                return any("error sending request" in c.message for c in causes if c.turn_id == second)

            await poll(refused, what="a cause")
            assert_gapless(await timeline(client, session_id))
            server = bucket.make()
            try:
                assert (
                    await settled(client, session_id, second, deadline=BACK_SECONDS)
                ).status == "completed"
                assert_gapless(await timeline(client, session_id))
                output = (await client.turn(session_id, first)).output
                assert text_of(output or ()) == emitted(FRAGMENTS)
            finally:
                stack.stop()
                server.kill()
    assert appended(stack, "runs") == ["0", "1"]


@pytest.mark.parametrize("kind", [ReadOnly, Full])
async def test_s94_workers_and_api_start_while_the_store_fails(
    kind: type[FailingStore], tmp_path: Path
) -> None:
    """A store that once was one: what starts now serves all that needs none, and says why the rest waits."""
    with kind(tmp_path) as store, Stack(Plan(tmp_path / "data", settings=store.settings)) as stack:
        if isinstance(store, Full):
            store.fill_up()
        store.fail("")
        stack.workers.pop().stop()
        assert stack.api is not None
        stack.api.stop()
        worker = await one_more_worker(stack)
        api = stack.start_api()
        async with Client(stack.api_url) as client:
            made = await poll(lambda: client.create_session("script", input="say hello"))
            assert made.turn is not None
            assert (await settled(client, made.session.id, made.turn.id)).status == "completed"
        assert all(store.words in part.output() for part in (worker, api))
