"""A worker is killed under running Turns, beside idle Processes and in the middle of an `init`."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from temporalio.api.enums.v1 import PendingActivityState

from tests.fault.conftest import appended, one_more_worker, temporal
from tests.harness import admitted, poll, running, settled_after_fault, timeline
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client
from turnhold.session.values import text_of

RUNNING = 10
IDLE = 5
INIT_SECONDS = 10.0


@dataclass
class Loss:
    """What was there when the worker was killed: pairs of a Session and the Turn to look at."""

    stack: Stack
    client: Client
    killed_at: datetime
    lost: list[tuple[str, str]] = field(default_factory=list)
    queued: list[tuple[str, str]] = field(default_factory=list)
    put_back: list[tuple[str, str]] = field(default_factory=list)
    starting: list[tuple[str, str]] = field(default_factory=list)

    def since(self, moment: datetime | None) -> float:
        assert moment is not None
        return (moment - self.killed_at).total_seconds()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(Plan(tmp_path_factory.mktemp("loss"))) as started:
        yield started


@pytest.fixture(scope="module")
async def loss(stack: Stack) -> AsyncIterator[Loss]:
    async with Client(stack.api_url) as client:
        made = Loss(stack, client, datetime.now(UTC))
        idle: list[str] = []
        for number in range(RUNNING):
            script = f"append runs lost-{number}\nsay begins\nsleep 120"
            created = await client.create_session("script", input=script)
            made.lost.append((created.session.id, created.turn.id))
            after = await client.enqueue(created.session.id, f"append runs queued-{number}\nepoch")
            made.queued.append((created.session.id, after.turn_id))
        for _ in range(IDLE):
            created = await client.create_session("script", input="say hi")
            idle.append(created.session.id)
            await settled_after_fault(client, created.session.id, created.turn.id)
        await asyncio.gather(*(running(client, session_id) for session_id, _ in made.lost))
        created = await client.create_session(
            "script", input="append runs starting\nepoch", metadata={"slow_init": str(INIT_SECONDS)}
        )
        made.starting.append((created.session.id, created.turn.id))
        await poll(lambda: init_runs(stack, created.session.id), interval=0.2, what="a running init")
        await one_more_worker(stack)
        made.killed_at = datetime.now(UTC)
        stack.workers[0].kill()
        for number, session_id in enumerate(idle):
            turn_id = await admitted(client, session_id, f"append runs put-back-{number}\nepoch")
            made.put_back.append((session_id, turn_id))
        yield made


async def init_runs(stack: Stack, session_id: str) -> bool:
    described = await (await temporal(stack)).get_workflow_handle(session_id).describe()
    pending = described.raw_description.pending_activities
    return any(a.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED for a in pending)


async def test_s24_every_running_turn_is_lost_once_and_its_queue_goes_on(loss: Loss):
    took: list[float] = []
    for session_id, turn_id in loss.lost:
        turn = await settled_after_fault(loss.client, session_id, turn_id)
        assert (turn.status, turn.reason) == ("interrupted", "execution_lost")
        took.append(loss.since(turn.ended_at))
    print(f"\nlost Turns were terminal after {min(took):.1f} to {max(took):.1f} s")
    assert max(took) < 25
    for session_id, turn_id in loss.queued:
        turn = await settled_after_fault(loss.client, session_id, turn_id)
        assert text_of(turn.output) == "epoch: 2\nturns: 1\n"
        kinds = [event.kind for event in await timeline(loss.client, session_id)]
        at = kinds.index("turn.interrupted")
        assert kinds[at + 1] == "session.process_failed"
        assert (await loss.client.session(session_id)).holds == ()


async def test_s13_a_turn_for_an_idle_process_that_is_gone_goes_back_and_runs_once(loss: Loss):
    took: list[float] = []
    for session_id, turn_id in loss.put_back:
        turn = await settled_after_fault(loss.client, session_id, turn_id)
        assert (turn.status, text_of(turn.output)) == ("completed", "epoch: 2\nturns: 1\n")
        took.append(loss.since(turn.ended_at))
        events = [e for e in await timeline(loss.client, session_id) if e.sequence > 5]
        told = [(e.kind, e.data) for e in events if e.kind in ("turn.running", "session.process_stopped")]
        assert told == [
            ("turn.running", {"process_epoch": 1}),
            ("session.process_stopped", {"process_epoch": 1, "reason": "host_gone"}),
            ("turn.running", {"process_epoch": 2}),
        ]
        assert (await loss.client.session(session_id)).process.consecutive_failures == 0
    print(f"\nTurns put back were completed after {min(took):.1f} to {max(took):.1f} s")


async def test_s22_a_host_lost_during_init_is_noticed_and_not_counted(loss: Loss):
    ((session_id, turn_id),) = loss.starting
    turn = await settled_after_fault(loss.client, session_id, turn_id)
    assert (turn.status, text_of(turn.output)) == ("completed", "epoch: 2\nturns: 1\n")
    kinds = [event.kind for event in await timeline(loss.client, session_id)]
    assert "session.process_failed" not in kinds
    noticed = loss.since(turn.started_at) - INIT_SECONDS
    print(f"\na host lost during init was replaced after {noticed:.1f} s")
    assert noticed < 20


async def test_s12_nothing_that_began_ran_twice(loss: Loss):
    for session_id, turn_id in (*loss.queued, *loss.put_back, *loss.starting):
        await settled_after_fault(loss.client, session_id, turn_id)
    expected = [
        *(f"lost-{n}" for n in range(RUNNING)),
        *(f"queued-{n}" for n in range(RUNNING)),
        *(f"put-back-{n}" for n in range(IDLE)),
        "starting",
    ]
    assert sorted(appended(loss.stack, "runs")) == sorted(expected)
