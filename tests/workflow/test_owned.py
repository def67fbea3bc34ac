"""Owned Sessions as child workflows: roll-overs, ends from outside, taken IDs."""

import uuid
from datetime import timedelta

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.testing import WorkflowEnvironment

from tests.harness import poll
from tests.workflow.spawning import Handle, answered, ask, hold, holds, resume, running, running_turn, spawn
from tests.workflow.stub_host import WAITS, StubHost, events, read
from tests.workflow.versioned import Shop
from turnhold.session import limits
from turnhold.session.values import Origin
from turnhold.session.views import TurnsRequest
from turnhold.temporal import creation


async def how(handle: Handle) -> str | None:
    return (await read(handle)).session.closed_how


async def kinds(handle: Handle) -> list[str]:
    return [event.kind for event in await events(handle)]


async def test_s70_an_owned_session_is_a_child_and_an_independent_one_is_not(
    real: Client, task_queue: str
) -> None:
    async with StubHost().serve(real, task_queue):
        root = await running(real, task_queue)
        child = await spawn(real, root, "owned", "hello")
        independent = await spawn(real, root, "alone", independent=True)
        described = await child.describe()
        assert (described.parent_id, described.root_id) == (root.id, root.id)
        attributes = described.typed_search_attributes
        assert attributes.get(creation.PARENT) == root.id
        assert attributes.get(creation.ROOT) == root.id
        assert await described.static_summary() == "script"
        timeout = described.raw_description.execution_config.default_workflow_task_timeout
        assert timeout.ToTimedelta() == timedelta(seconds=creation.TASK_SECONDS)
        session = (await read(child)).session
        assert (session.parent_id, session.root_id) == (root.id, root.id)
        (turn,) = (await read(child, turns=(TurnsRequest(limit=1),))).turns[0]
        assert turn.origin == Origin(kind="session", id=root.id)
        alone = await independent.describe()
        assert alone.parent_id is None
        assert alone.typed_search_attributes.get(creation.PARENT) is None
        assert (await read(independent)).session.root_id == independent.id
        await root.signal("cancel")
        await child.result()
        assert await how(child) == "cancel"
        assert await how(independent) is None
        await independent.signal("cancel")


async def test_s4_s70_an_owned_session_stays_with_its_owner_and_an_independent_one_is_current(
    real: Client, task_queue: str
) -> None:
    shop = Shop(real, task_queue)
    async with shop.worker("v1", StubHost()), shop.worker("v2", StubHost()):
        await shop.promote("v1")
        root = await running(real, task_queue)
        await shop.promote("v2")
        child = await spawn(real, root, "owned")
        independent = await spawn(real, root, "alone", independent=True)
        assert await shop.runs_of(root.id) == [f"{shop.name}:v1"]
        deployments = [(await read(handle)).session.deployment for handle in (root, child, independent)]
        assert deployments == [f"{shop.name}:{build}" for build in ("v1", "v1", "v2")]
        await root.signal("cancel")
        await independent.signal("cancel")
        await child.result()


async def test_s71_the_cascade_is_complete_through_roll_overs_of_all(real: Client, task_queue: str) -> None:
    """Owner and owned continue as new again and again, starts and signals under way."""
    async with StubHost().serve(real, task_queue):
        root = await running(real, task_queue, events_per_run=25)
        requests = [await ask(root, str(number), WAITS) for number in range(4)]
        spawned = [(await answered(root, request_id)).spawned_id or "" for request_id in requests]
        children = [real.get_workflow_handle(session_id) for session_id in spawned]
        assert len(set(spawned)) == 4
        first_runs = [(await handle.describe()).run_id for handle in (root, *children)]
        placed = [await hold(root) for _ in range(3)]
        for _ in range(7):
            assert await resume(root, placed.pop(0)) is None
            placed.append(await hold(root))

        async def all_hold(expected: set[str]) -> bool:
            return all([set(await holds(child)) == expected for child in children])

        await poll(lambda: all_hold(set(placed)), what="the same holds everywhere")
        for hold_id in placed:
            assert await resume(root, hold_id) is None
        await poll(lambda: all_hold(set()), what="no holds anywhere")
        last_runs = [(await handle.describe()).run_id for handle in (root, *children)]
        assert not set(first_runs) & set(last_runs), "everybody has continued as new"
        for child in children:
            assert (await kinds(child)).count("session.resume") == 10
        await root.signal("close")
        await root.result()
        for child in children:
            await child.result()
            assert await how(child) == "close"
        closed = [e.data["session_id"] for e in await events(root) if e.kind == "owned.closed"]
        assert sorted(map(str, closed)) == sorted(spawned)


async def test_s2_s70_a_taken_session_key_refuses_the_spawn(real: Client, task_queue: str) -> None:
    async with StubHost().serve(real, task_queue):
        first, second = [await running(real, task_queue) for _ in range(2)]
        key = f"name-{uuid.uuid4()}"
        owned = await spawn(real, first, "a", session_key=key)
        for independent in (False, True):
            receipt = await answered(
                second, await ask(second, f"b{independent}", session_key=key, independent=independent)
            )
            assert receipt.rejection is not None
            assert (receipt.rejection.code, receipt.rejection.session_id) == (
                "session_key_conflict",
                owned.id,
            )
        assert (await spawn(real, first, "a", session_key=key)).id == owned.id
        await second.signal("cancel")
        await second.result()
        assert (await owned.describe()).status == WorkflowExecutionStatus.RUNNING
        await first.signal("cancel")
        await owned.result()


