"""Messages and questions on a host without Temporal: what handlers do, and what the Session is told."""

import asyncio
import threading
from typing import Any

import pytest

from activities.waiting import ProcessUnknown
from tests.harness import poll
from tests.unit.hosting import (
    SESSION,
    Link,
    make_host,
    run_one,
    start_call,
    stop_call,
    stop_process_call,
    turn_call,
    written,
)
from turnhold import MessageRejected, Option, agent, choice
from turnhold.session import hosting, limits
from turnhold.session.questions import Answer


async def test_s30_messages_are_handled_one_at_a_time_and_settled():
    async def handler(turn, ctx):
        last = asyncio.Event()

        async def hear(message):
            if message.text == "boom":
                raise ValueError("no")
            if message.text == "b":
                last.set()

        await turn.on_message(hear)
        await last.wait()

    link = Link()
    host = make_host(agent("test")(handler), link=link)
    await host.start_process(start_call())
    turn = asyncio.create_task(host.run_turn(turn_call()))
    await poll(lambda: hosting.HandlerRegistered() in link.facts)
    for number, text in enumerate(["a", "boom", "b", "b"], 1):
        number = min(number, 3)
        host.deliver_message(
            hosting.DeliverMessageCall(
                session_id=SESSION, epoch=1, turn_id="trn_1", message_id=f"msg_{number}", content=text
            )
        )
    outcome = await turn
    assert outcome.how == "completed"
    numbered = {r.first + at: f for r in link.reports for at, f in enumerate(r.facts)}
    numbered |= {outcome.first + at: f for at, f in enumerate(outcome.facts)}
    settled = {f.message_id: f.reason for f in numbered.values() if f.kind == "message_settled"}
    assert settled == {"msg_1": None, "msg_2": "handler_failed", "msg_3": None}
    await host.stop_process(stop_process_call())


async def ask_and(answer: hosting.AnswerAskCall | None, link: Link) -> hosting.TurnOutcome:
    async def handler(turn, ctx):
        reply = await turn.ask("Sure?", choice("yes", "no"), timeout=5)
        return reply.selected

    host = make_host(agent("test")(handler), link=link)
    await host.start_process(start_call())
    turn = asyncio.create_task(host.run_turn(turn_call()))
    asked = await poll(lambda: next((f for f in link.facts if f.kind == "ask_created"), None))
    assert (asked.prompt, asked.timeout) == ("Sure?", 5)
    if answer is None:
        host.stop_turn(stop_call())
    else:
        host.answer_ask(answer.but(ask_id=asked.ask_id))
        host.answer_ask(answer.but(ask_id=asked.ask_id, answer=Answer(selected=("no",))))
    outcome = await turn
    await host.stop_process(stop_process_call())
    return outcome


ANSWER = hosting.AnswerAskCall(session_id=SESSION, epoch=1, turn_id="trn_1", ask_id="")


async def test_s41_the_first_answer_wins():
    outcome = await ask_and(ANSWER.but(answer=Answer(selected=("yes",))), Link())
    assert outcome.result == ["yes"]


async def test_s42_a_cancelled_ask_raises_and_not_caught_fails_the_turn():
    outcome = await ask_and(ANSWER.but(reason="timeout"), Link())
    assert (outcome.how, outcome.error.code, outcome.error.type) == (
        "failed",
        "ask_cancelled",
        "AskCancelled",
    )
    assert (await ask_and(None, Link())).how == "stopped"


async def test_s42_an_eleventh_pending_ask_raises():
    async def handler(turn, ctx):
        asking = [asyncio.create_task(turn.ask(str(n))) for n in range(10)]
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError):
            await turn.ask("one more")
        for task in asking:
            task.cancel()
        return "raised"

    assert (await run_one(handler)).result == "raised"


class Hosted:
    """One Turn of an Agent with this handler, while it runs."""

    def __init__(self, handler: Any) -> None:
        self.link = Link()
        self.host = make_host(agent("test")(handler), link=self.link)

    async def __aenter__(self) -> "Hosted":
        await self.host.start_process(start_call())
        self.turn = asyncio.create_task(self.host.run_turn(turn_call()))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.turn.cancel()
        await self.host.stop_process(stop_process_call())

    async def told(self, kind: str, number: int = 1) -> Any:
        """The fact of this kind, the first or a later one, once it is reported."""

        def found() -> Any:
            facts = [fact for fact in self.link.facts if fact.kind == kind]
            return facts[number - 1] if len(facts) >= number else None

        return await poll(found, interval=0.005, what=kind)

    def deliver(self, number: int, text: str) -> None:
        self.host.deliver_message(
            hosting.DeliverMessageCall(
                session_id=SESSION, epoch=1, turn_id="trn_1", message_id=f"msg_{number}", content=text
            )
        )

    def answer(self, ask_id: str, text: str) -> None:
        self.host.answer_ask(
            hosting.AnswerAskCall(
                session_id=SESSION, epoch=1, turn_id="trn_1", ask_id=ask_id, answer=Answer(text=text)
            )
        )


async def test_s32_whatever_a_message_handler_raises_settles_its_message():
    async def handler(turn, ctx):
        async def hear(message):
            if message.text == "number":
                raise MessageRejected(5)
            if message.text == "cancelled":
                raise asyncio.CancelledError
            over.set()

        over = asyncio.Event()
        await turn.on_message(hear)
        await over.wait()

    async with Hosted(handler) as hosted:
        await hosted.told("handler_registered")
        for number, text in enumerate(("number", "cancelled", "fine"), 1):
            hosted.deliver(number, text)
        outcome = await hosted.turn
        settled = [f for f in [*hosted.link.facts, *outcome.facts] if f.kind == "message_settled"]
        assert {f.message_id: f.reason for f in settled} == {
            "msg_1": "5",
            "msg_2": "handler_failed",
            "msg_3": None,
        }


