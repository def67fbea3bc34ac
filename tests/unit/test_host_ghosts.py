"""Processes that nobody counts on any more, and Processes that make room."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from activities import ghosts
from activities import host as host_module
from activities.host import Host
from activities.waiting import GivenUp, ProcessUnknown, Superseded
from tests.harness import poll
from tests.unit.hosting import SESSION, Link, make_host, start_call, turn_call
from turnhold.scripted import script
from turnhold.session.hosting import ProcessGone

OTHER = "ses_other000"


@asynccontextmanager
async def tended(host: Host) -> AsyncIterator[None]:
    tending = asyncio.create_task(host.tend())
    try:
        yield
    finally:
        tending.cancel()
        with suppress(asyncio.CancelledError):
            await tending


async def test_s26_a_higher_epoch_replaces_an_older_process():
    host = make_host(script)
    await host.start_process(start_call("script"))
    turn = asyncio.create_task(host.run_turn(turn_call("sleep 30")))
    await asyncio.sleep(0)
    await host.start_process(start_call("script", epoch=2))
    with pytest.raises(GivenUp):
        await turn
    with pytest.raises(ProcessUnknown):
        await host.start_process(start_call("script", epoch=1))
    assert (await host.run_turn(turn_call("say hi", epoch=2))).how == "completed"


async def test_s26_a_process_whose_session_is_gone_stops_by_itself():
    link = Link()
    link.gone.add(SESSION)
    host = make_host(script, link=link)
    await host.start_process(start_call("script"))
    turn = asyncio.create_task(host.run_turn(turn_call("say hi\nsleep 30")))
    with pytest.raises(GivenUp):
        await turn
    assert host.occupied == 0


async def test_s26_a_call_that_comes_late_begins_only_what_its_session_still_waits_for():
    link = Link()
    host = make_host(script, link=link)
    link.expected[SESSION] = 2
    with pytest.raises(ProcessUnknown):
        await host.start_process(start_call("script"), late=True)
    assert host.occupied == 0
    await host.start_process(start_call("script", epoch=2), late=True)
    assert (await host.run_turn(turn_call("epoch", epoch=2, first=True), late=True)).how == "completed"
    link.expected[SESSION] = 3
    with pytest.raises(ProcessUnknown):
        await host.run_turn(turn_call("crash", number=2, epoch=2, first=True), late=True)
    link.down = 1
    with pytest.raises(ProcessUnknown):
        await host.run_turn(turn_call("crash", number=2, epoch=2, first=True), late=True)
    assert host.occupied == 1, "nothing has begun"


async def test_s24_a_first_call_that_comes_behind_another_takes_nobodys_place():
    host = make_host(script)
    await host.start_process(start_call("script"))
    attached = asyncio.create_task(host.run_turn(turn_call("sleep 0.2\nreturn 7")))
    await asyncio.sleep(0)
    with pytest.raises(Superseded):
        await host.run_turn(turn_call("sleep 0.2\nreturn 7", first=True))
    assert (await attached).result == 7


async def test_s26_a_process_without_turns_or_without_anybody_waiting_stops(monkeypatch):
    for name in ("UNUSED_SECONDS", "UNAWAITED_SECONDS", "LAST_CALL_SECONDS"):
        monkeypatch.setattr(ghosts, name, 0.05)
    host = make_host(script)
    await host.start_process(start_call("script"))
    await poll(lambda: host.occupied == 0)
    await host.start_process(start_call("script", epoch=2))
    turn = asyncio.create_task(host.run_turn(turn_call("sleep 30", epoch=2)))
    await asyncio.sleep(0)
    turn.cancel()
    await poll(lambda: host.occupied == 0)


async def test_s26_a_turn_that_nobody_waits_for_stops_at_once_when_its_session_has_moved_on(monkeypatch):
    monkeypatch.setattr(ghosts, "UNAWAITED_SECONDS", 0.05)
    link = Link()
    link.expected[SESSION] = 2
    host = make_host(script, link=link)
    await host.start_process(start_call("script"))
    turn = asyncio.create_task(host.run_turn(turn_call("sleep 30")))
    await asyncio.sleep(0)
    turn.cancel()
    await poll(lambda: host.occupied == 0, deadline=5)


async def test_s26_s90_a_session_that_has_ended_is_noticed_whether_or_not_a_turn_runs(monkeypatch):
    monkeypatch.setattr(ghosts, "LOOK_SECONDS", 0.05)
    link = Link()
    host = make_host(script, link=link)
    for session_id in (SESSION, OTHER, "ses_third000"):
        await host.start_process(start_call("script", session_id=session_id))
    running = asyncio.create_task(host.run_turn(turn_call("sleep 30")))
    await host.run_turn(turn_call("say hi", session_id=OTHER))
    link.gone |= {SESSION, OTHER}
    link.down = 2  # of a look that fails nothing follows
    async with tended(host):
        await poll(lambda: host.occupied == 1)
    with pytest.raises(GivenUp):
        await running


async def test_s26_after_a_gap_sessions_that_have_moved_on_are_noticed(monkeypatch):
    monkeypatch.setattr(ghosts, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(ghosts, "GAP_SECONDS", 0.2)
    link = Link()
    host = make_host(script, link=link)
    for session_id in (SESSION, OTHER):
        await host.start_process(start_call("script", session_id=session_id))
    link.expected[SESSION] = 2
    async with tended(host):
        await asyncio.sleep(0.3)
        assert host.occupied == 2, "without a gap nobody is asked"
        time.sleep(0.5)  # noqa: ASYNC251 - this host is away
        await poll(lambda: host.occupied == 1)
        link.expected[OTHER] = 2
        link.down = 1  # Temporal is away
        await poll(lambda: host.occupied == 0)


async def test_s22_a_full_host_hibernates_the_longest_idle_process(monkeypatch):
    monkeypatch.setattr(host_module, "ROOMY_AFTER_SECONDS", 0.2)
    link = Link()
    host = make_host(script, link=link, max_processes=3)
    async with tended(host):
        await host.start_process(start_call("script"))
        running = asyncio.create_task(host.run_turn(turn_call("sleep 30")))
        for session_id in (OTHER, "ses_third000"):
            await host.start_process(start_call("script", session_id=session_id))
            await host.run_turn(turn_call("say hi", session_id=session_id))
        await poll(lambda: host.occupied == 2)
        await asyncio.sleep(0.5)
        assert host.occupied == 2, "a host with room hibernates nobody"
    assert link.facts[-1] == ProcessGone(reason="hibernated")
    with pytest.raises(ProcessUnknown):
        await host.run_turn(turn_call("say late", number=2, session_id=OTHER))
    assert (await host.run_turn(turn_call("say hi", number=2, session_id="ses_third000"))).how == "completed"
    running.cancel()


async def test_s22_a_full_host_makes_room_for_many_at_once(monkeypatch):
    monkeypatch.setattr(host_module, "FULL_AFTER_SECONDS", 0.1)
    host = make_host(script, link=Link(), max_processes=40)
    async with tended(host):
        for number in range(40):
            await host.start_process(start_call("script", session_id=f"ses_{number:08}"))
        await poll(lambda: host.occupied == 36)
        await asyncio.sleep(0.5)
        assert host.occupied == 36, "a slot in ten is free, and that is enough"
