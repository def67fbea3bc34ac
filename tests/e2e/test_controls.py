"""Controls over real HTTP: what is accepted is true from then on."""

import asyncio
import contextlib
import random
import time
from typing import Any

import pytest

from tests.harness import assert_gapless, poll, settled, timeline
from turnhold.cli.stack import Stack
from turnhold.client import Client, Problem
from turnhold.session.values import text_of
from turnhold.session.views import EventView, ReceiptView, TurnView

TERMINAL = ("turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled")


async def begin(client: Client, text: str | None = None, **config: Any) -> tuple[str, str]:
    """A new Session and its first Turn (or nothing, without text)."""
    made = await client.create_session("script", input=text, config=config or None)
    return made.session.id, made.turn.id if made.turn else ""


async def begin_running(client: Client, text: str, **config: Any) -> tuple[str, str]:
    session_id, turn_id = await begin(client, text, **config)
    await poll(lambda: runs(client, session_id, turn_id), interval=0.02)
    return session_id, turn_id


async def runs(client: Client, session_id: str, turn_id: str | None) -> bool:
    return (await client.session(session_id)).running_turn_id == turn_id


async def enqueue(client: Client, session_id: str, *texts: str) -> list[str]:
    return [(await client.enqueue(session_id, text)).turn_id or "" for text in texts]


async def has(client: Client, session_id: str, kind: str) -> bool:
    return bool((await client.events(session_id, kinds=[kind], limit=1)).records)


async def closed(client: Client, session_id: str) -> bool:
    return (await client.session(session_id)).status == "closed"


def kinds(events: list[EventView], *but: str) -> list[str]:
    return [event.kind for event in events if event.kind not in but]


def one(events: list[EventView], kind: str) -> EventView:
    (found,) = (event for event in events if event.kind == kind)
    return found


def output(turn: TurnView) -> str:
    return text_of(turn.output or ())


async def refused(command: Any) -> str:
    with pytest.raises(Problem) as caught:
        await command
    return caught.value.code


# --- Turn interrupt ---------------------------------------------------------------------------------


async def test_s50_s56_a_turn_interrupt_in_its_first_50_ms_always_interrupts(client: Client) -> None:
    async def round(session_id: str, pause: float) -> TurnView:
        (turn_id,) = await enqueue(client, session_id, "sleep 30")

        async def accepted() -> ReceiptView | None:
            """None while it is still queued."""
            with contextlib.suppress(Problem):
                return await client.interrupt_turn(session_id, turn_id)
            return None

        if pause:
            await poll(lambda: runs(client, session_id, turn_id), interval=0.005)
            await asyncio.sleep(pause)
        await poll(accepted, interval=0.005)
        return await settled(client, session_id, turn_id)

    async def rounds(seed: int) -> list[TurnView]:
        session_id, _ = await begin(client)
        dice = random.Random(seed)
        turns = [await round(session_id, dice.choice((0, dice.uniform(0, 0.04)))) for _ in range(10)]
        assert (await client.session(session_id)).process.epoch == 1, "the same Process serves all"
        return turns

    turns = [turn for found in await asyncio.gather(*map(rounds, range(5))) for turn in found]
    assert len(turns) == 50
    assert {(turn.status, turn.reason) for turn in turns} == {("interrupted", "interrupt")}


async def test_s50_a_late_turn_interrupt_touches_nothing_else(client: Client) -> None:
    session_id, first = await begin(client, "say one")
    await settled(client, session_id, first)
    second, third = await enqueue(client, session_id, "sleep 0.7\nreturn 2", "return 3")
    await poll(lambda: runs(client, session_id, second))
    for target in (first, third):
        with pytest.raises(Problem) as caught:
            await client.interrupt_turn(session_id, target)
        assert (caught.value.status, caught.value.code) == (409, "turn_not_running")
    assert await refused(client.interrupt_turn(session_id, "trn_00000000")) == "turn_not_found"
    assert [(await settled(client, session_id, turn)).result for turn in (second, third)] == [2, 3]


