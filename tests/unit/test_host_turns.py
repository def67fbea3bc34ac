"""Turns on a host: handlers, outcomes, output, state."""

import asyncio
import threading
import time

import pytest

from activities.waiting import ProcessUnknown, Superseded
from tests.harness import poll
from tests.unit.hosting import (
    Link,
    make_host,
    run_one,
    start_call,
    stop_call,
    stop_process_call,
    turn_call,
    written,
)
from turnhold import AskCancelled, Refused, agent
from turnhold.session import limits


async def test_s14_a_result_and_a_response():
    async def handler(turn, ctx):
        turn.respond("done")
        return {"n": (1, 2)}

    outcome = await run_one(handler)
    assert (outcome.how, outcome.result, outcome.process) == ("completed", {"n": [1, 2]}, "live")
    assert outcome.response[0].text == "done"


async def test_s14_a_second_response_raises():
    async def handler(turn, ctx):
        turn.respond("one")
        turn.respond("two")

    outcome = await run_one(handler)
    assert (outcome.how, outcome.error.type, outcome.response) == ("failed", "RuntimeError", None)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (object(), "invalid_result"),
        (float("nan"), "invalid_result"),
        ("\ud800", "invalid_result"),
        ("x" * limits.RESULT_BYTES, "result_too_large"),
    ],
)
async def test_s14_a_result_that_cannot_be_kept_fails_the_turn(value, code):
    async def handler(turn, ctx):
        return value

    outcome = await run_one(handler)
    assert (outcome.how, outcome.error.code, outcome.result) == ("failed", code, None)


async def test_s12_an_exception_fails_the_turn_and_the_next_one_runs():
    async def handler(turn, ctx):
        ctx.state = {"seen": turn.text}
        raise KeyError("\ud800" + "x" * 5_000)

    host = make_host(agent("test")(handler))
    await host.start_process(start_call())
    for number in (1, 2):
        outcome = await host.run_turn(turn_call("hi", number))
        assert (outcome.how, outcome.error.code, outcome.error.type) == (
            "failed",
            "handler_failed",
            "KeyError",
        )
        assert len(outcome.error.message) == limits.ERROR_MESSAGE_CHARS
        assert outcome.state == {"seen": "hi"}
        outcome.model_dump_json()
    await host.stop_process(stop_process_call())


async def test_s73_a_refusal_that_is_not_caught_fails_with_its_code():
    async def handler(turn, ctx):
        await ctx.sessions.spawn("other", "hi", key="k")

    error = (await run_one(handler)).error
    assert (error.code, error.message) == (
        "not_implemented",
        "ctx.sessions.spawn is not available yet",
    )


@pytest.mark.parametrize(
    ("forgetful", "call"),
    [
        (lambda turn: turn.output.write("lost") and None, "turn.output.write"),
        (lambda turn: turn.output.write("returned"), "turn.output.write"),
        (lambda turn: turn.output.pipe(["lost"]) and None, "turn.output.pipe"),
        (lambda turn: turn.on_message(print) and None, "turn.on_message"),
    ],
)
async def test_s12_a_forgotten_await_fails_the_turn(forgetful, call):
    async def handler(turn, ctx):
        await turn.output.write("kept")
        return forgetful(turn)

    outcome = await run_one(handler)
    assert (outcome.how, outcome.error.code) == ("failed", "handler_failed")
    assert outcome.error.message == f"{call} was called without await"


async def test_s12_calls_that_a_task_makes_or_that_are_cancelled_are_not_forgotten():
    async def handler(turn, ctx):
        await asyncio.gather(turn.output.write("a"), turn.output.write("b"))
        cancelled = asyncio.create_task(turn.output.write("never"))
        cancelled.cancel()
        turn.kept = asyncio.create_task(turn.output.write("c"))

    link = Link()
    outcome = await run_one(handler, link=link)
    assert outcome.how == "completed"
    assert written([*link.facts, *outcome.facts]) == "abc"


