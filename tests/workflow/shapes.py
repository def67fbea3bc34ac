"""Sessions of every shape, to be recorded: `python -m tests.workflow.shapes` writes their histories.

Names of shapes as arguments record these alone.

Record again only when a shape is new: the recorded files are what running Sessions look like, and
code that cannot replay them would strand those.
"""

import asyncio
import sys
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from tests.harness import poll
from tests.workflow import fingerprint, spawning
from tests.workflow.stub_host import (
    LISTENS,
    STREAMS,
    WAITS,
    StubHost,
    completes,
    events,
    read,
    start,
    until_idle,
)
from tests.workflow.versioned import Shop
from turnhold.cli.stack import Plan, Stack
from turnhold.session import hosting, ids
from turnhold.session.views import AsksRequest, TurnsRequest
from turnhold.temporal.plugin import PLUGIN

HISTORIES = Path(__file__).parent / "histories"
Handle = WorkflowHandle[Any, Any]
Shape = Callable[[Client, str, StubHost], Awaitable[Handle]]


async def idle(client: Client, queue: str, _host: StubHost) -> Handle:
    """Created without input: no Turn has run."""
    handle = await start(client, queue)
    await until_idle(handle)
    return handle


async def conversation(client: Client, queue: str, host: StubHost) -> Handle:
    """Completed, failed and completed again, by signals from the API and by hand; then closed."""

    def turn(call: hosting.RunTurnCall) -> dict[str, Any]:
        if call.sequence == 2:
            error = {"code": "handler_failed", "type": "ValueError", "message": "no"}
            return {"how": "failed", "error": error}
        return completes(call)

    host.turn = turn
    handle = await start(client, queue, "one")
    await handle.signal("enqueue", {"input": "two", "idempotency_key": "k", "fingerprint": "f"})
    await handle.signal("enqueue", {"input": "two", "idempotency_key": "k", "fingerprint": "f"})
    await handle.signal("enqueue", {"input": "three"})
    await handle.signal("nonsense", 7)
    await until_idle(handle)
    await handle.signal("close")
    await handle.result()
    return handle


async def held(client: Client, queue: str, host: StubHost) -> Handle:
    """Three failures of `init`, a hold, its release, a Turn."""
    host.init_fails = 3
    handle = await start(client, queue, "work")
    hold_id = await poll(lambda: _hold(handle))
    await handle.signal("resume", {"hold_id": hold_id})
    await until_idle(handle)
    return handle


async def _hold(handle: Handle) -> str | None:
    return next((hold.id for hold in (await read(handle)).session.holds), None)


async def died(client: Client, queue: str, host: StubHost) -> Handle:
    """A Process that dies under a Turn, and the next one."""

    def turn(call: hosting.RunTurnCall) -> dict[str, Any]:
        if call.sequence == 1:
            return {"how": "died", "process": "process_failed", "detail": "it exited"}
        return completes(call)

    host.turn = turn
    handle = await start(client, queue, "one")
    await handle.signal("enqueue", {"input": "two"})
    await until_idle(handle)
    return handle


async def lost(client: Client, queue: str, host: StubHost) -> Handle:
    """A Turn put back, then begun, suspected, asked for again and lost; and the next one."""
    host.faults = ["refused", "unheard", "refused"]
    handle = await start(client, queue, "one")
    await handle.signal("enqueue", {"input": "two"})
    await until_idle(handle)
    return handle


async def hibernated(client: Client, queue: str, _host: StubHost) -> Handle:
    """Stopped for idleness and woken by the next Turn; closed for idleness in the end."""
    handle = await start(client, queue, "one", hibernate_after_idle=0.2, close_after_idle=2)
    await poll(lambda: _has(handle, "session.process_stopped"))
    await handle.signal("enqueue", {"input": "two"})
    await handle.result()
    return handle


async def _has(handle: Handle, kind: str, times: int = 1) -> bool:
    return sum(event.kind == kind for event in await events(handle)) >= times


