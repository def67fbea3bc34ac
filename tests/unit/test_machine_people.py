"""Messages and Asks, rule by rule."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic_core import to_json

from tests.unit.driver import World, code, running
from turnhold.session import commands, hosting, limits, steps
from turnhold.session.questions import Answer, ChoiceControl, Option, TextControl
from turnhold.session.values import Origin
from turnhold.session.views import AsksRequest, ReadRequest, ReceiptView

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
    assert code(world.send(1, fallback="enqueue")) == "message_limit", "this Turn does take messages"


def test_s31_messages_are_handed_to_the_host_one_by_one_in_order() -> None:
    world = listening()
    sent = [world.send(1).message_id for _ in range(3)]
    handed = []
    for _ in sent:
        handed.append(world.step(steps.DeliverMessage).message_id)
        world.roll_over()
        world.settle(steps.DeliverMessage)
    assert handed == sent
    assert not [s for s in world.machine.outstanding() if isinstance(s, steps.DeliverMessage)]
    world.send(1)
    world.say(hosting.FunctionReturned())
    assert not [s for s in world.machine.outstanding() if isinstance(s, steps.DeliverMessage)]


def test_s33_a_started_message_that_was_cut_off_has_no_known_outcome() -> None:
    """The host may stop its handler by itself, after the Turn's function has returned."""
    world = listening()
    started, waiting = world.send(1).message_id or "", world.send(1).message_id
    world.say(hosting.MessageStarted(message_id=started))
    world.end()
    rejected = {e.data["message_id"]: e.data for e in world.events if e.kind == "message.rejected"}
    assert (rejected[started]["reason"], rejected[started]["outcome"]) == ("turn_stopped", "unknown")
    assert rejected[waiting]["reason"] == "turn_settling"


def test_s95_what_waits_for_a_handler_is_bounded() -> None:
    world = listening()
    size = limits.CONTENT_BYTES - 100
    codes = [code(world.send(1, text="x" * size)) for _ in range(4)]
    assert codes == [None, None, "session_busy", "session_busy"]
    assert code(world.enqueue("x" * size)) == "session_busy"


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


def answer(
    world: World, response_id: str | None = None, sent_at: datetime | None = None, **given: Any
) -> ReceiptView:
    return world.give(
        commands.AnswerAsk(
            request_id=world.request_id(),
            turn_id=world.state.turn_id(1),
            ask_id=next(iter(world.state.asks)),
            answer=Answer(**given),
            response_id=response_id,
            sent_at=sent_at,
            caller=Origin(kind="api_key", id="ann"),
        )
    )


def test_s41_the_first_valid_answer_wins() -> None:
    world = asking()
    first = answer(world, text="yes", response_id="r1")
    assert first.status == "accepted"
    assert world.last("ask.answered").data["answered_by"] == {"kind": "api_key", "id": "ann"}
    world.write("more")
    assert answer(world, text="yes", response_id="r1") == first.but(replay=True), "the same receipt"
    assert code(answer(world, text="no", response_id="r1")) == "ask_settled"
    assert code(answer(world, text="", response_id="r1")) == "ask_settled"
    assert code(answer(world, text="yes", response_id="r2")) == "ask_settled"
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


def test_s42_an_ask_of_a_turn_that_is_being_stopped_or_closing_ends_at_once() -> None:
    for stop, reason, told in (
        (lambda w: w.interrupt(1), "interrupt", False),
        (lambda w: w.interrupt(), "interrupt", False),
        (lambda w: w.close(), "close", True),
    ):
        world = running()
        stop(world)
        world.say(hosting.AskCreated(ask_id=world.ask_id(), prompt="?", control=TextControl()))
        assert world.kinds()[-2:] == ["ask.created", "ask.cancelled"]
        assert world.last("ask.cancelled").data["reason"] == reason
        outstanding = [s for s in world.machine.outstanding() if isinstance(s, steps.AnswerAsk)]
        assert bool(outstanding) == told, "a stop arrives by itself"


def test_s42_what_a_handler_gives_up_by_itself_is_withdrawn() -> None:
    world = asking()
    world.say(hosting.AskWithdrawn(ask_id=world.ask_id()))
    assert world.last("ask.cancelled").data["reason"] == "withdrawn"
    assert code(answer(world, text="yes")) == "ask_settled"
    world = asking()
    answer(world, text="yes")
    world.say(hosting.AskWithdrawn(ask_id=world.ask_id()))
    assert "ask.cancelled" not in world.kinds()


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda w: w.end(), "turn_ended"),
        (lambda w: w.end("failed"), "turn_ended"),
        (lambda w: w.end("died", process="process_failed"), "process_failed"),
        (lambda w: w.end("stopped", reason="worker_shutdown", process="worker_shutdown"), "worker_shutdown"),
        (lambda w: w.lose("lost"), "execution_lost"),
        (lambda w: w.cancel(), "cancel"),
        (lambda w: w.wait(20), "deadline"),
    ],
)
def test_s42_no_ask_stays_pending_behind_its_turn(end: Any, reason: str) -> None:
    world = asking(max_turn_duration=20, stop_deadline=5)
    world.wait(1)
    end(world)
    assert world.last("ask.cancelled").data["reason"] == reason
    assert code(answer(world, text="x")) == ("session_closed" if reason == "cancel" else "ask_settled")
    assert not [s for s in world.machine.outstanding() if isinstance(s, steps.AnswerAsk)]


