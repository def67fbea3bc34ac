"""Sessions under Worker Deployment Versioning, on a real server (S-4)."""

from typing import Any

from temporalio.client import Client, WorkflowHandle

from tests.harness import poll
from tests.workflow.stub_host import WAITS, StubHost, events, read, start, until_idle
from tests.workflow.versioned import Shop

Handle = WorkflowHandle[Any, Any]


async def test_s4_every_run_stays_on_the_version_that_it_began_on(real: Client, task_queue: str) -> None:
    """Roll-overs in the middle of Turns, and the short run that a closed Session ends with."""
    shop, old, new = Shop(real, task_queue), StubHost(), StubHost()
    async with shop.worker("1", old), shop.worker("2", new):
        await shop.promote("1")
        handle = await start(real, task_queue, "first", events_per_run=40)
        latest: Handle = real.get_workflow_handle(handle.id)
        await until_idle(latest)
        await shop.promote("2")
        await latest.signal("enqueue", {"input": WAITS})
        for number in range(20):  # they fill the run while the Turn waits
            await latest.signal("enqueue", {"input": str(number)})
        turn_id = (await read(latest)).session.running_turn_id
        await latest.signal("interrupt", {"turn_id": turn_id})
        await until_idle(latest)
        assert (await read(latest)).session.deployment == f"{shop.name}:1"
        await latest.signal("close")
        await latest.result()
        assert new.epochs == [], "no Process was made by the other version"
        kinds = [event.kind for event in await events(latest)]
        assert (kinds.count("turn.completed"), kinds.count("session.moved")) == (21, 0)

        async def runs() -> list[str | None] | None:
            found = await shop.runs_of(handle.id)
            return found if len(found) > 3 else None

        assert set(await poll(runs)) == {f"{shop.name}:1"}


async def test_s4_a_moved_session_goes_on_in_a_run_of_the_current_version(
    real: Client, task_queue: str
) -> None:
    shop, old, new = Shop(real, task_queue), StubHost(), StubHost()
    async with shop.worker("1", old), shop.worker("2", new):
        await shop.promote("1")
        handle = await start(real, task_queue, "one")
        latest: Handle = real.get_workflow_handle(handle.id)
        await until_idle(latest)
        await shop.promote("2")
        await latest.signal("move", {"to": f"{shop.name}:2"})
        await latest.signal("enqueue", {"input": "two"})
        await poll(lambda: _completed(latest, 2))
        assert (old.epochs, new.epochs) == ([1], [2])
        moved = [event.data for event in await events(latest) if event.kind == "session.moved"]
        assert moved == [{"from": f"{shop.name}:1", "to": f"{shop.name}:2"}]


async def test_s4_without_versions_a_move_changes_nothing(real: Client, task_queue: str) -> None:
    async with StubHost().serve(real, task_queue):
        handle = await start(real, task_queue, "one")
        latest: Handle = real.get_workflow_handle(handle.id)
        await until_idle(latest)
        await latest.signal("move", {"to": "shop:2"})
        await latest.signal("enqueue", {"input": "two"})
        await poll(lambda: _completed(latest, 2))
        session = (await read(latest)).session
        assert (session.deployment, session.process.epoch) == ("unversioned", 2)


async def _completed(handle: Handle, turns: int) -> bool:
    return [event.kind for event in await events(handle)].count("turn.completed") == turns
