"""Controls, idleness and ownership, rule by rule."""

from typing import Any

from tests.unit.driver import EVERYTHING, START, World, code, running
from turnhold.session import commands, steps
from turnhold.session.creation import Config, NewSession
from turnhold.session.machine import Machine
from turnhold.session.values import Origin

# --- interrupt, resume, close, cancel -----------------------------------------------------------------


def test_s50_a_turn_interrupt_stops_one_turn_and_holds_nothing() -> None:
    world = running()
    world.enqueue()
    receipt = world.interrupt(1)
    assert receipt.turn_id == world.state.turn_id(1)
    assert world.statuses() == ["running", "queued"], "until it has stopped"
    world.end("stopped")
    assert world.statuses() == ["interrupted", "running"]
    assert world.state.process.epoch == 1
    assert not world.state.holds


def test_s50_a_queued_or_settled_turn_is_not_interrupted() -> None:
    world = running()
    world.enqueue()
    assert code(world.interrupt(2)) == "turn_not_running"
    world.end()
    assert code(world.interrupt(1)) == "turn_not_running"
    assert code(world.interrupt(9)) == "turn_not_found"


def test_s51_s57_a_session_interrupt_holds_until_every_hold_is_released() -> None:
    world = running()
    world.enqueue()
    first, second = world.interrupt(), world.interrupt()
    assert first.turn_id == world.state.turn_id(1)
    world.end("stopped")
    assert world.last("turn.interrupted").data["reason"] == "session_interrupt"
    world.resume(first.hold_id)
    assert world.statuses() == ["interrupted", "queued"]
    world.resume(second.hold_id)
    assert world.statuses() == ["interrupted", "running"]


def test_s52_a_hold_is_released_once() -> None:
    world = World()
    hold_id = world.interrupt().hold_id
    assert world.resume(hold_id).status == "accepted"
    assert code(world.resume(hold_id)) == "hold_not_found"


def test_s53_close_finishes_what_runs_and_what_is_queued() -> None:
    world = running()
    world.enqueue()
    world.close()
    assert world.state.status == "closing"
    world.end()
    world.end()
    assert world.statuses() == ["completed", "completed"]
    assert world.kinds()[-1] == "session.closed"


def test_s53_close_cancels_at_once_what_a_hold_blocks() -> None:
    world = World("one")
    world.interrupt()
    world.enqueue()
    world.close()
    assert world.kinds()[-4:] == ["session.close", "turn.cancelled", "turn.cancelled", "session.closed"]
    assert world.last("turn.cancelled").data == {"reason": "hold_blocked"}


def test_s53_a_hold_placed_while_closing_cancels_what_it_blocks() -> None:
    world = World("work")
    world.close()
    for pause in (1, 2, 0):
        world.fail_init()
        world.wait(pause)
    assert world.state.status == "closed"
    assert world.statuses() == ["cancelled"]


def test_s54_cancel_ends_all_in_order_and_at_once() -> None:
    world = running()
    world.enqueue()
    world.enqueue()
    world.cancel()
    assert world.kinds()[-4:] == ["turn.cancelled"] * 3 + ["session.closed"]
    cancelled = [e.turn_id for e in world.events if e.kind == "turn.cancelled"]
    assert cancelled == [world.state.turn_id(n) for n in (1, 2, 3)]
    assert world.step(steps.StopProcess).abandon
    world.settle(steps.StopProcess)
    assert world.machine.finished


def test_s55_close_and_cancel_of_a_closed_session_change_nothing() -> None:
    world = World()
    world.cancel()
    last = world.state.last_sequence
    for receipt in (world.close(), world.cancel()):
        assert receipt.status == "accepted"
        assert receipt.event_sequence == last
    assert world.state.last_sequence == last
    assert code(world.resume("hld_00000000")) == "hold_not_found", "unknown IDs come first"


def test_s55_a_hold_that_was_released_by_the_end_is_a_matter_of_a_closed_session() -> None:
    world = World()
    hold_id = world.interrupt().hold_id
    world.cancel()
    assert code(world.resume(hold_id)) == "session_closed"


def test_s56_the_first_accepted_control_decides() -> None:
    world = running()
    world.interrupt(1)
    world.end("completed", result="too late", state={"late": True})
    assert world.statuses() == ["interrupted"]
    assert world.state.committed is None
    assert world.state.turns[1].result is None


def test_s56_a_second_interrupt_is_accepted_and_changes_nothing() -> None:
    world = running()
    world.interrupt(1)
    before = world.state.last_sequence
    assert world.interrupt(1).status == "accepted"
    assert world.state.last_sequence == before
    assert world.state.turns[1].stop is not None


def test_s56_a_cancel_after_an_interrupt_writes_the_interrupt() -> None:
    world = running()
    world.enqueue()
    world.interrupt(1)
    world.cancel()
    assert world.kinds()[-3:] == ["turn.interrupted", "turn.cancelled", "session.closed"]


def test_s59_a_handler_that_ignores_the_stop_loses_its_process() -> None:
    world = running(stop_deadline=2)
    world.enqueue()
    world.interrupt(1)
    world.wait(2)
    assert world.kinds()[-2:] == ["turn.interrupted", "session.process_failed"]
    assert world.last("session.process_failed").data["reason"] == "stop_deadline_elapsed"
    assert world.step(steps.StopProcess).abandon
    world.wait(1)
    world.start()
    assert world.statuses() == ["interrupted", "running"]


