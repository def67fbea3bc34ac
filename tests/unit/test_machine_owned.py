"""Owned Sessions, rule by rule: several machines, and a network between them."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.driver import running
from tests.unit.family import ROOT, Family, by, chain, code, family
from turnhold.session import commands, limits, steps
from turnhold.session.explaining import explain, holds
from turnhold.session.model import Event, HoldKind, Owned
from turnhold.session.processes import place_hold
from turnhold.session.transaction import Transaction
from turnhold.session.values import Origin

# --- the cascade --------------------------------------------------------------------------------------


def test_s51_s52_one_interrupt_holds_the_tree_and_one_resume_releases_it() -> None:
    made = family()
    tree = chain(made, 4)
    independent = made.child(tree[1], "i", independent=True)
    hold_id = made.interrupt(ROOT)
    made.settle()
    for session_id in tree[1:]:
        (hold,) = holds(made.state(session_id))
        assert (hold.id, hold.session_id, hold.kind) == (hold_id, ROOT, "interrupt")
        assert not hold.can_release
        assert made.turn(session_id, 1).reason == "session_interrupt"
        (cause, *_) = explain(made.state(session_id)).causes
        assert cause.clear is not None
        assert cause.clear.path == f"/v1/sessions/{ROOT}/resume"
    assert holds(made.state(ROOT))[0].can_release
    assert made.resume(tree[-1], hold_id) == "hold_owned_by_ancestor"
    assert made.resume(ROOT, hold_id) is None
    for session_id in tree:
        assert not made.state(session_id).holds
        assert made.kinds(session_id).count("session.resume") == 1
    assert made.kinds(independent)[-1] == "turn.running"


def test_s51_a_hold_that_is_gone_when_it_arrives_has_stopped_the_turn_nevertheless() -> None:
    for roll_over in (False, True):
        made = family()
        child, grandchild = chain(made, 3)[1:]
        hold_ids = []
        for _ in range(3):
            hold_ids.append(made.interrupt(ROOT))
            made.give(ROOT, commands.Resume(hold_id=hold_ids[-1]))
        if roll_over:
            made.roll_over(ROOT)
        made.settle()
        for session_id in (child, grandchild):
            state = made.state(session_id)
            assert not state.holds
            turn = made.turn(session_id, 1)
            assert (turn.status, turn.reason) == ("interrupted", "session_interrupt")
            seen = [(e.kind, e.data["hold_id"]) for e in made.events(session_id) if "hold_id" in e.data]
            assert sorted(seen) == sorted(
                (f"session.{what}", hold_id) for what in ("interrupt", "resume") for hold_id in hold_ids
            )
        assert not made.state(ROOT).released
        made.give(child, commands.Enqueue.model_validate({"input": "more"}))
        made.settle()
        later = made.child(child, "later")
        assert "session.interrupt" not in made.kinds(later)


def test_s51_each_interrupt_must_be_released() -> None:
    made = family()
    child = made.child(ROOT)
    first, second = made.interrupt(ROOT), made.interrupt(ROOT)
    own = made.interrupt(child)
    made.settle()
    made.resume(ROOT, first)
    assert set(made.state(child).holds) == {second, own}
    made.resume(ROOT, second)
    assert made.resume(child, own) is None
    assert not made.state(child).holds


def test_s53_close_reaches_the_leaves_first_and_the_root_last() -> None:
    made = family()
    tree = chain(made, 3)
    for session_id in tree:
        made.give(session_id, commands.Enqueue.model_validate({"input": "queued"}))
    made.give(ROOT, commands.Close())
    made.settle()
    refused = made.give(tree[2], commands.Enqueue.model_validate({"input": "late"}))
    assert code(refused) == "session_closing"
    order: list[str] = []
    for session_id in (ROOT, tree[1], tree[2]):
        for _ in range(2):
            made.end_turn(session_id)
            for _ in made.each_step():
                order += [s for s in tree if made.state(s).status == "closed" and s not in order]
    assert order == [tree[2], tree[1], ROOT]
    assert {made.state(s).closed_how for s in tree} == {"close"}
    assert made.kinds(ROOT)[-2:] == ["owned.closed", "session.closed"]
    assert "session.close" not in made.kinds(tree[1])
    assert all(machine.finished for machine in made.machines.values())


def test_s53_what_a_hold_blocks_is_cancelled_throughout() -> None:
    made = family()
    child = made.child(ROOT)
    for session_id in (ROOT, child):
        made.give(session_id, commands.Enqueue.model_validate({"input": "queued"}))
    made.interrupt(ROOT)
    made.settle()
    made.give(ROOT, commands.Close())
    made.settle()
    for session_id in (ROOT, child):
        assert made.state(session_id).status == "closed"
        assert made.turn(session_id, 2).reason == "hold_blocked"


def test_s54_an_owner_ends_once_the_last_word_has_reached_all_it_owns() -> None:
    made = family()
    tree = chain(made, 3)
    made.give(ROOT, commands.Cancel())
    assert made.state(ROOT).status == "closed"
    for _ in made.each_step():
        if any(isinstance(s, steps.SendOwnerState) for s in made.state(ROOT).outstanding.values()):
            assert not made.machines[ROOT].finished
    assert all(made.machines[s].finished for s in tree)


def test_s71_what_a_child_is_started_with_is_not_sent_again() -> None:
    made = family()
    made.resume(ROOT, made.interrupt(ROOT))
    made.give(ROOT, commands.Enqueue.model_validate({"input": "again"}))
    made.settle()
    issued = made.state(ROOT).steps_issued
    child = made.child(ROOT)
    assert made.state(ROOT).steps_issued == issued + 1, "its start, and nothing else"
    assert made.state(child).steps_issued == 2, "its Process and its Turn: it has nothing to say"


def test_s54_cancel_closes_the_tree_also_from_closing() -> None:
    for closing in (False, True):
        made = family()
        tree = chain(made, 3)
        made.stubborn.update(tree)
        if closing:
            made.give(tree[1], commands.Close())
            made.settle()
        made.give(ROOT, commands.Cancel())
        made.settle()
        assert {made.state(s).closed_how for s in tree} == {"cancel"}
        assert "owned.closed" not in made.kinds(ROOT), "they closed after it"
        assert all(machine.finished for machine in made.machines.values())


def test_s61_an_idle_close_cascades_and_says_idle() -> None:
    made = family()
    state = made.state(ROOT)
    state.config = state.config.but(close_after_idle=60)
    child = made.child(ROOT)
    made.end_turn(ROOT)
    made.settle()
    made.wait(30)
    assert made.state(ROOT).status == "open"
    made.wait(31)
    assert made.state(ROOT).status == "closing", "its child still works"
    made.end_turn(child)
    made.settle()
    assert (made.state(ROOT).closed_how, made.state(child).closed_how) == ("idle", "idle")
    assert "session.close" not in made.kinds(child)


@pytest.mark.parametrize("control", ["interrupt", "close", "cancel"])
def test_s71_a_child_that_is_being_created_is_reached(control: str) -> None:
    for pause in range(4):
        made = family()
        request_id, _ = made.spawn(ROOT)
        for _ in range(pause):
            if made.actions:
                made.step()
        hold_id = None
        if control == "interrupt":
            hold_id = made.interrupt(ROOT)
        else:
            made.give(ROOT, {"close": commands.Close, "cancel": commands.Cancel}[control]())
        made.settle()
        receipt = made.receipt(ROOT, request_id)
        assert receipt is not None
        child = receipt.spawned_id or ""
        if hold_id:
            assert set(made.state(child).holds) == {hold_id}
            assert made.resume(ROOT, hold_id) is None
            assert not made.state(child).holds
            continue
        made.end_turn(ROOT)
        made.end_turn(child)
        made.settle()
        assert {made.state(s).status for s in (ROOT, child)} == {"closed"}


def test_s72_a_child_controlled_directly_leaves_its_owner_alone() -> None:
    made = family()
    child = made.child(ROOT)
    hold_id = made.interrupt(child)
    made.settle()
    assert not made.state(ROOT).holds
    assert made.resume(child, hold_id) is None
    made.give(child, commands.Cancel())
    made.settle()
    assert made.state(ROOT).status == "open"
    closed = next(event for event in made.events(ROOT) if event.kind == "owned.closed")
    assert closed.data == {"session_id": child, "how": "cancel"}


# --- authority ----------------------------------------------------------------------------------------


def test_s73_a_session_controls_only_what_it_owns() -> None:
    made = family()
    child = made.child(ROOT)
    sibling = made.child(ROOT, "sibling")
    independent = made.child(ROOT, "i", independent=True)
    grandchild = made.child(child)
    strangers = ((child, ROOT), (sibling, child), (ROOT, independent), (ROOT, grandchild), (ROOT, ROOT))
    for caller, target in strangers:
        hold_id = made.interrupt(target)
        for command in (
            commands.Interrupt(caller=by(caller)),
            commands.Interrupt(caller=by(caller), turn_id=made.state(target).turn_id(1)),
            commands.Close(caller=by(caller)),
            commands.Cancel(caller=by(caller)),
            commands.Enqueue.model_validate({"input": "x", "caller": by(caller)}),
        ):
            assert code(made.give(target, command)) == "permission_denied"
        expected = "hold_not_releasable" if caller == target else "permission_denied"
        assert made.resume(target, hold_id, caller=by(caller)) == expected
    assert made.give(child, commands.Enqueue.model_validate({"input": "x", "caller": by(ROOT)}))
    assert code(made.give(child, commands.Cancel(caller=by(ROOT)))) is None


def test_s52_s73_who_releases_which_hold() -> None:
    made = family()
    child = made.child(ROOT)
    inherited = made.interrupt(ROOT)
    made.settle()
    assert made.resume(child, inherited, caller=by(child)) == "hold_owned_by_ancestor"
    assert made.resume(child, inherited, caller=by(ROOT)) == "hold_owned_by_ancestor"
    assert made.resume(child, inherited) == "hold_owned_by_ancestor"
    by_person = made.interrupt(child)
    assert made.resume(child, by_person, caller=by(child)) == "hold_not_releasable"
    assert made.resume(child, by_person, caller=by(ROOT)) == "permission_denied"
    by_owner = made.interrupt(child, caller=by(ROOT))
    assert made.resume(child, by_owner, caller=by(child)) == "hold_not_releasable"
    assert made.resume(child, by_owner, caller=by(ROOT)) is None
    assert made.resume(child, _place(made, child, "process_failed"), caller=by(ROOT)) is None
    assert made.resume(child, "hld_none", caller=by(ROOT)) == "hold_not_found"


def _place(made: Family, session_id: str, kind: HoldKind) -> str:
    return place_hold(Transaction(made.state(session_id), made.now), kind, Origin(kind="system"))


def test_s71_a_hold_for_failures_is_not_passed_down() -> None:
    made = family()
    child = made.child(ROOT)
    _place(made, ROOT, "process_failed")
    made.interrupt(ROOT)
    made.settle()
    assert [hold.kind for hold in made.state(child).holds.values()] == ["interrupt"]


# --- losses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("roll_over", [False, True])
def test_s75_a_terminated_child_is_noticed_and_keeps_nobody_waiting(roll_over: bool) -> None:
    """At once by the run that has started it; by a later one within two minutes."""
    made = family()
    child = made.child(ROOT)
    made.end_turn(ROOT)
    made.settle()
    if roll_over:
        made.roll_over(ROOT)
    made.give(ROOT, commands.Close())
    made.step()
    made.terminate(child)
    made.settle()
    made.wait(120)
    closed = next(event for event in made.events(ROOT) if event.kind == "owned.closed")
    assert closed.data == {"session_id": child, "how": "terminated"}
    assert made.machines[ROOT].finished


def test_s75_an_idle_owner_notices_a_terminated_child_within_two_minutes() -> None:
    made = family()
    child = made.child(ROOT)
    kept = made.child(ROOT, "kept")
    made.roll_over(ROOT)
    made.settle()
    made.wait(1000)
    made.terminate(child)
    made.wait(120)
    assert [o.session_id for o in made.state(ROOT).owned.values()] == [kept]


def test_s75_a_watched_child_costs_no_look() -> None:
    made = family()
    made.child(ROOT)
    made.end_turn(ROOT)
    made.settle()
    assert made.machines[ROOT].next_deadline() is None
    made.roll_over(ROOT)
    assert made.machines[ROOT].next_deadline() is not None


def test_s75_holds_of_an_owner_that_is_gone_are_released_below() -> None:
    made = family()
    child, grandchild = chain(made, 3)[1:]
    hold_id = made.interrupt(ROOT)
    made.settle()
    made.terminate(ROOT)
    assert made.state(child).status == "open"
    assert made.resume(child, hold_id) is None, "a look tells that its owner is gone"
    assert not made.state(child).holds
    assert not made.state(grandchild).holds, "their owner lives, and has released it"


def test_s75_the_held_notice_by_themselves_that_their_owner_is_gone() -> None:
    made = family()
    child, grandchild = chain(made, 3)[1:]
    hold_id = made.interrupt(ROOT)
    made.settle()
    made.wait(10)
    made.terminate(ROOT)
    made.wait(120)
    (hold,) = holds(made.state(child))
    assert (hold.id, hold.session_id, hold.can_release) == (hold_id, child, True)
    (below,) = holds(made.state(grandchild))
    assert (below.session_id, below.can_release) == (child, False), "its owner has it now"
    assert made.resume(grandchild, hold_id) == "hold_owned_by_ancestor"
    assert made.resume(child, hold_id) is None
    assert not made.state(grandchild).holds


def test_s75_looking_for_an_owner_becomes_rare() -> None:
    made = family()
    child = made.child(ROOT)
    made.interrupt(ROOT)
    made.settle()
    made.wait(86_400)
    looked = made.state(child).steps_issued
    made.wait(86_400)
    assert made.state(child).steps_issued - looked <= 86_400 / limits.LOOK_FOR_OWNER_SECONDS[1] + 1


def test_s3_s52_a_release_that_waits_for_a_look_is_judged_once() -> None:
    made = family()
    child = made.child(ROOT)
    hold_id = made.interrupt(ROOT)
    made.settle()
    command = commands.Resume(request_id="req_waiting00", hold_id=hold_id)
    for roll_over in (False, False, True):
        if roll_over:
            made.roll_over(child)
        waiting = made.give(child, command)
        assert waiting
        assert waiting.status == "pending"
    made.settle()
    receipt = made.receipt(child, "req_waiting00")
    assert code(receipt) == "hold_owned_by_ancestor"


# --- everything at once ---------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_s71_s74_whatever_happens_the_tree_comes_to_one_truth(seed: int) -> None:
    dice = random.Random(seed)
    made = Family(dice)
    placed: list[tuple[str, str]] = []
    for number in range(60):
        for _ in range(dice.randrange(4)):
            if made.actions:
                made.step()
        _something(made, dice, number, placed)
    made.settle()
    made.wait(2 * limits.LOOK_FOR_OWNER_SECONDS[1])
    for session_id, machine in made.machines.items():
        if session_id not in made.terminated:
            _check(made, session_id)
            if machine.state.status == "closed":
                assert machine.finished, f"{session_id} waits for {machine.state.outstanding}"


def _something(made: Family, dice: random.Random, number: int, placed: list[tuple[str, str]]) -> None:
    alive = [s for s, m in made.machines.items() if s not in made.terminated and not m.finished]
    if not alive:
        return
    target = dice.choice(alive)
    what = dice.choices(
        ("spawn", "start", "interrupt", "resume", "end", "roll", "close", "cancel", "terminate", "wait"),
        (12, 2, 6, 8, 3, 5, 1, 1, 1, 2),
    )[0]
    match what:
        case "spawn" | "start":
            made.spawn(target, f"k{dice.randrange(6)}", independent=what == "start", fingerprint="same")
        case "interrupt":
            receipt = made.give(target, commands.Interrupt())
            if receipt and receipt.hold_id:
                placed.append((target, receipt.hold_id))
        case "resume" if placed:
            where, hold_id = dice.choice(placed)
            if where in alive:
                made.give(dice.choice((where, target)), commands.Resume(hold_id=hold_id))
        case "end":
            made.end_turn(target)
            made.give(target, commands.Enqueue.model_validate({"input": f"turn {number}"}))
        case "roll":
            made.roll_over(target)
        case "close":
            made.give(target, commands.Close())
        case "cancel":
            made.give(target, commands.Cancel())
        case "terminate":
            made.terminate(target)
        case _:
            made.wait(40)


def _check(made: Family, session_id: str) -> None:
    """Everything has arrived: what this Session is, follows from its owner."""
    state = made.state(session_id)
    assert [event.sequence for event in made.events(session_id)] == list(range(1, state.last_sequence + 1))
    for owned in state.owned.values():
        assert owned.status == "open"
        assert owned.session_id not in made.terminated
        assert made.state(owned.session_id).status != "closed" or state.status == "closed"
    started = sum(e.kind == "owned.started" for e in state.timeline)
    closed = sum(e.kind == "owned.closed" for e in state.timeline)
    if state.status != "closed":
        assert started == closed + len(state.owned)
    assert not state.released, "everybody has seen them"
    inherited = {h.id for h in state.holds.values() if h.inherited}
    if state.owner is None:
        assert not inherited
        return
    above = made.state(state.owner.session_id)
    if state.owner.session_id in made.terminated:
        assert not inherited, "its owner is gone"
    elif above.status == "closed":
        assert state.status == "closed"
    elif state.status != "closed":
        assert inherited == {h.id for h in above.holds.values() if h.kind == "interrupt"}
        assert above.status == "open" or state.status == "closing"
        since = _placed_since(made, state.owner.session_id, session_id)
        assert since <= {e.data["hold_id"] for e in _interrupts(made, session_id)}


def _interrupts(made: Family, session_id: str) -> list[Event]:
    return [event for event in made.events(session_id) if event.kind == "session.interrupt"]


def _placed_since(made: Family, above: str, session_id: str) -> set[Any]:
    """The holds that were placed above while this Session was there."""
    (started,) = (
        event.sequence
        for event in made.events(above)
        if event.kind == "owned.started" and event.data["session_id"] == session_id
    )
    return {event.data["hold_id"] for event in _interrupts(made, above) if event.sequence > started}


def test_the_records_of_what_is_spawned_stay_small() -> None:
    """What is remembered for life, and 100 open ones, within their share of what a run carries."""
    world = running()
    state = world.state
    state.spawned = {f"{n:016d}": "x" * 12 for n in range(limits.SPAWNS)}
    state.owned = {
        f"{n:016d}": Owned(session_id="ses_" + "x" * 28, agent="a" * 64, turn=n, status="open")
        for n in range(limits.OPEN_OWNED)
    }
    empty = running().state
    assert len(state.model_dump_json()) - len(empty.model_dump_json()) < 192 * 1024
    assert not [s for s in state.outstanding.values() if isinstance(s, steps.StartOwned)]