@pytest.mark.parametrize("plain", [False, True])
async def test_s15_pipe_takes_any_iterable_and_refuses_the_rest(plain):
    async def counted():
        yield "1"
        yield ["2", {"type": "text", "text": "3"}]

    async def handler(turn, ctx):
        await turn.output.pipe(counted())
        await turn.output.pipe(["4", "5"])
        await turn.output.pipe("67")

    def plain_handler(turn, ctx):
        turn.output.pipe(str(n) for n in range(1, 6))
        turn.output.pipe("67")

    link = Link()
    outcome = await run_one(plain_handler if plain else handler, link=link)
    assert outcome.error.message == "pipe writes all that an iterable yields, and was given a str"
    assert written([*link.facts, *outcome.facts]) == "12345"


async def test_s14_what_is_no_response_is_told_what_is():
    async def handler(turn, ctx):
        turn.respond(3)

    assert (await run_one(handler)).error.message.startswith("content is text, a JsonPart, or a list of both")


async def test_s18_every_turn_has_a_fresh_copy_and_invalid_state_commits_nothing():
    async def handler(turn, ctx):
        ctx.state["n"] += 1
        if turn.text == "break":
            ctx.state["n"] = {1}
        return ctx.state["n"] if turn.text != "break" else None

    outcome = await run_one(handler, state={"n": 1})
    assert (outcome.result, outcome.state) == (2, {"n": 2})
    outcome = await run_one(handler, "break", state={"n": 1})
    assert (outcome.how, outcome.error.code, outcome.state) == ("failed", "invalid_state", {"n": 1})

    async def large(turn, ctx):
        ctx.state = "x" * limits.STATE_BYTES

    assert (await run_one(large)).error.code == "invalid_state"


async def test_s15_a_short_turn_sends_no_report():
    async def handler(turn, ctx):
        await turn.output.write("a")
        await turn.output.write("b")
        await turn.output.write({"type": "json", "value": 1})

    link = Link()
    outcome = await run_one(handler, link=link)
    assert link.reports == []
    assert outcome.first == 1
    assert [part.type for fact in outcome.facts for part in fact.content] == ["text", "json"]
    assert written(outcome.facts) == "ab"


async def test_s15_output_is_complete_and_numbered_without_gaps_whatever_the_link_does():
    async def handler(turn, ctx):
        for number in range(3_000):
            await turn.output.write(f"{number:06d}" + "x" * 494)
            if number % 500 == 0:
                await asyncio.sleep(0.02)

    link = Link()
    link.down = 2
    outcome = await run_one(handler, link=link)
    taken, text = 0, ""
    for first, facts in [*((r.first, r.facts) for r in link.reports), (outcome.first, outcome.facts)]:
        for number, fact in enumerate(facts, first):
            if number > taken:
                assert number == taken + 1
                taken, text = number, text + written([fact])
    assert [int(text[at : at + 6]) for at in range(0, len(text), 500)] == list(range(3_000))
    for report in link.reports:
        assert len(report.model_dump_json()) < 2 * limits.REPORT_BYTES
    assert len(outcome.model_dump_json()) < 2 * limits.REPORT_BYTES


