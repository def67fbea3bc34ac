"""Sessions that own Sessions, over real HTTP: the cascade, authority, limits, lists."""

import asyncio
import random
import re
from collections.abc import Iterable

import pytest

from tests.harness import assert_gapless, poll, settled, timeline
from turnhold.cli.stack import Stack
from turnhold.client import Client, Problem
from turnhold.session.values import text_of
from turnhold.session.views import SessionListed, SessionView

ROUNDS = 5


async def new(client: Client, steps: str | None = None) -> str:
    return (await client.create_session("script", input=steps)).session.id


async def say(client: Client, session_id: str, *steps: str) -> str:
    """What a Turn with these steps writes."""
    receipt = await client.enqueue(session_id, "\n".join(steps))
    turn = await settled(client, session_id, receipt.turn_id or "")
    assert turn.status == "completed", turn.error
    return text_of(turn.output or ())


async def spawned(client: Client, session_id: str, *steps: str) -> list[str]:
    """The Sessions that a Turn with these steps spawns or starts."""
    said = await say(client, session_id, *steps)
    return re.findall(r"^(?:spawned|started): (ses_\w+)$", said, re.MULTILINE)


async def tree(client: Client, depth: int, width: int = 2) -> list[list[str]]:
    """A tree of idle Sessions, level by level."""
    levels = [[await new(client)]]
    while len(levels) < depth:
        steps = [f"spawn script key={number}" for number in range(width)]
        below = await asyncio.gather(*(spawned(client, owner, *steps) for owner in levels[-1]))
        levels.append([child for children in below for child in children])
    return levels


async def views(client: Client, session_ids: Iterable[str]) -> list[SessionView]:
    return list(await asyncio.gather(*(client.session(session_id) for session_id in session_ids)))


async def until_all(client: Client, session_ids: list[str], what: str, true) -> list[SessionView]:
    async def found() -> list[SessionView] | None:
        seen = await views(client, session_ids)
        return seen if all(true(view) for view in seen) else None

    return await poll(found, what=what)


async def runs_in(client: Client, *session_ids: str) -> None:
    await until_all(client, list(session_ids), "running Turns", lambda view: view.running_turn_id)


async def refusal(command) -> str:
    with pytest.raises(Problem) as caught:
        await command
    return caught.value.code


def only(view: SessionView) -> str:
    (hold,) = view.holds
    return hold.id


# --- the cascade ----------------------------------------------------------------------------------------


async def test_s51_s52_s53_s54_a_tree_of_fifteen_with_stubborn_leaves(client: Client) -> None:
    levels = await tree(client, 4)
    root = levels[0][0]
    everyone = [session_id for level in levels for session_id in level]
    assert len(everyone) == 15
    (independent,) = await spawned(client, levels[2][0], "start script | sleep 120")
    for leaf in levels[3]:
        await client.enqueue(leaf, "stubborn 2")
    await client.enqueue(levels[1][0], "sleep 120")
    await runs_in(client, *levels[3], levels[1][0], independent)

    hold_id = (await client.interrupt(root)).hold_id
    held = await until_all(client, everyone, "holds everywhere", lambda view: view.holds)
    for view in held:
        (hold,) = view.holds
        assert (hold.id, hold.session_id, hold.can_release) == (hold_id, root, view.id == root)
    assert await refusal(client.resume(levels[3][0], hold_id or "")) == "hold_owned_by_ancestor"
    explanation = await client.explain(levels[3][0])
    held_by = next(cause for cause in explanation.causes if cause.code == "held")
    assert held_by.clear is not None
    assert held_by.clear.path == f"/v1/sessions/{root}/resume"

    await client.resume(root, hold_id or "")
    await until_all(client, everyone, "no holds", lambda view: not view.holds and not view.running_turn_id)
    for session_id in everyone[1:]:
        kinds = [event.kind for event in await timeline(client, session_id)]
        assert (kinds.count("session.interrupt"), kinds.count("session.resume")) == (1, 1)

    await client.close(root)
    closed = await until_all(client, everyone, "everyone closed", lambda view: view.status == "closed")
    assert {view.closed_how for view in closed} == {"close"}
    at = {view.id: (view.closed_at, view.id) for view in closed}
    for owner in everyone[:7]:
        assert all(at[child.id][0] <= at[owner][0] for child in await client.owned(owner))
    events = await timeline(client, root)
    assert_gapless(events)
    assert [event.kind for event in events[-3:]] == ["owned.closed", "owned.closed", "session.closed"]

    view = await client.session(independent)
    assert (view.status, view.running_turn_id is not None, view.parent_id) == ("open", True, None)
    assert view.root_id == independent
    await client.cancel(independent)


async def test_s54_cancel_at_the_root_closes_a_tree_with_stubborn_leaves(client: Client) -> None:
    levels = await tree(client, 4)
    everyone = [session_id for level in levels for session_id in level]
    for leaf in levels[3]:
        await client.enqueue(leaf, "stubborn 3")
    await runs_in(client, *levels[3])
    await client.cancel(everyone[0])
    closed = await until_all(client, everyone, "everyone closed", lambda view: view.status == "closed")
    assert {view.closed_how for view in closed} == {"cancel"}
    assert "owned.closed" not in [event.kind for event in await timeline(client, everyone[0])]