async def test_s75_s90_temporals_cancel_of_a_root_reaches_its_tree(real: Client, task_queue: str) -> None:
    async with StubHost().serve(real, task_queue):
        root = await running(real, task_queue)
        child = await spawn(real, root, "c", WAITS)
        await root.cancel()
        await root.result()
        await child.result()
        assert await how(child) == "cancel"


async def test_s75_a_terminated_child_is_noticed_at_once_and_the_close_goes_on(
    real: Client, task_queue: str
) -> None:
    async with StubHost().serve(real, task_queue):
        root = await running(real, task_queue)
        child = await spawn(real, root, "c", WAITS)
        await root.signal("close")
        await root.signal("interrupt", {"turn_id": await running_turn(root)})
        await child.terminate("by hand")
        await root.result()
        (closed,) = [e for e in await events(root) if e.kind == "owned.closed"]
        assert closed.data == {"session_id": child.id, "how": "terminated"}


async def test_s75_a_signal_that_finds_nobody_says_that_the_child_is_gone(
    real: Client, task_queue: str
) -> None:
    """After a roll-over Temporal tells nothing: the next snapshot does."""
    async with StubHost().serve(real, task_queue):
        root = await running(real, task_queue, events_per_run=25)
        child = await spawn(real, root, "c")
        run = (await root.describe()).run_id
        while (await root.describe()).run_id == run:
            await root.signal("resume", {"hold_id": await hold(root)})
        await child.terminate("by hand")
        await root.signal("close")
        await root.result()
        closed = [e.data["how"] for e in await events(root) if e.kind == "owned.closed"]
        assert closed == ["terminated"]


async def test_s75_a_terminated_child_is_looked_for_when_nobody_tells(
    real: Client, task_queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a roll-over, by an owner that does nothing: here every second instead of every 90."""
    assert limits.LOOK_FOR_OWNED_SECONDS < 100, "within two minutes"
    monkeypatch.setattr(limits, "LOOK_FOR_OWNED_SECONDS", 1.0)
    async with StubHost().serve(real, task_queue):
        root = await running(real, task_queue, events_per_run=25)
        child, kept = [await spawn(real, root, key) for key in ("c", "kept")]
        run = (await root.describe()).run_id
        while (await root.describe()).run_id == run:
            await root.signal("resume", {"hold_id": await hold(root)})
        await child.terminate("by hand")
        await poll(lambda: _has(root, "owned.closed"), what="owned.closed")
        closed = [e.data for e in await events(root) if e.kind == "owned.closed"]
        assert closed == [{"session_id": child.id, "how": "terminated"}]
        await root.signal("cancel")
        await kept.result()


async def _has(handle: Handle, kind: str) -> bool:
    return kind in await kinds(handle)


async def test_s75_a_held_child_notices_that_its_owner_is_gone(
    skipping: WorkflowEnvironment, task_queue: str
) -> None:
    client = skipping.client
    async with StubHost().serve(client, task_queue):
        root = await running(client, task_queue)
        child = await spawn(client, root, "c")
        hold_id = await hold(root)
        await poll(lambda: holds(child), what="the hold below")
        assert await resume(child, hold_id) == "hold_owned_by_ancestor"
        assert await holds(child) == {hold_id: False}
        await root.terminate("by hand")
        await skipping.sleep(timedelta(seconds=120))
        assert await holds(child) == {hold_id: True}
        assert await resume(child, hold_id) is None
        assert await holds(child) == {}
        await child.signal("cancel")
        await child.result()


async def test_s52_s75_the_first_release_below_an_owner_that_is_gone_succeeds(
    real: Client, task_queue: str
) -> None:
    async with StubHost().serve(real, task_queue):
        root = await running(real, task_queue)
        child = await spawn(real, root, "c", WAITS)
        hold_id = await hold(root)
        await poll(lambda: holds(child), what="the hold below")
        await root.terminate("by hand")
        assert await resume(child, hold_id) is None
        await child.signal("enqueue", {"input": "on"})
        await poll(lambda: _said(child, "on"), what="a Turn after the release")
        assert (await child.describe()).status == WorkflowExecutionStatus.RUNNING
        await child.signal("close")
        await child.result()


async def _said(handle: Handle, text: str) -> bool:
    return any(text in str(e.data) for e in await events(handle) if e.kind == "turn.output")


async def test_s91_signals_between_sessions_that_make_no_sense_change_nothing(
    real: Client, task_queue: str
) -> None:
    async with StubHost().serve(real, task_queue):
        root = await running(real, task_queue)
        child = await spawn(real, root, "c")
        before = await kinds(child)
        for name in ("spawn", "owner_state", "owned", "report"):
            for payload in (None, 7, {"owner_id": 3}, {"owner_id": "ses_stranger", "version": 99}):
                await child.signal(name, payload)
        await child.signal("owner_state", {"owner_id": root.id, "version": 0, "mode": "cancel"})
        await root.signal("owned", {"session_id": "ses_stranger", "closed_how": "close"})
        assert await kinds(child) == before
        assert (await read(root)).session.status == "open"
        await root.signal("cancel")
        await child.result()
