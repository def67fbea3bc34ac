"""Controls, idleness and ownership, rule by rule."""

from tests.unit.driver import World, code, running
from turnhold.session import steps

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