async def test_s53_new_turns_are_refused_throughout_and_close_waits_for_the_last_one(client: Client) -> None:
    (root,), (child,) = await tree(client, 2, width=1)
    await client.enqueue(child, "sleep 1")
    await client.enqueue(child, "say still runs")
    await runs_in(client, child)
    await client.close(root)
    await until_all(client, [root, child], "closing", lambda view: view.status == "closing")
    assert await refusal(client.enqueue(child, "say late")) == "session_closing"
    (cause,) = (await client.explain(root)).causes
    assert (cause.code, cause.session_id) == ("closing_on_owned", child)
    await until_all(client, [root, child], "closed", lambda view: view.status == "closed")
    turns = (await client.list_turns(child)).turns
    assert [turn.status for turn in turns] == ["completed"] * 2


async def test_s71_a_root_cancelled_while_it_spawns_leaves_no_owned_session_open(client: Client) -> None:
    dice = random.Random(5)

    async def one_round() -> None:
        root = await new(client, "\n".join(f"spawn script key={n} | sleep 60" for n in range(10)))
        await asyncio.sleep(dice.uniform(0, 0.6))
        await client.cancel(root)

        async def quiet() -> bool:
            return all(s.status == "closed" for s in await client.owned(root, recursive=True))

        # Nothing is under way any more once its workflow has ended, which waits for every start.
        await poll(lambda: _has_ended(client, root), what="the end of the root")
        await poll(quiet, what="no open owned Session")
        owned = await client.owned(root, recursive=True)
        seen = await views(client, [session.id for session in owned])
        assert all((view.status, view.closed_how) == ("closed", "cancel") for view in seen)
        counts.append(len(seen))

    counts: list[int] = []
    for _ in range(ROUNDS):
        await one_round()
    print(f"\nspawned when the cancel came: {counts}")


async def _has_ended(client: Client, session_id: str) -> bool:
    """Only a workflow that has ended answers like this: with an ID that says what would become of it."""
    return "closed" in (await client.cancel(session_id)).request_id


async def test_s51_s52_interrupt_and_resume_in_quick_succession_leave_nobody_held(client: Client) -> None:
    levels = await tree(client, 3)
    everyone = [session_id for level in levels for session_id in level]
    for leaf in levels[2]:
        await client.enqueue(leaf, "sleep 60")
    for _ in range(ROUNDS):
        receipt = await client.interrupt(everyone[0])
        await client.resume(everyone[0], receipt.hold_id or "")
    await until_all(client, everyone, "no holds", lambda view: not view.holds)
    assert await say(client, levels[2][0], "say free") == "free\n"
    await client.cancel(everyone[0])


async def test_s74_owner_and_owned_interrupted_at_once_both_end_held(client: Client) -> None:
    for _ in range(ROUNDS):
        root = await new(client)
        (child,) = await spawned(client, root, "spawn script key=c")
        by_owner = await client.enqueue(root, f"interrupt {child}\nsleep 30")
        by_child = await client.enqueue(child, f"interrupt {root}\nsleep 30")
        receipts = await asyncio.gather(client.interrupt(root), client.interrupt(child))
        both = await until_all(
            client, [root, child], "both held", lambda view: view.holds and not view.running_turn_id
        )
        assert receipts[0].hold_id in {hold.id for hold in both[1].holds}
        turns = [(root, by_owner.turn_id), (child, by_child.turn_id)]
        for session_id, turn_id in turns:
            assert (await client.turn(session_id, turn_id or "")).status in (
                "queued",
                "interrupted",
                "completed",
            )
        await client.cancel(root)


# --- spawning ---------------------------------------------------------------------------------------------


async def test_s70_one_spawn_key_is_one_session(client: Client) -> None:
    """Twice in one Turn, again in another, and again with a body that is not the same."""
    root = await new(client)
    first = await spawned(client, root, *["spawn script key=same | say hi"] * 2)
    again = await spawned(client, root, "spawn script key=same | say hi")
    assert len({*first, *again}) == 1
    assert len(await client.owned(root)) == 1
    other = await client.enqueue(root, "spawn script key=same | say something else")
    turn = await settled(client, root, other.turn_id or "")
    assert turn.error is not None
    assert (turn.status, turn.error.code) == ("failed", "idempotency_conflict")
    assert len(await client.owned(root)) == 1
    await client.cancel(root)