async def continued(client: Client, queue: str, _host: StubHost) -> Handle:
    """Several runs, Turns pending at the roll-overs; the last run is recorded, and has run a Turn."""
    handle = await start(client, queue, events_per_run=40)
    latest: Handle = client.get_workflow_handle(handle.id)
    for number in range(12):
        await latest.signal("enqueue", {"input": str(number)})
    await until_idle(latest)
    while "ACTIVITY_TASK_COMPLETED" not in await _history_types(latest):
        await latest.signal("enqueue", {"input": "one more"})
        await until_idle(latest)
    return latest


async def _history_types(handle: Handle) -> list[str]:
    events = (await handle.fetch_history()).events
    return [EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in events]


async def _is_quiet(handle: Handle) -> bool:
    """No workflow task is due or under way: a history that ends within one cannot be replayed."""
    types = [kind for kind in await _history_types(handle) if kind.startswith("WORKFLOW_TASK_")]
    return types[-1:] == ["WORKFLOW_TASK_COMPLETED"]


async def cancelled(client: Client, queue: str, _host: StubHost) -> Handle:
    """Temporal's own Cancel."""
    handle = await start(client, queue, "one")
    await until_idle(handle)
    await handle.cancel()
    await handle.result()
    return handle


async def interrupted(client: Client, queue: str, host: StubHost) -> Handle:
    """A Turn interrupt, a Session interrupt and its resume, and a cancel with a Turn in the queue."""
    handle = await start(client, queue, WAITS)
    for _ in range(2):
        await handle.signal("enqueue", {"input": WAITS})
    await handle.signal("enqueue", {"input": "never"})
    await handle.signal("interrupt", {"turn_id": await _running(handle, 1)})
    await _running(handle, 2)
    await handle.signal("interrupt")
    hold_id = await poll(lambda: _hold(handle))
    await poll(lambda: _has(handle, "turn.interrupted", 2))
    await handle.signal("resume", {"hold_id": hold_id})
    await _running(handle, 3)
    await handle.signal("cancel")
    await handle.result()
    return handle


async def owning(client: Client, queue: str, _host: StubHost) -> Handle:
    """An owner: children that hold and release, one that an operator ends, an independent one; closed."""
    root, children, independent = await _family(client, queue)
    await children[0].terminate("by hand")
    await poll(lambda: _has(root, "owned.closed"))
    await root.signal("close")
    await root.result()
    await independent.signal("cancel")
    return root


async def owned(client: Client, queue: str, _host: StubHost) -> Handle:
    """A child of it: started, held and released from above, cancelled with its owner."""
    root, children, independent = await _family(client, queue)
    await root.signal("cancel")
    for session in (root, *children):
        await session.result()
    await independent.signal("cancel")
    return children[0]


async def _family(client: Client, queue: str) -> tuple[Handle, list[Handle], Handle]:
    root = await spawning.running(client, queue)
    children = [await spawning.spawn(client, root, key, WAITS) for key in ("one", "two")]
    independent = await spawning.spawn(client, root, "alone", independent=True)
    hold_id = await spawning.hold(root)
    await poll(lambda: _hold(children[0]))
    await spawning.resume(children[0], hold_id)
    await spawning.resume(root, hold_id)
    await poll(lambda: _has(children[0], "session.resume"))
    return root, children, independent


async def _running(handle: Handle, sequence: int) -> str:
    async def turn_id() -> str | None:
        result = await read(handle, turns=(TurnsRequest(after=sequence - 1, limit=1),))
        found = result.turns[0]
        return found[0].id if found and found[0].status == "running" else None

    return await poll(turn_id)


async def streaming(client: Client, queue: str, _host: StubHost) -> Handle:
    """A Turn that reports while it runs, and an input and a close that come meanwhile."""
    handle = await start(client, queue, STREAMS)
    await handle.signal("enqueue", {"input": STREAMS})
    await handle.signal("close")
    await handle.result()
    return handle


