"""A Session over many runs, on a real server."""

import asyncio

from temporalio.client import Client
from temporalio.worker import Replayer

from tests.harness import poll
from tests.workflow.stub_host import LISTENS, WAITS, StubHost, events, read, start, until_idle
from turnhold.session.values import text_of
from turnhold.session.views import AsksRequest, AskView, EventView, TurnsRequest
from turnhold.temporal.plugin import PLUGIN
from workflows.session import Session


async def test_s10_s80_a_session_continues_as_new_and_loses_nothing(real: Client, task_queue: str) -> None:
    async with StubHost().serve(real, task_queue):
        handle = await start(real, task_queue, events_per_run=40)
        first_run = (await handle.describe()).run_id
        for number in range(30):
            await real.get_workflow_handle(handle.id).signal(
                "enqueue", {"input": str(number), "request_id": f"req_{number:08d}"}
            )
        await until_idle(handle)
        seen = await events(handle)
        assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
        said = [e.data["content"][0]["text"] for e in seen if e.kind == "turn.output"]  # type: ignore[index]
        assert said == [str(number) for number in range(30)]
        assert (await real.get_workflow_handle(handle.id).describe()).run_id != first_run
        receipts = (await read(handle, request_ids=("req_00000000", "req_00000029"))).receipts
        assert [r.sequence for r in receipts.values()] == [1, 30]


async def test_s31_s43_what_people_say_crosses_into_later_runs(real: Client, task_queue: str) -> None:
    async with StubHost().serve(real, task_queue):
        handle = await start(real, task_queue, LISTENS, events_per_run=30)
        latest = real.get_workflow_handle(handle.id)

        async def asking() -> AskView | None:
            page = (await read(handle, ask_pages=(AsksRequest(status="pending"),))).ask_pages[0]
            return next(iter(page.asks), None)

        ask = await poll(asking)
        for number in range(20):
            await latest.signal("send", {"turn_id": ask.turn_id, "content": str(number)})
        await latest.signal("answer", {"turn_id": ask.turn_id, "ask_id": ask.id, "answer": {"text": "yes"}})
        await until_idle(handle)
        assert (await latest.describe()).run_id != handle.first_execution_run_id
        seen = await events(handle)
        assert seen[-1].kind == "turn.completed"
        told = [e.data["message_id"] for e in seen if e.kind == "message.admitted"]
        assert len(told) == 20
        started = [e.data["message_id"] for e in seen if e.kind == "message.started"]
        settled = [e.kind for e in seen if e.kind in ("message.delivered", "message.rejected")]
        assert started == told[: len(started)]
        assert len(settled) == 20


async def test_s80_what_a_reader_has_seen_stays(real: Client, task_queue: str) -> None:
    """Signals meet roll-overs, which Temporal then refuses: what such an attempt knew is nobody's yet."""
    async with StubHost().serve(real, task_queue):
        handle = await start(real, task_queue, events_per_run=20)
        latest = real.get_workflow_handle(handle.id)
        seen: list[EventView] = []
        sent = asyncio.Event()

        async def follow() -> None:
            while not sent.is_set() or (await read(handle)).working:
                now = await events(handle)
                assert now[: len(seen)] == seen
                seen[:] = now

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow())
            for number in range(30):
                await latest.signal("enqueue", {"input": str(number)})
            sent.set()
        every = await events(handle)
        assert every[: len(seen)] == seen
        said = [e.data["content"][0]["text"] for e in every if e.kind == "turn.output"]  # type: ignore[index]
        assert said == [str(number) for number in range(30)]
    assert await replayed_runs(real, handle.id) > 5


async def replayed_runs(client: Client, session_id: str) -> int:
    """How many runs a Session has had. What a worker decided live, another one decides in a replay (S-80)."""
    rows = [row async for row in client.list_workflows(f"WorkflowId = '{session_id}'")]
    for row in rows:
        history = await client.get_workflow_handle(session_id, run_id=row.run_id).fetch_history()
        await Replayer(workflows=[Session], plugins=[PLUGIN]).replay_workflow(history)
    return len(rows)


async def test_s10_s95_inputs_that_wait_in_the_store_cross_into_later_runs(
    real: Client, task_queue: str
) -> None:
    given = [f"{number} ".ljust(20_000, "x") for number in range(30)]
    async with StubHost().serve(real, task_queue):
        handle = await start(real, task_queue, WAITS, events_per_run=40)
        latest = real.get_workflow_handle(handle.id)
        for text in given:
            await latest.signal("enqueue", {"input": text})

        async def turn_ids() -> list[str] | None:
            found = (await read(handle, turns=(TurnsRequest(limit=100),))).turns[0]
            return [turn.id for turn in found] if len(found) == 31 else None

        first, *waiting = await poll(turn_ids)
        shown = (await read(handle, turn_ids=(waiting[-1],))).turns_by_id[waiting[-1]]
        assert text_of(shown.input or ()) == given[-1]
        await latest.signal("interrupt", {"turn_id": first})
        await until_idle(handle)
        assert (await latest.describe()).run_id != handle.first_execution_run_id
        said = [e.data["content"][0]["text"] for e in await events(handle) if e.kind == "turn.output"]  # type: ignore[index]
        assert said == given
