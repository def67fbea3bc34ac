"""Whatever happens while a Session continues as new: on a server that wants short runs."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client as Temporal

from tests.harness import assert_gapless, poll, settled, timeline
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client, Problem
from turnhold.session.values import TextPart
from turnhold.session.views import AskView, EventView

RUN_EVENTS = 60
"""After so many events the server suggests to continue as new."""

ROUNDS = 5


@pytest.fixture(scope="module")
def short_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    server = {"limit.historyCount.suggestContinueAsNew": RUN_EVENTS}
    with Stack(Plan(tmp_path_factory.mktemp("short"), server=server)) as running:
        yield running


@pytest.fixture
async def caller(short_runs: Stack) -> AsyncIterator[Client]:
    async with Client(short_runs.api_url) as opened:
        yield opened


@pytest.fixture
async def temporal(short_runs: Stack) -> Temporal:
    return await Temporal.connect(short_runs.temporal_address)


async def to_the_end_of_a_run(temporal: Temporal, session_id: str) -> None:
    """Fill the run with signals of no meaning, until one or two more end it."""
    handle = temporal.get_workflow_handle(session_id)
    while (await handle.describe()).history_length < RUN_EVENTS - 8:
        await handle.signal("nothing")


async def past_it(temporal: Temporal, session_id: str) -> None:
    for _ in range(4):
        await temporal.get_workflow_handle(session_id).signal("nothing")


async def runs_of(temporal: Temporal, session_id: str) -> int:
    return (await temporal.count_workflows(f"WorkflowId = '{session_id}'")).count


async def one_round(client: Client, temporal: Temporal, session_id: str, number: int) -> None:
    """A question, two messages and an interrupt of one Turn, each right at a roll-over."""
    turn_id = (await client.enqueue(session_id, f"ask {number}?\nlisten 120")).turn_id
    assert turn_id is not None

    async def asked() -> AskView | None:
        return next(iter(await client.asks(session_id, turn_id=turn_id, status="pending")), None)

    ask = await poll(asked, what="the question")
    await to_the_end_of_a_run(temporal, session_id)
    await asyncio.gather(
        client.answer(session_id, turn_id, ask.id, text=f"answer {number}"), past_it(temporal, session_id)
    )

    async def listens() -> bool:
        return (await client.turn(session_id, turn_id)).accepts_messages

    await poll(listens, what="a listening Turn")
    await to_the_end_of_a_run(temporal, session_id)
    await asyncio.gather(
        *(client.send(session_id, turn_id, text) for text in (f"first {number}", f"second {number}")),
        past_it(temporal, session_id),
    )

    async def delivered() -> bool:
        kinds = [event.kind for event in await of_turn(client, session_id, turn_id)]
        return kinds.count("message.delivered") == 2

    await poll(delivered, what="the messages delivered")
    await to_the_end_of_a_run(temporal, session_id)
    await asyncio.gather(client.interrupt_turn(session_id, turn_id), past_it(temporal, session_id))
    turn = await settled(client, session_id, turn_id)
    assert (turn.status, turn.reason) == ("interrupted", "interrupt")
    assert sorted(said(await of_turn(client, session_id, turn_id)).splitlines()) == [
        f"answer: answer {number}",
        f"heard: first {number}",
        f"heard: second {number}",
    ]
    assert Counter(event.kind for event in await of_turn(client, session_id, turn_id)) == {
        **dict.fromkeys(("turn.queued", "turn.running", "ask.created", "ask.answered"), 1),
        **dict.fromkeys(("message.admitted", "message.started", "message.delivered"), 2),
        "turn.output": len(
            [e for e in await of_turn(client, session_id, turn_id) if e.kind == "turn.output"]
        ),
        "turn.interrupted": 1,
    }


async def of_turn(client: Client, session_id: str, turn_id: str) -> list[EventView]:
    after = (await client.session(session_id)).retained_after
    return [e for e in await timeline(client, session_id, after=after) if e.turn_id == turn_id]


def said(events: list[EventView]) -> str:
    parts = [part for e in events if e.kind == "turn.output" for part in e.data["content"]]  # type: ignore[union-attr]
    return "".join(TextPart.model_validate(part).text for part in parts)


async def test_s83_what_arrives_at_a_roll_over_acts_once(caller: Client, temporal: Temporal) -> None:
    session_id = (await caller.create_session("script")).session.id
    for number in range(ROUNDS):
        await one_round(caller, temporal, session_id, number)
    assert await runs_of(temporal, session_id) > 3 * ROUNDS


async def test_s15_s80_a_turn_that_streams_over_many_runs_is_recorded_gapless(
    caller: Client, temporal: Temporal
) -> None:
    fragments, size = 400, 30
    made = await caller.create_session("script", input=f"emit {fragments} {size} 25")
    session_id = made.session.id
    assert made.turn is not None
    nudging = asyncio.create_task(nudge(temporal, session_id))
    turn = await settled(caller, session_id, made.turn.id, deadline=120)
    nudging.cancel()
    assert turn.status == "completed"
    events = await timeline(caller, session_id)
    assert_gapless(events)
    written = said(events)
    assert len(written) == fragments * size
    numbers = [int(written[at : at + size].split()[0]) for at in range(0, len(written), size)]
    assert numbers == list(range(1, fragments + 1))
    assert [event.kind for event in events].count("turn.running") == 1
    assert await runs_of(temporal, session_id) > 3


async def nudge(temporal: Temporal, session_id: str) -> None:
    """A steady stream of signals beside the Turn's own."""
    while True:
        await temporal.get_workflow_handle(session_id).signal("nothing")
        await asyncio.sleep(0.05)