async def test_s15_a_fragment_too_large_and_too_much_output_raise():
    async def fragment(turn, ctx):
        await turn.output.write("x" * limits.OUTPUT_FRAGMENT_BYTES)

    async def much(turn, ctx):
        for _ in range(9):
            await turn.output.write("ü" * (limits.MIB // 2))

    assert (await run_one(fragment)).error.type == "ValueError"
    link = Link()
    outcome = await run_one(much, link=link)
    assert outcome.error.type == "ValueError"


async def test_s15_a_lone_surrogate_raises_in_the_handler():
    async def handler(turn, ctx):
        for call in (lambda: turn.output.write("a\ud800"), lambda: turn.respond("\ud800")):
            try:
                await call()
            except ValueError:
                continue
            return "not raised"
        return "raised"

    assert (await run_one(handler)).result == "raised"


async def test_s15_write_waits_while_nothing_can_be_sent():
    progress = []

    async def handler(turn, ctx):
        for number in range(4):
            await turn.output.write("x" * (limits.MIB // 2))
            progress.append(number)

    link = Link()
    link.down = 1_000_000
    host = make_host(agent("test")(handler), link=link)
    await host.start_process(start_call())
    turn = asyncio.create_task(host.run_turn(turn_call()))
    await poll(lambda: link.down < 999_998)
    assert progress == [0]
    link.down = 0
    outcome = await turn
    assert outcome.how == "completed"
    await host.stop_process(stop_process_call())


async def test_s16_a_turn_that_is_over_cannot_write():
    kept = []

    async def handler(turn, ctx):
        if kept:
            with pytest.raises(RuntimeError):
                await kept[0].output.write("late")
            return "refused"
        kept.append(turn)
        return None

    host = make_host(agent("test")(handler))
    await host.start_process(start_call())
    await host.run_turn(turn_call(number=1))
    assert (await host.run_turn(turn_call(number=2))).result == "refused"
    await host.stop_process(stop_process_call())


def blocking(turn, ctx):
    turn.output.write(f"{threading.current_thread().name}\n")
    ctx.state = [turn.text, len(ctx.history(5))]
    if turn.text == "wait":
        turn.interrupted.wait(10)
        try:
            turn.output.write("not")
        except asyncio.CancelledError:
            turn.output.write("cleaned up")
            raise
    if turn.text == "stop iteration":
        next(iter(()))
    return turn.sequence


async def test_plain_functions_run_in_a_thread_with_blocking_twins():
    outcome = await run_one(blocking, "hi")
    assert (outcome.how, outcome.result, outcome.state) == ("completed", 1, ["hi", 0])
    assert "process-" in written(outcome.facts)
    outcome = await run_one(blocking, "stop iteration")
    assert (outcome.how, outcome.error.type) == ("failed", "RuntimeError")


async def test_plain_functions_notice_a_stop():
    host = make_host(agent("test")(blocking))
    await host.start_process(start_call())
    turn = asyncio.create_task(host.run_turn(turn_call("wait")))
    await asyncio.sleep(0)
    host.stop_turn(stop_call())
    outcome = await turn
    assert outcome.how == "stopped"
    await host.stop_process(stop_process_call())


async def test_s13_a_second_call_attaches_and_the_first_is_superseded():
    release = threading.Event()

    async def handler(turn, ctx):
        while not release.is_set():  # noqa: ASYNC110 - set on another loop
            await asyncio.sleep(0.01)
        return "once"

    host = make_host(agent("test")(handler))
    await host.start_process(start_call())
    first = asyncio.create_task(host.run_turn(turn_call()))
    await asyncio.sleep(0)
    second = asyncio.create_task(host.run_turn(turn_call()))
    with pytest.raises(Superseded):
        await first
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    release.set()
    assert (await host.run_turn(turn_call())).result == "once"
    assert (await host.run_turn(turn_call())).result == "once", "kept until the next Turn shows it arrived"
    await host.run_turn(turn_call(number=2))
    with pytest.raises(ProcessUnknown):
        await host.run_turn(turn_call(number=1))
    await host.stop_process(stop_process_call())


async def test_s10_facts_are_numbered_through_all_turns_of_a_process():
    async def handler(turn, ctx):
        await turn.output.write("x")

    host = make_host(agent("test")(handler))
    await host.start_process(start_call())
    firsts = [(await host.run_turn(turn_call(number=n))).first for n in (1, 2, 3)]
    assert firsts == [1, 2, 3]
    await host.stop_process(stop_process_call())


async def test_s58_a_stop_before_the_turn_leaves_it_unbegun_and_one_after_interrupts():
    began = []

    async def handler(turn, ctx):
        began.append(turn.id)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await turn.output.write("cleaned up")
            assert turn.interrupted

    host = make_host(agent("test")(handler))
    await host.start_process(start_call())
    host.stop_turn(stop_call(1))
    assert (await host.run_turn(turn_call(number=1))).how == "stopped"
    assert began == []
    turn = asyncio.create_task(host.run_turn(turn_call(number=2)))
    await poll(lambda: began)
    stopped_at = time.monotonic()
    host.stop_turn(stop_call(2))
    outcome = await turn
    assert (outcome.how, outcome.reason, written(outcome.facts)) == ("stopped", None, "cleaned up")
    assert time.monotonic() - stopped_at < 1
    await host.stop_process(stop_process_call())


def test_what_authors_catch_is_exported():
    assert Refused("x", "y").code == "x"
    assert AskCancelled("timeout").reason == "timeout"
