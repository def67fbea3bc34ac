"""Temporal is away for longer than a heartbeat's time-out, under ten running Turns."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fault.conftest import appended
from tests.harness import assert_gapless, poll, running, settled_after_fault, timeline
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client
from turnhold.session.values import text_of

TURNS = 10
OUTAGE_SECONDS = float(os.environ.get("TURNHOLD_TEST_OUTAGE", "8"))


@pytest.fixture
async def durable(tmp_path: Path) -> AsyncIterator[tuple[Stack, Client]]:
    with Stack(Plan(tmp_path, durable=True)) as stack:
        async with Client(stack.api_url) as client:
            yield stack, client


async def test_s24_an_outage_under_many_turns_loses_none_and_counts_none(durable: tuple[Stack, Client]):
    """Half of the Turns end in the outage, half after it; an idle Session's next Turn comes after it."""
    stack, client = durable
    lasts = [OUTAGE_SECONDS * (0.5 if number % 2 else 1.2) for number in range(TURNS)]
    made = [
        await client.create_session(
            "script",
            input=f"append runs begin-{n}\nsay begins\nsleep {lasts[n]}\nappend runs end-{n}\nsay ends",
        )
        for n in range(TURNS)
    ]
    queued = [await client.enqueue(created.session.id, "epoch") for created in made]
    await asyncio.gather(*(running(client, created.session.id) for created in made))

    assert stack.temporal is not None
    stack.temporal.kill()
    began = time.monotonic()
    await poll(lambda: time.monotonic() - began > OUTAGE_SECONDS, deadline=OUTAGE_SECONDS + 10)
    stack.start_temporal()
    began = time.monotonic()

    for created, after in zip(made, queued, strict=True):
        session_id = created.session.id
        turn = await settled_after_fault(client, session_id, created.turn.id, deadline=90)
        assert (turn.status, turn.reason) == ("completed", None)
        assert text_of(turn.output) == "begins\nends\n"
        turn = await settled_after_fault(client, session_id, after.turn_id)
        assert text_of(turn.output) == "epoch: 1\nturns: 2\n", "the same Process goes on"
        events = await timeline(client, session_id)
        assert_gapless(events)
        assert not [event for event in events if event.kind.startswith("session.process_f")]
        session = await client.session(session_id)
        assert (session.holds, session.process.consecutive_failures) == ((), 0)
    print(
        f"\nall went on within {time.monotonic() - began:.1f} s after {OUTAGE_SECONDS:g} s without Temporal"
    )
    assert sorted(appended(stack, "runs")) == sorted(
        f"{what}-{number}" for what in ("begin", "end") for number in range(TURNS)
    )