async def test_s33_what_has_started_is_finished_after_the_function_returned():
    finish = threading.Event()

    async def handler(turn, ctx):
        async def hear(message):
            started.set()
            await asyncio.to_thread(finish.wait)
            await turn.output.write(message.text)

        started = asyncio.Event()
        await turn.on_message(hear)
        await started.wait()
        return "returned"

    async with Hosted(handler) as hosted:
        await hosted.told("handler_registered")
        hosted.deliver(1, "one")
        hosted.deliver(2, "two")
        await hosted.told("function_returned")
        assert not hosted.turn.done()
        hosted.deliver(3, "three")
        finish.set()
        outcome = await hosted.turn
        facts = [*hosted.link.facts, *outcome.facts]
        assert (outcome.how, outcome.result, written(facts)) == ("completed", "returned", "one")
        assert {f.message_id for f in facts if f.kind == "message_started"} == {"msg_1"}


async def test_s42_a_question_that_its_handler_gives_up_is_withdrawn():
    async def handler(turn, ctx):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await turn.ask("Anybody?")
        return (await turn.ask("And now?")).text

    async with Hosted(handler) as hosted:
        asked = await hosted.told("ask_created")
        assert (await hosted.told("ask_withdrawn")).ask_id == asked.ask_id
        hosted.answer(asked.ask_id, "too late")
        hosted.answer((await hosted.told("ask_created", 2)).ask_id, "yes")
        assert (await hosted.turn).result == "yes"


async def test_s42_a_stop_withdraws_nothing_and_a_question_in_its_course_raises_at_once():
    said: list[str] = []

    async def handler(turn, ctx):
        try:
            await turn.ask("Well?")
        except asyncio.CancelledError:
            said.append("stopped")
            try:
                await turn.ask("Really?")
            except asyncio.CancelledError:
                said.append("at once")
            raise

    async with Hosted(handler) as hosted:
        await hosted.told("ask_created")
        hosted.host.stop_turn(stop_call())
        outcome = await hosted.turn
        assert (outcome.how, said) == ("stopped", ["stopped", "at once"])
        assert {f.kind for f in [*hosted.link.facts, *outcome.facts]} == {"ask_created"}


async def test_a_question_of_a_task_that_outlives_its_turn_ends_with_it():
    tasks: list[asyncio.Task[Any]] = []

    async def handler(turn, ctx):
        tasks.append(asyncio.create_task(turn.ask("Anybody?")))
        await asyncio.sleep(0.01)

    async with Hosted(handler) as hosted:
        outcome = await hosted.turn
        await poll(lambda: tasks[0].done())
        assert outcome.how == "completed"
        assert not [f for f in [*hosted.link.facts, *outcome.facts] if f.kind == "ask_withdrawn"]


async def test_s40_s15_what_may_not_be_asked_raises_in_the_handler():
    async def handler(turn, ctx):
        long = "x" * limits.ASK_PROMPT_BYTES
        for bad, error in (
            (lambda: turn.ask(long + "x"), ValueError),
            (lambda: turn.ask(b"bytes"), TypeError),
            (lambda: turn.ask("?", control="yes or no"), TypeError),
            (lambda: turn.ask("?", timeout=0), ValueError),
            (lambda: turn.ask("?", choice(Option("a", value="x" * limits.MIB))), ValueError),
        ):
            with pytest.raises(error):
                await bad()
        with pytest.raises(TypeError):
            await turn.on_message("handler")
        asking = [asyncio.create_task(turn.ask(long)) for _ in range(2)]
        await asyncio.sleep(0)
        done, waiting = await asyncio.wait(asking, timeout=0.05)
        assert [type(task.exception()) for task in done] == [ValueError], "too many bytes at once"
        assert len(waiting) == 1
        waiting.pop().cancel()
        for size in (*[limits.MIB - 100] * 7, limits.MIB * 3 // 4):
            await turn.output.write("x" * size)
        with pytest.raises(ValueError, match="output and questions"):
            await turn.ask("x" * limits.ASK_PROMPT_BYTES, timeout=1)
        turn.ask("forgotten")

    outcome = await run_one(handler)
    assert outcome.error is not None
    assert outcome.error.message == "turn.ask was called without await"


async def test_plain_functions_take_messages_and_ask():
    def handler(turn, ctx):
        heard: list[str] = []
        turn.on_message(lambda message: heard.append(message.text))
        while not heard:
            if turn.interrupted.wait(0.01):
                return None
        return [heard, turn.ask("Sure?").text]

    async with Hosted(handler) as hosted:
        await hosted.told("handler_registered")
        hosted.deliver(1, "hello")
        hosted.answer((await hosted.told("ask_created")).ask_id, "yes")
        assert (await hosted.turn).result == [["hello"], "yes"]


async def test_s43_a_host_says_whether_it_has_a_turn():
    async def handler(turn, ctx):
        await turn.ask("Well?")

    def call(turn_id: str = "trn_1", epoch: int = 1) -> hosting.FindTurnCall:
        return hosting.FindTurnCall(session_id=SESSION, epoch=epoch, turn_id=turn_id)

    async with Hosted(handler) as hosted:
        asked = await hosted.told("ask_created")
        hosted.host.find_turn(call())
        for wrong in (call("trn_2"), call().but(session_id="ses_other000")):
            with pytest.raises(ProcessUnknown):
                hosted.host.find_turn(wrong)
        hosted.answer(asked.ask_id, "yes")
        await hosted.turn
        with pytest.raises(ProcessUnknown):
            hosted.host.find_turn(call())