async def test_s70_depth_nine_and_the_101st_owned_session_are_refused(client: Client) -> None:
    chain = [await new(client)]
    while len(chain) < 8:
        chain += await spawned(client, chain[-1], "spawn script")
    turn = await _failed(client, chain[-1], "spawn script")
    assert turn == "depth_limit"
    assert len(await client.owned(chain[0], recursive=True)) == 7

    wide = await new(client)
    children = await spawned(client, wide, *[f"spawn script key={n}" for n in range(100)])
    assert len(set(children)) == 100
    assert await _failed(client, wide, "spawn script key=100") == "owned_limit"
    assert len(await poll(lambda: _many(client, wide, 100), what="100 owned Sessions")) == 100
    await client.cancel(children[0])
    await poll(lambda: _says_closed(client, wide, children[0]), what="owned.closed")
    assert len(await spawned(client, wide, "spawn script key=100")) == 1
    for root in (chain[0], wide):
        await client.cancel(root)
        await poll(lambda root=root: _all_closed(client, root), what="all closed")


async def _failed(client: Client, session_id: str, steps: str) -> str:
    receipt = await client.enqueue(session_id, steps)
    turn = await settled(client, session_id, receipt.turn_id or "")
    assert (turn.status, turn.error is None) == ("failed", False)
    return turn.error.code if turn.error else ""


async def _many(client: Client, session_id: str, count: int) -> tuple[SessionListed, ...] | None:
    owned = await client.owned(session_id)
    return owned if len(owned) == count else None


async def _all_closed(client: Client, session_id: str) -> bool:
    owned = await client.owned(session_id, recursive=True)
    return bool(owned) and all(session.status == "closed" for session in owned)


async def _says_closed(client: Client, session_id: str, child: str) -> bool:
    events = (await client.events(session_id, kinds=["owned.closed"])).records
    return any(event.data["session_id"] == child for event in events)


async def test_s73_what_a_turn_may_do_to_whom(client: Client) -> None:
    root = await new(client)
    (child,) = await spawned(client, root, "spawn script key=c")
    (independent,) = await spawned(client, root, "start script key=i")
    assert await say(client, root, f"enqueue {child} | sleep 60", f"enqueue {independent} | say no") == (
        f"done: enqueue {child}\nrefused: permission_denied\n"
    )
    await runs_in(client, child)
    by_person = (await client.interrupt(child)).hold_id
    said = await say(client, root, f"interrupt {child}", f"resume {child} {by_person}", f"wait {child}")
    (done, refused, waited) = said.splitlines()
    by_owner = done.removeprefix(f"done: interrupt {child} ")
    assert (refused, waited) == ("refused: permission_denied", "status: interrupted")
    assert {hold.id for hold in (await client.session(child)).holds} == {by_person, by_owner}
    assert await say(client, root, f"resume {child} {by_owner}", f"resume {child} {by_owner}") == (
        f"done: resume {child}\nrefused: hold_not_found\n"
    )
    await client.resume(child, by_person or "")

    # What a Turn that is being stopped still tries: this one swallows its stop and goes on.
    tried = await client.enqueue(child, "stubborn 1.5\nspawn script key=late | say never")
    await runs_in(client, child)
    await client.interrupt_turn(child, tried.turn_id or "")
    await settled(client, child, tried.turn_id or "")
    assert await client.owned(child) == ()

    assert await say(client, root, f"cancel {root}", f"close {independent}", f"cancel {child}") == (
        f"refused: permission_denied\nrefused: permission_denied\ndone: cancel {child}\n"
    )
    assert (await client.session(child)).closed_how == "cancel"
    assert (await client.session(independent)).status == "open"
    await client.cancel(root)
    await client.cancel(independent)


async def test_s73_a_failed_process_of_a_child_is_released_by_its_owner(client: Client) -> None:
    root = await new(client)
    (child,) = await spawned(client, root, "spawn script key=c | crash")
    for _ in range(2):
        await client.enqueue(child, "crash")
    (held,) = await until_all(client, [child], "a hold", lambda view: view.holds)
    assert held.holds[0].kind == "process_failed"
    assert await say(client, root, f"resume {child} {only(held)}") == f"done: resume {child}\n"
    assert not (await client.session(child)).holds
    await client.cancel(root)


# --- what is shown ----------------------------------------------------------------------------------------


async def test_s70_owned_sessions_are_listed_with_parent_and_root(client: Client, stack: Stack) -> None:
    levels = await tree(client, 3)
    root = levels[0][0]
    middle = levels[1][0]

    async def listed() -> bool:
        return len(await client.owned(root, recursive=True)) == 6

    await poll(listed, what="six owned Sessions")
    assert {s.id for s in await client.owned(root)} == set(levels[1])
    assert {s.id for s in await client.owned(root, recursive=True)} == {*levels[1], *levels[2]}
    below = await client.owned(middle, recursive=True)
    assert {s.id for s in below} == {s.id for s in await client.owned(middle)}
    assert {(s.parent_id, s.root_id) for s in below} == {(middle, root)}
    assert {s.id for s in (await client.list_sessions(parent_id=middle)).sessions} == {s.id for s in below}
    view = await client.session(below[0].id)
    assert (view.parent_id, view.root_id) == (middle, root)
    assert (await client.list_turns(view.id)).turns == ()
    for unknown in ("ses_aaaaaaaa", "nonsense"):
        assert await refusal(client.owned(unknown)) == "session_not_found"
    await client.cancel(root)
