"""Trees of Sessions under faults: workers killed and absent, Temporal away, an operator's Terminate."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.test_owned import new, say, spawned, until_all
from tests.fault.conftest import one_more_worker, temporal
from tests.harness import assert_gapless, poll, running, settled, settled_after_fault, timeline
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client, Problem
from turnhold.session.values import text_of


async def test_s71_s75_a_tree_whose_worker_is_killed_reaches_a_true_state_and_obeys(
    own_stack: Stack, own_client: Client
) -> None:
    """Killed under the root's Turn and its children's; then controlled as if nothing had been."""
    client = own_client
    root = await new(client)
    children = await spawned(client, root, *[f"spawn script key={n} | say begun ; sleep 120" for n in "abc"])
    lost = await client.enqueue(root, "say begun\nsleep 120")
    family = [root, *children]
    await asyncio.gather(*(running(client, session_id) for session_id in family))
    await one_more_worker(own_stack)
    own_stack.workers[0].kill()

    turns = [(child, (await client.list_turns(child)).turns[0].id) for child in children]
    for session_id, turn_id in [(root, lost.turn_id or ""), *turns]:
        turn = await settled_after_fault(client, session_id, turn_id)
        assert (turn.status, turn.reason) == ("interrupted", "execution_lost")
    assert await say(client, children[0], "say on") == "on\n"
    busy = await client.enqueue(children[1], "say begun\nsleep 120")
    await poll(lambda: _runs(client, children[1]), what="a running Turn")

    hold_id = (await client.interrupt(root)).hold_id or ""
    await until_all(client, family, "holds everywhere", lambda view: view.holds)
    assert (await settled(client, children[1], busy.turn_id or "")).reason == "session_interrupt"
    await client.resume(root, hold_id)
    await until_all(client, family, "no holds", lambda view: not view.holds)
    assert await spawned(client, root, "spawn script key=a | say begun ; sleep 120") == [children[0]]
    await client.cancel(root)
    await until_all(client, family, "all closed", lambda view: view.closed_how == "cancel")
    for session_id in family:
        assert_gapless(await timeline(client, session_id))


async def _runs(client: Client, session_id: str) -> bool:
    return (await client.session(session_id)).running_turn_id is not None


async def test_s71_s92_a_cancel_without_any_worker_reaches_all_when_one_is_back(
    own_stack: Stack, own_client: Client
) -> None:
    client = own_client
    root = await new(client)
    (child,) = await spawned(client, root, "spawn script key=c")
    (grandchild,) = await spawned(client, child, "spawn script key=g | say begun ; sleep 120")
    await running(client, grandchild)
    own_stack.workers[0].kill()
    receipt = await client.cancel(root)
    assert receipt.status == "pending"
    assert {s.status for s in await client.owned(root, recursive=True)} == {"open"}, "without a worker"
    await one_more_worker(own_stack)
    closed = await until_all(
        client, [root, child, grandchild], "all closed", lambda view: view.status == "closed"
    )
    assert {view.closed_how for view in closed} == {"cancel"}


async def test_s75_a_terminated_child_keeps_no_close_waiting_and_a_terminated_owner_no_hold(
    stack: Stack, client: Client
) -> None:
    by_hand = await temporal(stack)
    root = await new(client)
    ended, left = await spawned(
        client, root, "spawn script key=a | sleep 120", "spawn script key=b | sleep 1"
    )
    await client.close(root)
    await by_hand.get_workflow_handle(ended).terminate()
    await until_all(client, [root], "the close of the root", lambda view: view.closed_how == "close")
    how = {
        event.data["session_id"]: event.data["how"]
        for event in await timeline(client, root)
        if event.kind == "owned.closed"
    }
    assert how == {ended: "terminated", left: "close"}

    root = await new(client)
    (child,) = await spawned(client, root, "spawn script key=a | say begun ; sleep 120")
    await running(client, child)
    hold_id = (await client.interrupt(root)).hold_id or ""
    await until_all(client, [child], "the hold", lambda view: view.holds and not view.running_turn_id)
    await client.enqueue(child, "say released")
    with pytest.raises(Problem) as caught:
        await client.resume(child, hold_id)
    assert (caught.value.status, caught.value.code) == (409, "hold_owned_by_ancestor")
    await by_hand.get_workflow_handle(root).terminate()
    receipt = await client.resume(child, hold_id)
    assert (receipt.status, receipt.hold_id) == ("accepted", hold_id)
    turn = (await client.list_turns(child, after=1)).turns[0]
    assert text_of((await settled(client, child, turn.id)).output or ()) == "released\n"
    assert (await client.session(child)).parent_id == root
    await client.close(child)
    await until_all(client, [child], "its own close", lambda view: view.status == "closed")


@pytest.fixture
async def durable(tmp_path: Path) -> AsyncIterator[tuple[Stack, Client]]:
    with Stack(Plan(tmp_path, durable=True)) as stack:
        async with Client(stack.api_url) as client:
            yield stack, client


async def test_s24_s70_a_turn_that_spawns_and_waits_through_an_outage_goes_on(
    durable: tuple[Stack, Client],
) -> None:
    """One call of the handler begins while Temporal is away, another waits all through it."""
    stack, client = durable
    root = await new(client)
    (slow,) = await spawned(client, root, "spawn script key=slow | sleep 4")
    waits = await client.enqueue(root, f"say begun\nwait {slow}\nsay waited")
    other = await new(client)
    spawns = await client.enqueue(other, "say begun\nsleep 2\nspawn script key=c | say child")
    await asyncio.gather(running(client, root), running(client, other))
    assert stack.temporal is not None
    stack.temporal.kill()
    await asyncio.sleep(4)  # the outage: both calls are made in it
    stack.start_temporal()
    turn = await settled_after_fault(client, root, waits.turn_id or "", deadline=90)
    assert (turn.status, turn.error) == ("completed", None)
    assert text_of(turn.output or ()).endswith("status: completed\nwaited\n")
    turn = await settled_after_fault(client, other, spawns.turn_id or "", deadline=90)
    assert turn.status == "completed", turn.error
    (owned,) = await client.owned(other)
    assert f"spawned: {owned.id}" in text_of(turn.output or ())