def test_s43_an_answer_is_kept_until_the_host_has_it_or_the_turn_ends() -> None:
    world = asking()
    answer(world, text="yes")
    step = world.step(steps.AnswerAsk)
    world.roll_over()
    assert world.step(steps.AnswerAsk) == step
    world.end()
    assert not [s for s in world.machine.outstanding() if isinstance(s, steps.AnswerAsk)]


def late(world: World, **given: Any) -> ReceiptView:
    return answer(world, sent_at=world.now - timedelta(minutes=5), **given)


def test_s43_an_answer_that_comes_late_is_judged_once_the_host_is_heard() -> None:
    world = asking()
    assert code(late(world)) == "invalid_answer"
    first = late(world, text="first", response_id="r")
    again = late(world, text="first", response_id="r")
    assert (first.status, again.status) == ("pending", "pending")
    assert code(late(world, text="second")) == "ask_settled"
    assert code(answer(world, text="third")) == "ask_settled", "also one that comes at once"
    world.roll_over()
    world.settle(steps.FindTurn)
    first, again = world.receipt(first.request_id), world.receipt(again.request_id)
    assert first.status == "accepted"
    assert again == first.but(replay=True)
    assert world.last("ask.answered").data["answer"] == {"text": "first"}
    assert world.step(steps.AnswerAsk)


def test_s43_an_answer_that_comes_late_to_a_host_that_is_gone_is_settled() -> None:
    world = asking()
    first, again = (late(world, text="x", response_id="r").request_id for _ in range(2))
    world.lose("refused", steps.FindTurn)
    assert world.receipt(first).status == "pending", "the Turn's end is on its way"
    world.lose("lost")
    assert [code(world.receipt(request)) for request in (first, again)] == ["ask_settled"] * 2
    assert "ask.answered" not in world.kinds()
    world = asking()
    waiting = late(world, text="x").request_id
    world.cancel()
    assert code(world.receipt(waiting)) == "session_closed"
    assert world.machine.state.late == {}


# --- reading ------------------------------------------------------------------------------------------


def test_asks_are_read_in_pages_by_turn_and_status() -> None:
    world = running()
    for number in range(1, 8):
        prompt = f"{number} ".ljust(limits.ASK_PROMPT_BYTES, "x")
        world.say(hosting.AskCreated(ask_id=world.ask_id(number), prompt=prompt, control=TextControl()))
    answer(world, text="yes")
    world.enqueue()

    def read(**wanted: Any) -> Any:
        request = ReadRequest(ask_pages=(AsksRequest(**wanted),))
        return world.machine.read(request, world.now).ask_pages[0]

    page = read()
    assert [ask.prompt[0] for ask in page.asks] == ["1", "2", "3"]
    assert page.has_more
    rest = read(after=page.asks[-1].id)
    assert [ask.prompt[0] for ask in rest.asks] == ["4", "5", "6"]
    assert [ask.prompt[0] for ask in read(after=rest.asks[-1].id).asks] == ["7"]
    assert [ask.prompt[0] for ask in read(status="answered").asks] == ["1"]
    assert [ask.id for ask in read(ask_id=world.ask_id(5)).asks] == [world.ask_id(5)]
    assert read(turn_id=world.state.turn_id(2)).asks == ()
    assert read(turn_id=world.state.turn_id(2)).turn_known
    assert not read(turn_id=world.state.turn_id(3)).turn_known


def test_a_run_hands_on_every_question_at_work_and_the_newest_of_the_others() -> None:
    world = running()
    for number in range(1, 21):
        prompt = f"{number} ".ljust(limits.ASK_PROMPT_BYTES // 2, "x")
        world.say(hosting.AskCreated(ask_id=world.ask_id(number), prompt=prompt, control=TextControl()))
        if number < 19:
            world.give(
                commands.AnswerAsk(
                    request_id=world.request_id(),
                    turn_id=world.state.turn_id(1),
                    ask_id=world.ask_id(number),
                    answer=Answer(text="yes"),
                )
            )
            if number > 1:
                world.machine.step_done(world.machine.outstanding()[-1].id, world.now)
    world.roll_over()
    assert len(to_json(world.state, exclude_none=True)) < 2 * limits.MIB
    kept = [int(ask.prompt.split()[0]) for ask in world.state.asks.values()]
    assert (kept[0], kept[-2:]) == (1, [19, 20]), "its answer is on its way; two wait"
    assert kept[1:] == list(range(21 - len(kept[1:]), 21))
    assert len(kept) < 20


def test_s13_a_turn_that_has_spoken_is_never_taken_for_one_that_has_not_begun() -> None:
    for world in (listening(), asking()):
        world.lose("not_taken")
        assert world.statuses() == ["interrupted"]
        assert world.last("turn.interrupted").data["reason"] == "execution_lost"
