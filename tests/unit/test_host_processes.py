"""Processes on a host: init, death, stops that are ignored, the worker's end."""

import asyncio
import sys
import time

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.calls import HostActivities
from activities.waiting import GivenUp, ProcessUnknown
from tests.harness import poll
from tests.unit.hosting import (
    SESSION,
    Link,
    make_host,
    start_call,
    stop_call,
    stop_process_call,
    turn_call,
    written,
)
from turnhold import agent
from turnhold.scripted import script
from turnhold.session.hosting import PROCESS_GONE, ProcessGone


def with_init(hook):
    @agent("test")
    async def handler(turn, ctx):
        return ctx.process

    handler.init(hook)
    return handler


async def test_s20_init_runs_once_and_its_value_lives_as_long_as_the_process():
    ran = []

    async def init(ctx):
        ran.append((ctx.process_epoch, ctx.recovery.kind, ctx.state, ctx.session.id))
        return {"n": 1}

    host = make_host(with_init(init))
    started = await host.start_process(start_call(state={"s": 1}))
    assert (started.status, started.queue, started.deployment) == ("started", "q-host-1", "unversioned")
    for number in (1, 2):
        assert (await host.run_turn(turn_call(number=number))).result == {"n": 1}
    assert ran == [(1, "initial", {"s": 1}, SESSION)]
    await host.stop_process(stop_process_call())
    with pytest.raises(ProcessUnknown):
        await host.run_turn(turn_call(number=3))


def raising(ctx):
    raise OSError("no disk")


async def exiting(ctx):
    raise SystemExit(3)


def slow(ctx):
    time.sleep(0.5)


@pytest.mark.parametrize(
    ("hook", "said"),
    [(raising, "OSError: no disk"), (exiting, "exited with 3"), (slow, "took longer than 0.1 s")],
)
async def test_s21_init_that_fails_says_why(hook, said, caplog):
    host = make_host(with_init(hook))
    result = await host.start_process(start_call(init_timeout=0.1 if hook is slow else 5))
    assert result.status == "init_failed"
    assert said in result.detail
    [logged] = caplog.records
    assert said in logged.getMessage()
    assert (logged.exc_info is None) == (hook is slow)
    assert host.occupied == 0


async def test_s6_an_unknown_agent_is_said():
    result = await make_host().start_process(start_call("nobody"))
    assert result.status == "agent_not_found"


async def test_s21_a_crash_ends_the_process_and_the_outcome_says_so():
    host = make_host(script)
    await host.start_process(start_call("script"))
    outcome = await host.run_turn(turn_call("say before\ncrash\nsay after"))
    assert (outcome.how, outcome.process, written(outcome.facts)) == ("died", "process_failed", "before\n")
    assert "crash" in outcome.detail
    assert host.occupied == 0
    assert await host.run_turn(turn_call()) == outcome, "kept for a Session that has not got it"
    with pytest.raises(ProcessUnknown):
        await host.run_turn(turn_call(number=2))


async def test_s21_a_process_that_dies_beside_its_turn_ends_it():
    async def handler(turn, ctx):
        asyncio.get_running_loop().call_soon(sys.exit, "from the side")
        await asyncio.sleep(30)

    host = make_host(agent("test")(handler))
    await host.start_process(start_call())
    outcome = await host.run_turn(turn_call())
    assert (outcome.how, outcome.process) == ("died", "process_failed")


async def test_s21_a_process_that_dies_between_turns_is_reported():
    loops = []

    async def init(ctx):
        loops.append(asyncio.get_running_loop())

    link = Link()
    definition = with_init(init)
    definition.handler = lambda turn, ctx: turn.output.write("x")
    host = make_host(definition, link=link)
    await host.start_process(start_call())
    outcome = await host.run_turn(turn_call())
    loops[0].call_soon_threadsafe(sys.exit, "idle")
    await poll(lambda: host.occupied == 0)
    (report,) = link.reports
    assert report.first == outcome.first, "with the outcome's facts, in case that has not arrived"
    assert report.facts[-1] == ProcessGone(reason="process_failed", detail="The Process exited with idle.")


async def test_s59_a_stop_that_is_ignored_ends_when_the_process_is_abandoned():
    host = make_host(script)
    await host.start_process(start_call("script"))
    turn = asyncio.create_task(host.run_turn(turn_call("stubborn 1.5\nsay late")))
    await asyncio.sleep(0.05)
    host.stop_turn(stop_call())
    begun = time.monotonic()
    await host.stop_process(stop_process_call(abandon=True))
    assert time.monotonic() - begun < 0.5
    with pytest.raises(GivenUp):
        await turn


async def test_s59_stop_process_waits_for_a_handler_up_to_the_deadline():
    host = make_host(script)
    await host.start_process(start_call("script"))
    turn = asyncio.create_task(host.run_turn(turn_call("block 1")))
    await asyncio.sleep(0.05)
    begun = time.monotonic()
    await host.stop_process(stop_process_call(deadline=0.2))
    assert 0.2 <= time.monotonic() - begun < 0.8
    with pytest.raises(GivenUp):
        await turn


