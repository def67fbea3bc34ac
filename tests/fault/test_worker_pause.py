"""A worker is stopped amid everything, as a debugger or a starved machine does it, and goes on."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.fault.conftest import appended, one_more_worker, recorded
from tests.harness import admitted, assert_gapless, poll, running, settled, settled_after_fault, timeline
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client
from turnhold.session.values import text_of
from turnhold.session.views import EventView

TURNS = 5
PAUSE_SECONDS = 8.0  # longer than a missed heartbeat, shorter than the verdict
FRAGMENTS = 50


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    settings = {"TURNHOLD_AGENTS": "tests.fault.agents"}
    with Stack(Plan(tmp_path_factory.mktemp("pause"), settings=settings)) as started:
        yield started


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    async with Client(stack.api_url) as opened:
        yield opened


async def test_s24_a_paused_worker_keeps_its_turns(stack: Stack, client: Client):
    """A Turn, and the first one of an idle Process, that come to it in the pause run once, too."""
    (paused,) = stack.workers
    writing = f"append runs {{}}\nsay begins\nemit {FRAGMENTS} 20 200"
    made = [await client.create_session("script", input=writing.format(n)) for n in range(TURNS)]
    idle = await client.create_session("script", input="set k v")
    await settled(client, idle.session.id, idle.turn.id)
    await asyncio.gather(*(running(client, created.session.id) for created in made))
    await one_more_worker(stack)

    paused.send(signal.SIGSTOP)
    began = time.monotonic()
    woken = await admitted(client, idle.session.id, "append runs idle\nget k\nepoch")
    await poll(lambda: time.monotonic() - began > PAUSE_SECONDS)
    paused.send(signal.SIGCONT)

    for created in made:
        turn = await settled_after_fault(client, created.session.id, created.turn.id)
        assert (turn.status, turn.reason) == ("completed", None)
        numbered = [f"{number} ".ljust(20, "x") for number in range(1, FRAGMENTS + 1)]
        assert text_of(turn.output) == "begins\n" + "".join(numbered)
        assert_gapless(await timeline(client, created.session.id))
    turn = await settled_after_fault(client, idle.session.id, woken)
    assert text_of(turn.output) == "k: v\nepoch: 1\nturns: 2\n"
    assert sorted(appended(stack, "runs")) == [*map(str, range(TURNS)), "idle"]


async def test_s26_a_worker_paused_past_the_verdict_leaves_no_ghost(stack: Stack, client: Client):
    """What ran there is lost and heard of no more.

    A Turn that came in the pause is lost as well if the stopped process had taken it, and then never
    begins; else it goes back and runs elsewhere.
    """
    (paused,) = stack.workers
    made = [await client.create_session("recorder", input="120") for _ in range(TURNS)]
    lost = {created.turn.id: created.session.id for created in made}
    idle = await client.create_session("recorder", input="0")
    await settled(client, idle.session.id, idle.turn.id)
    await poll(lambda: lost.keys() <= recorded(stack, "begun").keys())
    await one_more_worker(stack)
    queued = {session_id: await admitted(client, session_id, "0") for session_id in lost.values()}

    paused.send(signal.SIGSTOP)
    late = await admitted(client, idle.session.id, "0")
    after = await admitted(client, idle.session.id, "0")
    for turn_id, session_id in lost.items():
        turn = await settled_after_fault(client, session_id, turn_id)
        assert (turn.status, turn.reason) == ("interrupted", "execution_lost")
    came_late = await settled_after_fault(client, idle.session.id, late)
    assert (came_late.status, came_late.reason) in (("interrupted", "execution_lost"), ("completed", None))
    for session_id, turn_id in (*queued.items(), (idle.session.id, after)):
        assert (await settled_after_fault(client, session_id, turn_id)).status == "completed"
    told = {session_id: await timeline(client, session_id) for session_id in (*queued, idle.session.id)}
    paused.send(signal.SIGCONT)
    began = time.time()

    await poll(lambda: lost.keys() <= recorded(stack, "stopped").keys(), deadline=60, what="no ghost")
    stopped = recorded(stack, "stopped")
    print(f"\nghosts were stopped {max(stopped[turn_id] for turn_id in lost) - began:.1f} s after the pause")
    await poll(lambda: lines(stack, "gone", idle.session.id) == 1, deadline=60, what="no idle ghost")
    assert lines(stack, "begun", late) == (came_late.status == "completed")
    for session_id, before in told.items():
        again = await admitted(client, session_id, "0")
        assert (await settled(client, session_id, again)).status == "completed"
        events = await timeline(client, session_id)
        assert_gapless(events)
        assert {event.turn_id for event in since(events, before)} == {again}
        process = (await client.session(session_id)).process
        assert (process.epoch > 1, process.consecutive_failures) == (True, 0)


def since(events: list[EventView], before: list[EventView]) -> list[EventView]:
    return events[len(before) :]


def lines(stack: Stack, name: str, what: str) -> int:
    """How often the Agents wrote this into the file."""
    return sum(line.startswith(what) for line in (stack.scratch / name).read_text().splitlines())
