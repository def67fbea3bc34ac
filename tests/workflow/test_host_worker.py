"""Worker processes on a real server: Turns, stops, losses, slots."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness import assert_gapless, poll, running, settled, settled_after_fault, timeline
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client
from turnhold.session.values import text_of
from turnhold.session.views import EventView

ROOT = Path(__file__).parents[2]


def kinds(events: list[EventView]) -> list[str]:
    return [event.kind for event in events]


async def test_s15_output_of_a_long_turn_is_complete_and_in_order(client: Client):
    created = await client.create_session("script", input="emit 3000 200 1")
    turn = await settled(client, created.session.id, created.turn.id)
    assert turn.status == "completed"
    events = await timeline(client, created.session.id)
    assert_gapless(events)
    text = "".join(part["text"] for e in events if e.kind == "turn.output" for part in e.data["content"])
    assert [int(text[at : at + 200].split()[0]) for at in range(0, len(text), 200)] == list(range(1, 3001))
    assert sum(kind == "turn.output" for kind in kinds(events)) < 100


async def test_a_handler_that_blocks_its_loop_holds_up_nobody_else(client: Client):
    blocking = await client.create_session("script", input="say begins\nblock 8\nsay over")
    await running(client, blocking.session.id)
    began = time.monotonic()
    other = await client.create_session("script", input="say hi")
    assert (await settled(client, other.session.id, other.turn.id)).status == "completed"
    assert time.monotonic() - began < 4
    turn = await settled(client, blocking.session.id, blocking.turn.id)
    assert (turn.status, text_of(turn.output)) == ("completed", "begins\nover\n")


async def test_s21_a_crash_is_a_process_failure_and_the_next_turn_has_a_new_process(client: Client):
    created = await client.create_session("script", input="set k v\nsay saved")
    await settled(client, created.session.id, created.turn.id)
    crashed = await client.enqueue(created.session.id, "crash")
    after = await client.enqueue(created.session.id, "epoch\nget k")
    assert (await settled(client, created.session.id, crashed.turn_id)).reason == "process_failed"
    turn = await settled(client, created.session.id, after.turn_id)
    assert text_of(turn.output) == "epoch: 2\nturns: 1\nk: v\n"


async def test_s25_a_worker_that_stops_lets_turns_end_and_sends_the_rest_elsewhere(
    own_stack: Stack, own_client: Client
):
    idle = await own_client.create_session("script", input="say hi")
    await settled(own_client, idle.session.id, idle.turn.id)
    busy = await own_client.create_session("script", input="say begins\nsleep 3\nsay ends")
    await running(own_client, busy.session.id)
    (leaving,) = own_stack.workers
    own_stack.start_worker()
    leaving.send(signal.SIGTERM)
    turn = await settled(own_client, busy.session.id, busy.turn.id)
    assert (turn.status, text_of(turn.output)) == ("completed", "begins\nends\n")
    await poll(lambda: leaving.exit_code is not None)
    assert leaving.exit_code == 0
    for session_id in (idle.session.id, busy.session.id):
        again = await own_client.enqueue(session_id, "epoch")
        turn = await settled(own_client, session_id, again.turn_id)
        assert text_of(turn.output) == "epoch: 2\nturns: 1\n"
        events = await timeline(own_client, session_id)
        (stopped,) = [event.data for event in events if event.kind == "session.process_stopped"]
        assert stopped == {"process_epoch": 1, "reason": "worker_shutdown"}


async def test_s25_a_second_signal_ends_the_grace(own_stack: Stack, own_client: Client):
    own_stack.start_worker({"TURNHOLD_GRACE": "60"})
    own_stack.workers[0].terminate()
    await poll(lambda: not own_stack.workers[0].alive)
    busy = await own_client.create_session("script", input="say begins\nsleep 60")
    await running(own_client, busy.session.id)
    leaving = own_stack.workers[1]
    leaving.send(signal.SIGTERM)
    await poll(lambda: "running Turns have 60 s" in leaving.log.read_text())
    leaving.send(signal.SIGTERM)
    turn = await settled_after_fault(own_client, busy.session.id, busy.turn.id)
    assert (turn.status, turn.reason) == ("interrupted", "worker_shutdown")
    await poll(lambda: leaving.exit_code is not None, deadline=10)
    assert leaving.exit_code == 0


async def test_s24_a_host_that_is_killed_loses_its_turn_and_the_queue_goes_on(
    own_stack: Stack, own_client: Client
):
    lost = await own_client.create_session("script", input="say begins\nsleep 60")
    queued = await own_client.enqueue(lost.session.id, "epoch")
    await running(own_client, lost.session.id)
    own_stack.start_worker()
    own_stack.workers[0].kill()
    began = time.monotonic()
    turn = await settled_after_fault(own_client, lost.session.id, lost.turn.id)
    assert (turn.status, turn.reason) == ("interrupted", "execution_lost")
    assert time.monotonic() - began < 16
    turn = await settled_after_fault(own_client, lost.session.id, queued.turn_id)
    assert text_of(turn.output) == "epoch: 2\nturns: 1\n"


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Client]:
    with Stack(Plan(tmp_path, settings={"TURNHOLD_MAX_PROCESSES": "2"})) as stack:
        async with Client(stack.api_url) as client:
            yield client


async def test_s22_without_a_free_slot_a_turn_stays_queued_until_there_is_one(small: Client):
    taking = [await small.create_session("script", input="say hi") for _ in range(2)]
    for created in taking:
        await settled(small, created.session.id, created.turn.id)
    waiting = await small.create_session("script", input="say late")
    assert (await small.wait_turn(waiting.session.id, waiting.turn.id, patience=2)).status == "queued"
    await small.close(taking[0].session.id)
    assert (await settled(small, waiting.session.id, waiting.turn.id)).status == "completed"


async def test_s58_stops_reach_handlers_at_once_on_a_host_whose_every_slot_runs_a_turn(tmp_path: Path):
    slots = 6
    plan = Plan(tmp_path, settings={"TURNHOLD_MAX_PROCESSES": str(slots)})
    with Stack(plan) as stack:
        async with Client(stack.api_url) as client:
            made = [await client.create_session("script", input="say go\nsleep 60") for _ in range(slots)]
            for created in made:
                await running(client, created.session.id)
            for created in made:
                await client.interrupt(created.session.id)
            for created in made:
                assert (await settled(client, created.session.id, created.turn.id)).status == "interrupted"
            events = [event for m in made for event in await timeline(client, m.session.id)]
    latencies = [e.data["stop_latency_ms"] for e in events if e.kind == "turn.interrupted"]
    assert len(latencies) == slots
    assert max(latencies) < 1000, "not at the next heartbeat, on a machine that is busy with tests"


@pytest.fixture
async def durable(tmp_path: Path) -> AsyncIterator[tuple[Stack, Client]]:
    with Stack(Plan(tmp_path, durable=True)) as stack:
        async with Client(stack.api_url) as client:
            yield stack, client


async def outage(stack: Stack, seconds: float) -> None:
    stack.temporal.kill()
    began = time.monotonic()
    await poll(lambda: time.monotonic() - began > seconds)
    stack.start_temporal()


@pytest.mark.parametrize(
    ("count", "seconds"), [(150, 8), (30, 25)], ids=["the Turn outlasts it", "the Turn ends in it"]
)
async def test_s24_an_outage_of_temporal_loses_no_turn(
    durable: tuple[Stack, Client], count: int, seconds: float
):
    stack, client = durable
    created = await client.create_session("script", input=f"emit {count} 100 100\nsay over")
    await running(client, created.session.id)
    await outage(stack, seconds)
    turn = await settled_after_fault(client, created.session.id, created.turn.id)
    assert (turn.status, turn.reason) == ("completed", None)
    text = text_of(turn.output)
    end = count * 100
    assert [int(text[at : at + 100].split()[0]) for at in range(0, end, 100)] == list(range(1, count + 1))
    assert text[end:] == "over\n"
    assert_gapless(await timeline(client, created.session.id))
    again = await client.enqueue(created.session.id, "epoch")
    turn = await settled(client, created.session.id, again.turn_id)
    assert text_of(turn.output) == "epoch: 1\nturns: 2\n"


async def test_s25_a_worker_stops_even_while_temporal_is_away(own_stack: Stack, own_client: Client):
    created = await own_client.create_session("script", input="say begins\nsleep 60")
    await running(own_client, created.session.id)
    (worker,) = own_stack.workers
    own_stack.temporal.kill()
    worker.send(signal.SIGTERM)
    worker.send(signal.SIGTERM)
    await poll(lambda: worker.exit_code is not None, deadline=40)
    assert worker.exit_code == 0


def run_worker_program(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "worker.py")],
        env={"PATH": "/usr/bin:/bin", "TURNHOLD_AGENTS": "turnhold.scripted"} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"TURNHOLD_AGENTS": "not_there"}, "cannot import Agent module 'not_there'"),
        ({"TURNHOLD_MAX_PROCESSES": "0"}, "TURNHOLD_MAX_PROCESSES"),
        ({"TURNHOLD_BUILD_ID": "1"}, "set together"),
        ({"TEMPORAL_CONFIG_FILE": str(Path(__file__))}, "configuration cannot be read"),
    ],
)
async def test_a_wrong_configuration_is_one_line_and_exit_code_2(environment: dict[str, str], said: str):
    ended = await asyncio.to_thread(run_worker_program, **environment)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_a_worker_waits_for_temporal_and_stops_when_asked(tmp_path: Path):
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "worker.py")],
            env={"TURNHOLD_DEV": "1", "TEMPORAL_ADDRESS": "127.0.0.1:1"},
            stderr=output,
        )
    try:
        asyncio.run(poll(lambda: "waiting for Temporal" in log.read_text()))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert len(log.read_text().splitlines()) == 1