async def test_s50_a_turn_interrupt_works_while_closing(client: Client) -> None:
    session_id, turn_id = await begin_running(client, "sleep 30")
    await client.close(session_id)
    receipt = await client.interrupt_turn(session_id, turn_id)
    assert (receipt.status, receipt.session_status, receipt.turn_id) == ("accepted", "closing", turn_id)
    await poll(lambda: closed(client, session_id))
    assert await refused(client.interrupt_turn(session_id, turn_id)) == "session_closed"
    assert await refused(client.interrupt_turn(session_id, "trn_00000000")) == "turn_not_found"


async def test_s56_what_a_stopped_turn_leaves_is_dropped(client: Client) -> None:
    session_id, turn_id = await begin_running(
        client, "say begun\nset city Lisbon\nstubborn 1\nrespond too late\nreturn 7", stop_deadline=20
    )
    await poll(lambda: has(client, session_id, "turn.output"))
    first = await client.interrupt_turn(session_id, turn_id)
    stopping = await client.turn(session_id, turn_id)
    assert (stopping.status, stopping.stopping_since is not None) == ("running", True)
    again = await client.interrupt_turn(session_id, turn_id)
    assert again.event_sequence == first.event_sequence
    turn = await settled(client, session_id, turn_id)
    assert (turn.status, turn.result, turn.response) == ("interrupted", None, None)
    (later,) = await enqueue(client, session_id, "get city")
    assert output(await settled(client, session_id, later)) == "city: none\n"


async def test_s59_a_handler_that_ignores_its_stop_loses_its_process(client: Client) -> None:
    session_id, turn_id = await begin_running(client, "stubborn 4\nsay ghost", stop_deadline=2)
    (after,) = await enqueue(client, session_id, "epoch\nsleep 2.5")
    began = time.monotonic()
    await client.interrupt_turn(session_id, turn_id)
    turn = await settled(client, session_id, turn_id)
    assert time.monotonic() - began < 4
    assert (turn.status, turn.reason) == ("interrupted", "interrupt")
    assert output(await settled(client, session_id, after)) == "epoch: 2\nturns: 1\n"
    events = await timeline(client, session_id)
    failed = one(events, "session.process_failed")
    assert (failed.data["reason"], failed.data["hold_id"]) == ("stop_deadline_elapsed", None)
    ended = one(events, "turn.interrupted")
    assert [e.kind for e in events if e.sequence > ended.sequence and e.turn_id == turn_id] == []
    assert ended.sequence < failed.sequence
    assert 2000 <= ended.data["stop_latency_ms"] < 4000  # type: ignore[operator]


# --- Session interrupt and resume -------------------------------------------------------------------


async def test_s57_after_an_accepted_interrupt_nothing_runs_until_the_resume(client: Client) -> None:
    async def round(session_id: str, pause: float) -> None:
        await enqueue(client, session_id, "say one\nsleep 0.03")
        await asyncio.sleep(pause)
        receipt = await client.interrupt(session_id)
        await poll(lambda: runs(client, session_id, None), interval=0.01)
        assert [hold.id for hold in (await client.session(session_id)).holds] == [receipt.hold_id]
        await client.resume(session_id, receipt.hold_id or "")

    async def rounds(seed: int) -> list[str]:
        dice = random.Random(seed)
        session_id, _ = await begin(client)
        for _ in range(50):
            await round(session_id, dice.uniform(0, 0.06))
        last = (await client.list_turns(session_id, after=49)).turns[0]
        await settled(client, session_id, last.id)
        events = await timeline(client, session_id)
        assert_gapless(events)
        held: set[object] = set()
        for event in events:
            if event.kind == "session.interrupt":
                held.add(event.data["hold_id"])
            elif event.kind == "session.resume":
                held.remove(event.data["hold_id"])
            assert event.kind != "turn.running" or not held, event
        ends = [event.turn_id for event in events if event.kind in TERMINAL]
        assert len(ends) == len(set(ends)) == 50
        assert sum(event.kind == "session.interrupt" for event in events) == 50
        return kinds(events)

    seen = [kind for found in await asyncio.gather(*map(rounds, range(4))) for kind in found]
    assert seen.count("turn.interrupted") > 20, "it is all about the boundaries"
    assert seen.count("turn.completed") > 20