# --- idleness -------------------------------------------------------------------------------------


def test_s60_the_clock_runs_under_a_hold_and_is_not_restarted() -> None:
    world = World("work", close_after_idle=10)
    world.interrupt()
    world.wait(6)
    world.enqueue()
    world.interrupt()
    world.wait(4)
    assert world.state.status == "closed"
    assert world.statuses() == ["cancelled", "cancelled"]


def test_s60_a_starting_process_is_not_idle() -> None:
    world = World("work", close_after_idle=10)
    world.wait(60)
    assert world.state.status == "open"


def test_s61_an_idle_close_writes_only_its_end() -> None:
    world = running(close_after_idle=30)
    world.end()
    world.wait(29)
    assert world.state.status == "open"
    world.wait(1)
    assert world.kinds()[-2:] == ["turn.completed", "session.closed"]
    assert world.last("session.closed").data == {"how": "idle"}


def test_s62_a_hibernated_session_wakes_with_its_state() -> None:
    world = running(hibernate_after_idle=60)
    world.end(state={"kept": True})
    world.wait(60)
    world.enqueue()
    assert world.statuses() == ["completed", "queued"], "two Processes are never alive"
    world.settle(steps.StopProcess)
    assert world.last("session.process_stopped").data["reason"] == "hibernated"
    world.start()
    assert world.statuses() == ["completed", "running"]
    assert world.state.committed == {"kept": True}


# --- ownership ------------------------------------------------------------------------------------------


def spawn(world: World, key: str = "k", fingerprint: str = "f", **fields: Any) -> Any:
    child = NewSession(
        agent="script",
        environment="default",
        seed="child",
        config=Config.resolve(),
        request_id=world.request_id(),
        created_at=START,
        owner_id=world.state.id,
        root_id=world.state.root_id,
        depth=world.state.depth + 1,
    )
    return world.give(
        commands.Spawn(
            request_id=world.request_id(),
            idempotency_key=key,
            fingerprint=fingerprint,
            turn_id=world.state.turn_id(1),
            epoch=world.state.process.epoch,
            session_id="ses_child",
            session=child,
            **fields,
        )
    )


def child_of(world: World) -> Machine:
    step = world.step(steps.StartOwned)
    from turnhold.session.ownership import snapshot

    return Machine.begin(
        "ses_child", step.session, world.now, owner_state=snapshot(world.state), withheld=EVERYTHING
    )


def test_s70_one_spawn_key_makes_one_session() -> None:
    world = running()
    first = spawn(world)
    assert spawn(world).spawned_id == first.spawned_id
    assert code(spawn(world, fingerprint="other")) == "idempotency_conflict"
    world.settle(steps.StartOwned)
    assert world.kinds().count("owned.started") == 1


def test_s71_a_held_owner_starts_its_child_held_and_releases_it() -> None:
    world = running()
    spawn(world)
    hold_id = world.interrupt().hold_id
    child = child_of(world)
    assert list(child.state.holds) == [hold_id]
    assert code_of(child, commands.Resume(request_id="req_00000000", hold_id=hold_id or "")) == (
        "hold_owned_by_ancestor"
    )
    world.settle(steps.StartOwned)
    world.resume(hold_id)
    from turnhold.session.ownership import snapshot

    child.owner_said(snapshot(world.state), world.now)
    assert not child.state.holds
    assert child.state.timeline[-1].kind == "session.resume"


def code_of(machine: Machine, command: commands.Command) -> str | None:
    request_id = machine.command(command, START)
    outcome = machine.state.outcomes.get(request_id)
    return outcome.rejection.code if outcome and outcome.rejection else None


def test_s71_cancel_and_close_reach_the_child_in_the_snapshot() -> None:
    from turnhold.session.ownership import snapshot

    for control, how in (("close", "close"), ("cancel", "cancel")):
        world = running()
        spawn(world)
        child = child_of(world)
        world.settle(steps.StartOwned)
        getattr(world, control)()
        child.owner_said(snapshot(world.state), world.now)
        assert child.state.closed_how == how
        world.machine.owned_said(commands.OwnedReport(session_id="ses_child", closed_how=how), world.now)
        if control == "close":
            assert world.state.status == "closing", "its Turn still runs"
            world.end()
        assert world.state.status == "closed"


def test_s71_an_older_snapshot_changes_nothing() -> None:
    from turnhold.session.ownership import snapshot

    world = running()
    spawn(world)
    child = child_of(world)
    world.settle(steps.StartOwned)
    hold_id = world.interrupt().hold_id
    older = snapshot(world.state)
    world.resume(hold_id)
    child.owner_said(snapshot(world.state), world.now)
    child.owner_said(older, world.now)
    assert not child.state.holds


def test_s73_a_session_controls_only_what_it_spawned() -> None:
    world = running()
    stranger = Origin(kind="session", id="ses_stranger")
    receipt = world.give(commands.Cancel(request_id=world.request_id(), caller=stranger))
    assert code(receipt) == "permission_denied"
    hold_id = world.interrupt().hold_id or ""
    own = commands.Resume(
        request_id=world.request_id(), hold_id=hold_id, caller=Origin(kind="session", id=world.state.id)
    )
    assert code(world.give(own)) == "hold_not_releasable"


def test_s73_a_turn_that_is_being_stopped_spawns_nothing() -> None:
    world = running()
    world.interrupt(1)
    assert code(spawn(world)) == "turn_stopping"
