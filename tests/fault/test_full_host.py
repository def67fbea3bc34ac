"""A host whose every Process slot is taken: stops still land at once, and idle Processes make room."""

import asyncio
from datetime import datetime, timedelta
from statistics import quantiles

from tests.fault.conftest import SLOTS, recorded
from tests.harness import poll, settled, timeline
from turnhold.cli.stack import Stack
from turnhold.client import Client


async def test_s22_s58_a_full_host_stops_every_turn_at_once_and_then_makes_room(
    slots: Stack, slots_client: Client
):
    client = slots_client
    created = [await client.create_session("recorder", input="120") for _ in range(SLOTS)]
    turns = {made.turn.id: made.session.id for made in created}
    await poll(lambda: turns.keys() <= recorded(slots, "begun").keys(), what="every Turn")
    late = await client.create_session("recorder", input="0")
    receipts = await asyncio.gather(*(client.interrupt_turn(turns[turn_id], turn_id) for turn_id in turns))
    assert {receipt.status for receipt in receipts} == {"accepted"}

    seen_after: list[float] = []
    for turn_id, session_id in turns.items():
        turn = await settled(client, session_id, turn_id)
        assert (turn.status, turn.reason) == ("interrupted", "interrupt")
        (event,) = [e for e in await timeline(client, session_id) if e.kind == "turn.interrupted"]
        latency = event.data["stop_latency_ms"]
        accepted_at: datetime = event.created_at - timedelta(milliseconds=latency)
        seen = (recorded(slots, "stopped")[turn_id] - accepted_at.timestamp()) * 1000
        seen_after.append(seen)
        assert -5 < seen < latency + 5, "the Session hears of it after the handler"
        assert latency - seen < 1500
    p95 = quantiles(seen_after, n=20)[-1]
    print(f"\n{SLOTS} handlers saw their stop after: p95 {p95:.0f} ms, max {max(seen_after):.0f} ms")
    assert p95 < 2000

    assert (await settled(client, late.session.id, late.turn.id)).status == "completed"
    stopped = [
        event.data["reason"]
        for session_id in turns.values()
        for event in await timeline(client, session_id)
        if event.kind == "session.process_stopped"
    ]
    assert stopped
    assert set(stopped) == {"hibernated"}
    for session_id in (*turns.values(), late.session.id):
        await client.cancel(session_id)
