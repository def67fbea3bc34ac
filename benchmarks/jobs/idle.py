"""A thousand idle Sessions with a thousand idle viewers: processor and memory."""

import asyncio
import time
from contextlib import AsyncExitStack

import psutil

from benchmarks.bench import Bench
from benchmarks.ground import Ground, Setup
from benchmarks.viewer import viewing

SESSIONS = 1_000
_AT_ONCE = 20
_SETTLE_SECONDS = 20.0
_WATCH_SECONDS = 60.0
SETUP = Setup(settings={"TURNHOLD_MAX_PROCESSES": str(SESSIONS + 100)})


async def idle(bench: Bench, ground: Ground) -> None:
    """Every Session has done one Turn and keeps its Process: nothing hibernates within the time."""
    count = bench.some(SESSIONS)
    settle, watch = (5.0, 10.0) if bench.quick else (_SETTLE_SECONDS, _WATCH_SECONDS)
    api, worker = ground.process(ground.stack.api), ground.process(ground.stack.workers[0])
    bench.tell(f"idle: {count} Sessions with one Turn each")
    before = {process: process.memory_info().rss for process in (api, worker)}
    sessions = await _sessions(ground, count)
    made = {process: process.memory_info().rss for process in (api, worker)}
    bench.add(
        "idle", "worker, memory a Session with its Process", "KiB", [[_each(made, before, worker, count)]]
    )
    async with AsyncExitStack() as stack:
        bench.tell(f"idle: {count} viewers")
        for session in sessions:
            await stack.enter_async_context(viewing(ground.client.url, session))
        bench.tell("idle: waiting until it is quiet")
        await asyncio.sleep(settle)
        watched = {process: process.memory_info().rss for process in (api, worker)}
        bench.add("idle", "API, memory a viewer", "KiB", [[_each(watched, made, api, count)]])
        bench.tell(f"idle: {watch:g} s of watching")
        begun = time.monotonic()
        used = {process: _seconds(process) for process in (api, worker)}
        await asyncio.sleep(watch)
        passed = time.monotonic() - begun
        shares = {process: (_seconds(process) - used[process]) / passed * 100 for process in used}
    bench.add("idle", "API", "% of a core", [[shares[api]]])
    bench.add("idle", "worker", "% of a core", [[shares[worker]]])
    bench.add("idle", "API and worker", "% of a core", [[sum(shares.values())]])


async def _sessions(ground: Ground, count: int) -> list[str]:
    room = asyncio.Semaphore(_AT_ONCE)

    async def one() -> str:
        async with room:
            created = await ground.client.create_session("echo", input="hi")
            assert created.turn is not None
            await ground.client.wait_turn(created.session.id, created.turn.id, patience=120)
            return created.session.id

    return await asyncio.gather(*(one() for _ in range(count)))


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _each(
    after: dict[psutil.Process, int], before: dict[psutil.Process, int], of: psutil.Process, count: int
) -> float:
    return (after[of] - before[of]) / 1024 / count
