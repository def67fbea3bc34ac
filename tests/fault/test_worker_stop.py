"""Workers that are asked to stop, once and ten times in a row."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.fault.conftest import appended, one_more_worker
from tests.harness import admitted, assert_gapless, poll, running, settled, settled_after_fault, timeline
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client
from turnhold.session.values import text_of

RESTARTS = 10


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    settings = {"TURNHOLD_GRACE": "3"}
    with Stack(Plan(tmp_path_factory.mktemp("stop"), settings=settings)) as started:
        yield started


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    async with Client(stack.api_url) as opened:
        yield opened


async def with_a_process(client: Client) -> str:
    """A Session whose Process is on the only worker there is."""
    created = await client.create_session("script", input="set k v")
    await settled(client, created.session.id, created.turn.id)
    return created.session.id


async def test_s25_what_ends_in_the_grace_completes_and_the_rest_is_interrupted(stack: Stack, client: Client):
    scripts = {
        "short": "say begins\nsleep 2\nsay ends",
        "long": "say begins\nsleep 120\nsay never",
        "stubborn": "say begins\nstubborn 120\nsay never",
    }
    sessions = {name: await with_a_process(client) for name in (*scripts, "idle")}
    idle = sessions.pop("idle")
    leaving = stack.workers[-1]
    await one_more_worker(stack)
    turns = {name: await admitted(client, sessions[name], scripts[name]) for name in scripts}
    queued = {name: await admitted(client, session, "epoch") for name, session in sessions.items()}
    await asyncio.gather(*(running(client, session) for session in sessions.values()))

    leaving.terminate()
    await poll(lambda: "running Turns have 3 s" in leaving.output(), interval=0.01)
    began = time.monotonic()
    turn = await settled_after_fault(client, idle, await admitted(client, idle, "get k\nepoch"))
    print(f"\nan idle Session's next Turn took {time.monotonic() - began:.2f} s on the other worker")
    assert re.fullmatch(r"k: v\nepoch: [2-9]\nturns: 1\n", text_of(turn.output))
    assert leaving.alive, "the grace is not over"

    ended = {name: await settled_after_fault(client, sessions[name], turns[name]) for name in scripts}
    assert [(ended[name].status, ended[name].reason) for name in scripts] == [
        ("completed", None),
        ("interrupted", "worker_shutdown"),
        ("interrupted", "worker_shutdown"),
    ]
    assert text_of(ended["short"].output) == "begins\nends\n"
    for name, session in sessions.items():
        turn = await settled_after_fault(client, session, queued[name])
        assert re.fullmatch(r"epoch: [2-9]\nturns: 1\n", text_of(turn.output))
        events = await timeline(client, session)
        assert_gapless(events)
        assert not [event for event in events if event.kind == "session.process_failed"]
    await poll(lambda: leaving.exit_code is not None)
    assert leaving.exit_code == 0


async def test_s25_ten_restarts_in_a_row_hold_no_session_and_lose_no_turn(stack: Stack, client: Client):
    """Each of four Sessions gets a Turn with every restart; nothing waits for its end."""
    sessions = [(await client.create_session("script")).session.id for _ in range(4)]
    turns: list[tuple[str, str]] = []
    leaving = stack.workers[-1]
    old = [leaving]
    for restart in range(RESTARTS):
        for number, session in enumerate(sessions):
            text = f"append restarts {restart}-{number}\nsleep 0.3"
            turns.append((session, await admitted(client, session, text)))
        following = await one_more_worker(stack, TURNHOLD_GRACE="1")
        leaving.terminate()
        leaving = following
        old.append(leaving)
    for session, turn_id in turns:
        turn = await settled_after_fault(client, session, turn_id)
        assert turn.status == "completed", (turn.status, turn.reason)
    for session in sessions:
        view = await client.session(session)
        assert (view.status, view.holds, view.process.consecutive_failures) == ("open", (), 0)
    assert sorted(appended(stack, "restarts")) == sorted(
        f"{restart}-{number}" for restart in range(RESTARTS) for number in range(len(sessions))
    )
    for worker in old[:-1]:
        await poll(lambda worker=worker: worker.exit_code is not None)
        assert worker.exit_code == 0
