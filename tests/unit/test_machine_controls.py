"""Controls, people, idleness and ownership, rule by rule."""

from typing import Any

import pytest

from tests.unit.driver import World, code, running
from turnhold.session import commands, hosting, steps
from turnhold.session.model import Answer, ChoiceControl, Option, TextControl
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


# --- messages -------------------------------------------------------------------------------------


def listening() -> World:
    world = running()
    world.say(hosting.HandlerRegistered())
    return world


def test_s30_messages_need_a_running_turn_that_listens() -> None:
    world = running()
    world.enqueue()
    assert code(world.send(1)) == "turn_not_accepting_messages"
    assert code(world.send(2)) == "turn_not_running"
    world.say(hosting.HandlerRegistered())
    assert world.send(1).message_id
    world.say(hosting.FunctionReturned())
    assert code(world.send(1)) == "turn_not_accepting_messages"


def test_s30_the_fallback_makes_it_a_turn_once() -> None:
    world = running()
    receipt = world.send(1, fallback="enqueue")
    assert receipt.message_id is None
    assert receipt.turn_id == world.state.turn_id(2)
    assert world.state.admission_tokens == 2


def test_s33_a_stop_leaves_no_message_open() -> None:
    world = listening()
    started, waiting = world.send(1).message_id, world.send(1).message_id
    assert started
    world.say(hosting.MessageStarted(message_id=started))
    world.interrupt(1)
    rejected = {e.data["message_id"]: e.data for e in world.events if e.kind == "message.rejected"}
    assert rejected[started]["outcome"] == "unknown"
    assert "outcome" not in rejected[waiting or ""]
    assert {r["reason"] for r in rejected.values()} == {"turn_stopped"}


def test_s33_a_started_message_is_finished_when_the_function_returned() -> None:
    world = listening()
    started = world.send(1).message_id or ""
    world.send(1)
    world.say(hosting.MessageStarted(message_id=started), hosting.FunctionReturned())
    assert world.last("message.rejected").data["reason"] == "turn_settling"
    world.say(hosting.MessageSettled(message_id=started))
    world.end()
    assert world.kinds()[-2:] == ["message.delivered", "turn.completed"]


def test_s34_a_hundred_open_messages_and_no_more() -> None:
    world = listening()
    for _ in range(100):
        assert world.send(1).status == "accepted"
    assert code(world.send(1)) == "message_limit"


# --- asks ---------------------------------------------------------------------------------------------

CHOICE = ChoiceControl(
    options=tuple(Option(id=i, label=i, value=i) for i in ("a", "b", "c")), multiple=True, allow_text=True
)


def asking(control: Any = None, timeout: float | None = None, **config: Any) -> World:
    world = running(**config)
    fact = hosting.AskCreated(
        ask_id=world.ask_id(), prompt="Which?", control=control or TextControl(), timeout=timeout
    )
    world.say(fact)
    return world


def answer(world: World, response_id: str | None = None, **given: Any) -> Any:
    return world.give(
        commands.AnswerAsk(
            request_id=world.request_id(),
            turn_id=world.state.turn_id(1),
            ask_id=next(iter(world.state.asks)),
            answer=Answer(**given),
            response_id=response_id,
            caller=Origin(kind="api_key", id="ann"),
        )
    )


def test_s41_the_first_valid_answer_wins() -> None:
    world = asking()
    assert answer(world, text="yes", response_id="r1").status == "accepted"
    assert world.last("ask.answered").data["answered_by"] == {"kind": "api_key", "id": "ann"}
    assert answer(world, text="yes", response_id="r1").status == "accepted"
    assert code(answer(world, text="no", response_id="r1")) == "ask_settled"
    assert code(answer(world, text="yes")) == "ask_settled"
    assert world.kinds().count("ask.answered") == 1


@pytest.mark.parametrize(
    "given",
    [
        {"selected": ("d",)},
        {"selected": ("b", "a")},
        {"selected": ("a", "a")},
        {"selected": ()},
        {},
        {"text": ""},
        {"text": "x" * 8193},
    ],
)
def test_s41_a_wrong_answer_leaves_the_ask_pending(given: dict[str, Any]) -> None:
    world = asking(CHOICE)
    assert code(answer(world, **given)) == "invalid_answer"
    assert world.state.asks[world.ask_id()].status == "pending"


def test_s41_a_choice_takes_what_it_declares() -> None:
    world = asking(CHOICE)
    assert answer(world, selected=("a", "c"), text="and more").status == "accepted"
    assert world.last("ask.answered").data["answer"] == {"selected": ["a", "c"], "text": "and more"}


def test_s42_an_interrupt_cancels_the_question_before_the_turn_ends() -> None:
    world = asking()
    world.interrupt(1)
    world.end("stopped")
    assert world.kinds()[-2:] == ["ask.cancelled", "turn.interrupted"]


def test_s42_close_cancels_the_question_and_the_turn_may_finish() -> None:
    world = asking()
    world.close()
    assert world.last("ask.cancelled").data["reason"] == "close"
    assert world.step(steps.AnswerAsk)
    world.settle(steps.AnswerAsk)
    world.end()
    assert world.state.status == "closed"


def test_s42_a_question_may_time_out() -> None:
    world = asking(timeout=5)
    world.wait(5)
    assert world.last("ask.cancelled").data["reason"] == "timeout"