async def test_s51_s52_each_interrupt_holds_and_all_must_be_released(client: Client) -> None:
    session_id, turn_id = await begin_running(client, "sleep 30")
    (queued,) = await enqueue(client, session_id, "return 2")
    first = await client.interrupt(session_id, idempotency_key="once")
    assert (first.turn_id, first.session_status) == (turn_id, "open")
    assert (await client.interrupt(session_id, idempotency_key="once")).hold_id == first.hold_id
    second = await client.interrupt(session_id)
    turn = await settled(client, session_id, turn_id)
    assert (turn.status, turn.reason) == ("interrupted", "session_interrupt")
    third = await client.interrupt(session_id)
    assert third.turn_id is None
    holds = [receipt.hold_id or "" for receipt in (first, second, third)]
    assert [hold.id for hold in (await client.session(session_id)).holds] == holds
    for hold in holds:
        assert (await client.turn(session_id, queued)).status == "queued"
        await client.resume(session_id, hold)
    assert (await settled(client, session_id, queued)).result == 2
    assert await refused(client.resume(session_id, holds[0])) == "hold_not_found"


async def test_s51_s55_a_session_that_ends_takes_no_interrupt(client: Client) -> None:
    session_id, _ = await begin_running(client, "sleep 30")
    await client.close(session_id)
    assert await refused(client.interrupt(session_id)) == "session_closing"
    await client.cancel(session_id)
    assert await refused(client.interrupt(session_id)) == "session_closed"


# --- close and cancel -------------------------------------------------------------------------------


async def test_s53_close_of_a_held_session_waits_for_nothing(client: Client) -> None:
    session_id, _ = await begin(client)
    await client.interrupt(session_id)
    turns = await enqueue(client, session_id, "say 1", "say 2", "say 3")
    began = time.monotonic()
    receipt = await client.close(session_id)
    assert receipt.session_status == "closed"
    assert time.monotonic() - began < 1
    view = await client.session(session_id)
    assert (view.closed_how, view.holds) == ("close", ())
    events = await timeline(client, session_id)
    assert kinds(events[-5:]) == ["session.close", *["turn.cancelled"] * 3, "session.closed"]
    assert [event.turn_id for event in events[-4:-1]] == turns
    assert {event.data["reason"] for event in events[-4:-1]} == {"hold_blocked"}


async def test_s54_s55_cancel_ends_everything_at_once_and_in_order(client: Client) -> None:
    session_id, first = await begin_running(client, "stubborn 3\nsay ghost", stop_deadline=1)
    turns = [first, *await enqueue(client, session_id, *["say never"] * 5)]
    began = time.monotonic()
    receipt = await client.cancel(session_id)
    assert (receipt.status, receipt.session_status) == ("accepted", "closed")
    assert time.monotonic() - began < 1
    view = await client.session(session_id)
    assert (view.status, view.closed_how, view.running_turn_id) == ("closed", "cancel", None)
    events = await timeline(client, session_id)
    assert kinds(events[-7:]) == [*["turn.cancelled"] * 6, "session.closed"]
    assert [event.turn_id for event in events[-7:-1]] == turns
    assert events[-1].data == {"how": "cancel"}
    for again in (await client.close(session_id), await client.cancel(session_id)):
        assert (again.status, again.session_status) == ("accepted", "closed")
        assert again.event_sequence == events[-1].sequence
    (turn,) = (await client.list_turns(session_id, limit=1)).turns
    assert (turn.status, turn.reason) == ("cancelled", "cancel")
    assert await timeline(client, session_id) == events


async def test_s56_a_cancel_after_an_accepted_interrupt_cancels_the_rest(client: Client) -> None:
    session_id, first = await begin_running(client, "stubborn 3", stop_deadline=20)
    (second,) = await enqueue(client, session_id, "say never")
    await client.interrupt_turn(session_id, first)
    await client.cancel(session_id)
    events = await timeline(client, session_id)
    assert [(e.kind, e.turn_id) for e in events[-3:]] == [
        ("turn.interrupted", first),
        ("turn.cancelled", second),
        ("session.closed", None),
    ]


