"""The Session workflow under skipped time."""

from datetime import timedelta
from itertools import pairwise

from temporalio.testing import WorkflowEnvironment

from tests.workflow.stub_host import StubHost, events, read, start, until_idle
from turnhold.session import commands


async def kinds(handle: object) -> list[str]:
    return [event.kind for event in await events(handle)]  # type: ignore[arg-type]


async def test_s22_s23_back_off_then_hold(skipping: WorkflowEnvironment, task_queue: str) -> None:
    host = StubHost()
    host.init_fails = 3
    async with host.serve(skipping.client, task_queue):
        handle = await start(skipping.client, task_queue, "work")
        await skipping.sleep(timedelta(seconds=10))
        failed = [e for e in await events(handle) if e.kind == "session.process_failed"]
        assert [e.data["process_epoch"] for e in failed] == [1, 2, 3]
        pauses = [
            (later.created_at - earlier.created_at).total_seconds() for earlier, later in pairwise(failed)
        ]
        assert 1 <= pauses[0] < 2 <= pauses[1] < 4
        session = (await read(handle)).session
        assert [hold.id for hold in session.holds] == [failed[2].data["hold_id"]]
        await handle.signal("resume", {"hold_id": session.holds[0].id})
        await until_idle(handle)
        assert (await kinds(handle))[-1] == "turn.completed"
        assert host.epochs == [1, 2, 3, 4]


async def test_s60_s61_idle_close_comes_after_idleness(
    skipping: WorkflowEnvironment, task_queue: str
) -> None:
    async with StubHost().serve(skipping.client, task_queue):
        handle = await start(
            skipping.client, task_queue, "work", close_after_idle=30 * 86_400, hibernate_after_idle=None
        )
        await until_idle(handle)
        await skipping.sleep(timedelta(days=29))
        await handle.signal("enqueue", {"input": "again"})
        await until_idle(handle)
        await skipping.sleep(timedelta(days=29))
        assert (await read(handle)).session.status == "open"
        await handle.result()
        assert (await kinds(handle))[-1] == "session.closed"
        session = (await read(handle)).session
        assert (session.status, session.closed_how) == ("closed", "idle")


async def test_s62_hibernates_and_wakes_with_a_new_process(
    skipping: WorkflowEnvironment, task_queue: str
) -> None:
    host = StubHost()
    async with host.serve(skipping.client, task_queue):
        handle = await start(skipping.client, task_queue, "work")
        await until_idle(handle)
        await skipping.sleep(timedelta(minutes=20))
        assert (await kinds(handle))[-1] == "session.process_stopped"
        await handle.signal("enqueue", {"input": "wake"})
        await until_idle(handle)
        assert (await kinds(handle))[-1] == "turn.completed"
        assert host.epochs == [1, 2]
        assert host.stopped == ["hibernated"]


async def test_s91_nonsense_changes_nothing_and_the_session_goes_on(
    skipping: WorkflowEnvironment, task_queue: str
) -> None:
    async with StubHost().serve(skipping.client, task_queue):
        handle = await start(skipping.client, task_queue)
        await handle.signal("enqueue")
        await handle.signal("enqueue", args=[{"input": "a"}, {"input": "b"}])
        await handle.signal("enqueue", args=[1, 2, 3, 4])
        for nonsense in (7, "text", [], {}, {"input": 3}, {"input": ""}, {"input": "x", "caller": 1}):
            await handle.signal("enqueue", nonsense)
        for name in ("close", "resume", "report", "answer", "send"):
            await handle.signal(name, ["nonsense"])
        await handle.signal("no_such_signal", {"a": 1})
        refused = commands.Enqueue.model_construct(request_id="req_nonsense", input=())
        await handle.signal("enqueue", {"request_id": refused.request_id, "input": []})
        assert await events(handle) == []
        await handle.signal("enqueue", {"input": [{"type": "text", "text": "hi"}]})
        await until_idle(handle)
        seen = await events(handle)
        assert seen[0].data["origin"] == {"kind": "temporal", "id": None}
        assert seen[-1].kind == "turn.completed"
        receipt = (await read(handle, request_ids=("req_nonsense",))).receipts["req_nonsense"]
        assert receipt.rejection is not None
        assert receipt.rejection.code == "empty_input"


async def test_s91_close_by_hand_needs_no_payload(skipping: WorkflowEnvironment, task_queue: str) -> None:
    async with StubHost().serve(skipping.client, task_queue):
        handle = await start(skipping.client, task_queue)
        await handle.signal("close")
        await handle.result()
        assert await kinds(handle) == ["session.close", "session.closed"]


async def test_s90_temporals_cancel_is_a_session_cancel(
    skipping: WorkflowEnvironment, task_queue: str
) -> None:
    async with StubHost().serve(skipping.client, task_queue):
        handle = await start(skipping.client, task_queue, "work", close_after_idle=86_400)
        await until_idle(handle)
        await handle.cancel()
        await handle.result()
        assert (await read(handle)).session.closed_how == "cancel"