async def people(client: Client, queue: str, _host: StubHost) -> Handle:
    """A Turn steered and answered, by an answer that comes late; one interrupted in between."""
    handle = await start(client, queue, LISTENS)
    await handle.signal("enqueue", {"input": LISTENS})
    steered = await poll(lambda: _asking(handle, 1))
    for text in ("one", "two"):
        await handle.signal("send", {"turn_id": steered, "content": text})
    answer = {"ask_id": ids.numbered("ask", steered, 1), "answer": {"text": "yes"}}
    await handle.signal("answer", {"turn_id": steered, **answer, "sent_at": "2026-01-01T00:00:00Z"})
    stopped = await poll(lambda: _asking(handle, 2))
    await handle.signal("send", {"turn_id": steered, "content": "three", "fallback": "enqueue"})
    await handle.signal("send", {"turn_id": stopped, "content": "four"})
    await handle.signal("interrupt", {"turn_id": stopped})
    await until_idle(handle)
    await handle.signal("close")
    await handle.result()
    return handle


async def _asking(handle: Handle, sequence: int) -> str | None:
    """The ID of that Turn, once it waits for an answer."""
    result = await read(handle, ask_pages=(AsksRequest(status="pending"),))
    waiting = {ask.turn_id for ask in result.ask_pages[0].asks}
    turn_id = await _running(handle, sequence) if waiting else None
    return turn_id if turn_id in waiting else None


async def attached(client: Client, queue: str, _host: StubHost) -> Handle:
    """A Turn that runs across a roll-over: the run that attaches to it, and in which it is stopped."""
    handle = await start(client, queue, WAITS, events_per_run=30)
    latest: Handle = client.get_workflow_handle(handle.id)
    turn_id = await _running(latest, 1)
    run = first_run = (await latest.describe()).run_id
    while run == first_run:
        await latest.signal("enqueue", {"input": "another"})
        run = (await latest.describe()).run_id
    await latest.signal("interrupt", {"turn_id": turn_id})
    await until_idle(latest)
    return client.get_workflow_handle(handle.id, run_id=run)


async def set_aside(client: Client, queue: str, _host: StubHost) -> Handle:
    """Inputs that wait in the store; some are fetched while a Turn runs, and one is cancelled there."""
    handle = await start(client, queue, WAITS)
    for number in range(5):
        await handle.signal("enqueue", {"input": WAITS.ljust(80_000) if number % 2 else WAITS})
    for _ in range(2):
        await handle.signal("enqueue", {"input": "never".ljust(80_000)})
    for sequence in range(1, 6):
        await handle.signal("interrupt", {"turn_id": await _running(handle, sequence)})
    await _running(handle, 6)
    await handle.signal("cancel")
    await handle.result()
    return handle


async def moved(client: Client, queue: str, _host: StubHost) -> Handle:
    """Moved from one version of the workers to another: the run that leaves."""
    shop = Shop(client, queue, served=True)
    async with shop.worker("1", StubHost()), shop.worker("2", StubHost()):
        await shop.promote("1")
        handle = await start(client, queue, "one")
        await until_idle(handle)
        await shop.promote("2")
        await handle.signal("move", {"to": f"{shop.name}:2"})
        await poll(lambda: _has(handle, "session.moved"))
        return client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)


SHAPES: dict[str, Shape] = {
    shape.__name__: shape
    for shape in (
        *(idle, conversation, held, died, lost, hibernated, continued, cancelled, interrupted),
        *(streaming, people, attached, set_aside, moved, owning, owned),
    )
}


async def record(client: Client, name: str) -> str:
    """The history of one shape, run now, as JSON."""
    queue = f"shapes-{uuid.uuid4()}"
    host = StubHost()
    async with host.serve(client, queue):
        handle = await SHAPES[name](client, queue, host)
        await poll(lambda: _is_quiet(handle))
        return (await handle.fetch_history()).to_json()


async def _record_all(address: str, names: list[str]) -> None:
    client = await Client.connect(address, plugins=[PLUGIN])
    for name in names:
        (HISTORIES / f"{name}.json").write_text(await record(client, name))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(Plan(Path(folder)))
        stack.start()
        try:
            names = sys.argv[1:] or list(SHAPES)
            asyncio.run(_record_all(stack.temporal_address, names))
            fingerprint.write_all(HISTORIES / f"{name}.json" for name in names)
        finally:
            stack.stop()
    sys.exit(0)