async def test_s10_s92_a_steady_stream_of_inputs_and_reads_meets_no_ended_session(caller: Client) -> None:
    """A read that meets a roll-over sees the run that follows, and never a Session that is closed."""
    session_id = (await caller.create_session("script")).session.id
    done = asyncio.Event()

    async def look() -> set[str]:
        seen: set[str] = set()
        while not done.is_set():
            seen.add((await caller.session(session_id)).status)
        return seen

    looking = [asyncio.create_task(look()) for _ in range(4)]
    receipts = [await caller.enqueue(session_id, f"return {number}") for number in range(60)]
    assert [receipt.sequence for receipt in receipts] == list(range(1, 61))
    assert receipts[-1].turn_id is not None
    await settled(caller, session_id, receipts[-1].turn_id, deadline=60)
    done.set()
    assert set().union(*await asyncio.gather(*looking)) == {"open"}
    events = await timeline(caller, session_id)
    assert_gapless(events)
    results = [event.data["result"] for event in events if event.kind == "turn.completed"]
    assert results == list(range(60))


async def test_s92_a_burst_at_a_roll_over_fits_into_a_task(caller: Client, temporal: Temporal) -> None:
    """Temporal gives a task of the workflow two seconds, and what a run hands on may be large."""
    session_id = (await caller.create_session("script")).session.id
    await caller.interrupt(session_id)
    handle = temporal.get_workflow_handle(session_id)
    for _ in range(9):
        await asyncio.gather(*(handle.signal("enqueue", {"input": "say hi"}) for _ in range(100)))

    async def all_queued() -> bool:
        with suppress(Problem):  # a busy machine may take longer than a read waits
            return (await caller.session(session_id)).queued_turns == 900
        return False

    await poll(all_queued, what="900 queued Turns", deadline=60)
    failed = set[int]()
    async for run in temporal.list_workflows(f"WorkflowId = '{session_id}'"):
        history = await temporal.get_workflow_handle(session_id, run_id=run.run_id).fetch_history()
        tasks = (event.workflow_task_failed_event_attributes for event in history.events)
        failed |= {attributes.cause for attributes in tasks if attributes.cause}
    assert WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE not in failed
    await caller.cancel(session_id)
