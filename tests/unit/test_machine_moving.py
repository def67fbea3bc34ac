"""A Session stays on its deployment until an operator moves it (S-4)."""

from tests.unit.driver import World, code, running
from turnhold.session import steps

OLD, NEW = "shop:1", "shop:2"


def on_old(text: str = "", **config: object) -> World:
    """A Session on the old deployment, whose first Turn has run if there is a text."""
    world = World(text, **config)
    world.machine.runs_on(OLD, world.now)
    if text:
        world.start()
        world.end(state={"kept": text})
    return world


def test_s4_the_first_deployment_is_no_event() -> None:
    world = on_old()
    assert (world.state.deployment, world.kinds()) == (OLD, [])


def test_s4_an_idle_session_gives_up_its_process_and_leaves() -> None:
    world = on_old("one")
    assert world.move(NEW).status == "accepted"
    assert not world.machine.leaving, "its Process is still there"
    world.settle(steps.StopProcess)
    assert world.last("session.process_stopped").data == {"process_epoch": 1, "reason": "moved"}
    assert world.machine.leaving
    world.roll_over(deployment=NEW)
    assert world.last("session.moved").data == {"from": OLD, "to": NEW}
    assert (world.state.deployment, world.machine.leaving) == (NEW, False)
    assert world.state.committed == {"kept": "one"}
    world.enqueue("two")
    world.start()
    assert world.last("session.process_started").data["process_epoch"] == 2
    assert world.last("session.process_started").data["recovery"] == {
        "kind": "reconstructed",
        "reason": "moved",
    }


def test_s4_a_session_without_a_process_leaves_at_once() -> None:
    world = on_old()
    world.move(NEW)
    assert world.machine.leaving
    world.roll_over(deployment=NEW)
    assert world.kinds() == ["session.moved"]


def test_s4_a_session_that_works_is_not_moved() -> None:
    world = running()
    world.machine.runs_on(OLD, world.now)
    assert code(world.move(NEW)) == "session_not_idle"
    world.end()
    assert world.move(NEW).status == "accepted"


def test_s4_a_session_whose_process_starts_is_not_moved() -> None:
    world = World("one")
    world.machine.runs_on(OLD, world.now)
    assert code(world.move(NEW)) == "session_not_idle"


def test_s4_a_held_session_is_moved_with_its_queue_and_holds() -> None:
    world = on_old("one")
    world.interrupt()
    world.enqueue("two")
    world.move(NEW)
    world.settle(steps.StopProcess)
    world.roll_over(deployment=NEW)
    assert (len(world.state.holds), world.state.queue) == (1, [2])
    world.resume(next(iter(world.state.holds)))
    world.start()
    assert world.state.running == 2


def test_s4_a_process_that_starts_under_a_hold_is_given_up_once_it_is_there() -> None:
    world = World("one")
    world.machine.runs_on(OLD, world.now)
    world.interrupt()
    assert world.move(NEW).status == "accepted"
    assert not world.machine.leaving
    world.start()
    world.settle(steps.StopProcess)
    assert world.machine.leaving


def test_s4_s62_input_that_comes_during_a_move_waits_and_runs_there() -> None:
    world = on_old("one")
    world.move(NEW)
    world.enqueue("two")
    world.settle(steps.StopProcess)
    assert not world.machine.outstanding()
    world.roll_over(deployment=NEW)
    assert world.step(steps.StartProcess).epoch == 2


def test_s4_a_move_that_led_nowhere_else_goes_on_all_the_same() -> None:
    """What was current is not any more: the next run is where the last one was."""
    world = on_old("one")
    world.move(NEW)
    world.enqueue("two")
    world.settle(steps.StopProcess)
    world.roll_over()
    assert "session.moved" not in world.kinds()
    world.start()
    assert world.state.running == 2


def test_s4_an_ordinary_roll_over_forgets_no_move() -> None:
    world = on_old("one")
    world.move(NEW)
    world.roll_over()
    assert not world.machine.leaving
    world.settle(steps.StopProcess)
    assert world.machine.leaving
    world.roll_over(deployment=NEW)
    assert world.last("session.moved").data == {"from": OLD, "to": NEW}


def test_s4_where_it_is_already_nothing_changes() -> None:
    world = on_old("one")
    before = world.state.last_sequence
    assert world.move(OLD).status == "accepted"
    assert (world.state.last_sequence, world.machine.leaving) == (before, False)
    assert world.state.process.status == "live"


def test_s4_a_second_move_under_way_changes_nothing() -> None:
    world = on_old("one")
    world.move(NEW)
    assert world.move(NEW).status == "accepted"
    world.settle(steps.StopProcess)
    assert world.kinds().count("session.process_stopped") == 1


def test_s4_s80_a_session_closed_during_its_move_ends_with_its_closing() -> None:
    world = on_old("one")
    world.move(NEW)
    world.cancel()
    world.roll_over(deployment=NEW)
    assert world.kinds()[-1] == "session.closed"
    for step in world.machine.outstanding():
        world.machine.step_done(step.id, world.now)
    assert world.machine.finished
    assert code(world.move(NEW)) == "session_closed"


def test_s4_another_deployment_within_a_run_is_on_record() -> None:
    """Unversioned workers were replaced by versioned ones: Temporal hands the Session over."""
    world = World("one")
    world.machine.runs_on("unversioned", world.now)
    world.start()
    world.end()
    world.machine.runs_on(OLD, world.now)
    assert world.last("session.moved").data == {"from": "unversioned", "to": OLD}
    assert world.state.process.status == "live"