async def test_a_blocked_process_holds_up_nobody_else():
    host = make_host(script)
    other = "ses_other000"
    await host.start_process(start_call("script"))
    await host.start_process(start_call("script", session_id=other))
    blocked = asyncio.create_task(host.run_turn(turn_call("block 1")))
    begun = time.monotonic()
    outcome = await host.run_turn(turn_call("say hi", session_id=other))
    assert time.monotonic() - begun < 0.5
    assert written(outcome.facts) == "hi\n"
    assert (await blocked).how == "completed"


async def test_s25_a_worker_that_stops_waits_until_the_session_has_the_outcome():
    link = Link()
    link.expected[SESSION] = 1  # the call that takes the outcome has been given up
    host = make_host(script, link=link)
    await host.start_process(start_call("script"))
    given_up = asyncio.create_task(host.run_turn(turn_call("sleep 0.2\nsay done")))
    await asyncio.sleep(0)
    draining = asyncio.create_task(host.drain(10, asyncio.Event()))
    outcome = await given_up
    await asyncio.sleep(0.3)
    assert not draining.done()
    assert await host.run_turn(turn_call("sleep 0.2\nsay done")) == outcome
    link.expected[SESSION] = 2
    await draining


async def test_s25_a_turn_on_its_way_to_a_worker_that_stops_is_refused_until_its_session_knows():
    link = Link()
    host = make_host(script, link=link)
    await host.start_process(start_call("script"))
    draining = asyncio.create_task(host.drain(10, asyncio.Event()))
    await poll(lambda: link.facts == [ProcessGone(reason="worker_shutdown")])
    with pytest.raises(ProcessUnknown):
        await host.run_turn(turn_call("say hi"))
    assert not draining.done()
    link.expected[SESSION] = 2
    await draining


async def test_s25_idle_processes_say_goodbye_and_running_turns_go_on():
    link = Link()
    link.expected[SESSION] = 2  # it has the outcome
    host = make_host(script, link=link)
    idle = "ses_idle0000"
    link.expected[idle] = 2
    await host.start_process(start_call("script"))
    await host.start_process(start_call("script", session_id=idle))
    turn = asyncio.create_task(host.run_turn(turn_call("sleep 0.3\nsay done")))
    await asyncio.sleep(0)
    await host.drain(10, asyncio.Event())
    outcome = await turn
    assert (outcome.how, outcome.process) == ("completed", "worker_shutdown")
    assert written(outcome.facts) == "done\n"
    assert link.facts == [ProcessGone(reason="worker_shutdown")]
    with pytest.raises(ProcessUnknown):
        await host.start_process(start_call("script", session_id="ses_new00000"))


@pytest.mark.parametrize(("steps", "deadline"), [("say a\nsleep 30", 2), ("say a\nstubborn 3", 0.2)])
async def test_s25_after_the_grace_or_a_second_signal_turns_are_interrupted(steps, deadline):
    link = Link()
    link.expected[SESSION] = 2  # it has the outcome
    host = make_host(script, link=link)
    await host.start_process(start_call("script", stop_deadline=deadline))
    turn = asyncio.create_task(host.run_turn(turn_call(steps)))
    hurry = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, hurry.set)
    begun = time.monotonic()
    await host.drain(30, hurry)
    outcome = await turn
    assert (outcome.how, outcome.reason, outcome.process) == ("stopped", "worker_shutdown", "worker_shutdown")
    assert time.monotonic() - begun < 2


async def test_a_host_with_too_many_handlers_left_behind_wants_to_end():
    host = make_host(script)
    for number in range(3):
        session_id = f"ses_stuck{number:03d}"
        await host.start_process(start_call("script", session_id=session_id, stop_deadline=0.1))
        turn = asyncio.create_task(host.run_turn(turn_call("block 1", session_id=session_id)))
        await asyncio.sleep(0.05)
        await host.stop_process(stop_process_call(abandon=True).but(session_id=session_id))
        with pytest.raises(GivenUp):
            await turn
    await poll(host.exhausted.is_set)


async def test_s12_s13_a_turn_that_had_begun_is_never_said_not_to_have():
    """Given up before its outcome could be told: `process_gone` would run it a second time."""
    host = make_host(script)
    await host.start_process(start_call("script"))
    calls = HostActivities(host)
    run_turn = next(call for call in calls.hosting if call.__name__ == "run_turn")
    waiting = asyncio.create_task(ActivityEnvironment().run(run_turn, turn_call("sleep 60")))
    await asyncio.sleep(0.05)
    await host.stop_process(stop_process_call(abandon=True))
    with pytest.raises(ApplicationError) as told:
        await waiting
    assert told.value.type != PROCESS_GONE