async def test_s54_cancel_from_closing(client: Client) -> None:
    session_id, turn_id = await begin_running(client, "sleep 30")
    await client.close(session_id)
    await client.cancel(session_id)
    view = await client.session(session_id)
    assert (view.status, view.closed_how) == ("closed", "cancel")
    assert (await client.turn(session_id, turn_id)).status == "cancelled"


# --- time -------------------------------------------------------------------------------------------


async def test_s60_s61_s63_close_after_idle(client: Client, stack: Stack) -> None:
    async def not_during_a_turn() -> None:
        session_id, turn_id = await begin(client, "sleep 5", close_after_idle=3)
        turn = await settled(client, session_id, turn_id)
        assert turn.status == "completed"
        await poll(lambda: closed(client, session_id))
        view = await client.session(session_id)
        assert view.closed_how == "idle"
        assert view.closed_at is not None
        assert turn.ended_at is not None
        assert 3 <= (view.closed_at - turn.ended_at).total_seconds() < 5
        assert kinds(await timeline(client, session_id))[-2:] == ["turn.completed", "session.closed"]

    async def held_with_a_queue() -> None:
        session_id, _ = await begin(client, close_after_idle=3)
        await client.interrupt(session_id)
        await enqueue(client, session_id, "say never")
        await poll(lambda: closed(client, session_id))
        events = await timeline(client, session_id)
        assert kinds(events)[-2:] == ["turn.cancelled", "session.closed"]
        assert (events[-2].data["reason"], events[-1].data["how"]) == ("hold_blocked", "idle")
        view = await client.session(session_id)
        assert 3 <= (events[-1].created_at - view.created_at).total_seconds() < 5

    async def watched() -> None:
        session_id, _ = await begin(client, close_after_idle=3)

        async def polled() -> bool:
            await client.events(session_id)
            await client.explain(session_id)
            return await closed(client, session_id)

        streaming = asyncio.create_task(_all(client, session_id))
        await poll(polled)
        events = await streaming
        assert kinds(events) == ["session.closed"]
        view = await client.session(session_id)
        assert view.closed_at is not None
        assert 3 <= (view.closed_at - view.created_at).total_seconds() < 5

    await asyncio.gather(not_during_a_turn(), held_with_a_queue(), watched())


async def _all(client: Client, session_id: str) -> list[EventView]:
    return [event async for event in client.stream(session_id) if isinstance(event, EventView)]


async def test_s62_a_session_hibernates_and_wakes_with_its_state(client: Client) -> None:
    session_id, turn_id = await begin(client, "set city Lisbon\nepoch", hibernate_after_idle=0.5)
    assert output(await settled(client, session_id, turn_id)) == "epoch: 1\nturns: 1\n"
    await poll(lambda: has(client, session_id, "session.process_stopped"))
    view = await client.session(session_id)
    assert (view.status, view.process.status) == ("open", "none")
    first, second = await enqueue(client, session_id, "get city\nepoch", "epoch")
    assert output(await settled(client, session_id, first)) == "city: Lisbon\nepoch: 2\nturns: 1\n"
    assert output(await settled(client, session_id, second)) == "epoch: 2\nturns: 2\n"
    events = await timeline(client, session_id)
    assert one(events, "session.process_stopped").data == {"process_epoch": 1, "reason": "hibernated"}
    woken = [e for e in events if e.kind == "session.process_started"][1]
    assert woken.data["recovery"] == {"kind": "reconstructed", "reason": "hibernated"}


async def test_s17_a_turn_past_its_duration_is_interrupted(client: Client) -> None:
    session_id, turn_id = await begin(client, "sleep 30", max_turn_duration=1)
    (queued,) = await enqueue(client, session_id, "epoch")
    turn = await settled(client, session_id, turn_id)
    assert (turn.status, turn.reason) == ("interrupted", "turn_deadline_elapsed")
    assert turn.started_at is not None
    assert turn.ended_at is not None
    assert 1 <= (turn.ended_at - turn.started_at).total_seconds() < 3
    assert output(await settled(client, session_id, queued)) == "epoch: 2\nturns: 1\n"
    events = await timeline(client, session_id)
    assert one(events, "session.process_stopped").data["reason"] == "turn_deadline_elapsed"
    assert "session.process_failed" not in kinds(events)
