"""Ghosts: Processes that no Session counts on any more, and how a host finds out (S-26, S-90).

A Session tells its host what to stop. When it cannot, because it was terminated or because it has
given this host up, the host finds out by itself within a minute: nobody waits for a Turn, Temporal
knows the Session no longer, or the Session, asked after a gap, counts on another Process.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping

from activities.link import SessionLink
from activities.process import Process
from activities.waiting import HostedTurn

log = logging.getLogger(__name__)

UNUSED_SECONDS = 60.0  # a Process that gets no Turn: its Session has moved on
UNAWAITED_SECONDS = 30.0  # a Turn that nobody waits for: ask its Session …
LAST_CALL_SECONDS = 10.0  # … and give it this long to come back, when it answers
LOOK_SECONDS = 15.0  # between looks for Sessions that have ended
GAP_SECONDS = 3.0  # so long away, and Sessions may have given this host up: each is asked


class Ghosts:
    """Watches the Processes of one host, on the host's loop."""

    def __init__(self, link: SessionLink, processes: Mapping[str, Process]) -> None:
        self._link = link
        self._processes = processes
        self._tasks: set[asyncio.Task[None]] = set()

    def expect_a_turn(self, process: Process) -> None:
        """A Process has just started, and its Session is about to give it a Turn."""

        def drop_unused() -> None:
            if process.turn is None and process.status == "live":
                self._drop(process, "it got no Turn")

        asyncio.get_running_loop().call_later(UNUSED_SECONDS, drop_unused)

    def left_alone(self, process: Process, turn: HostedTurn) -> None:
        """The last call that waited for this Turn is gone; another may come."""

        def doubt() -> None:
            if self._is_alone(process, turn):
                self._keep(self._look_for_waiter(process, turn))

        asyncio.get_running_loop().call_later(UNAWAITED_SECONDS, doubt)

    async def watch(self) -> None:
        """Look again and again for Processes whose Session has ended or moved on."""
        doubtful: list[Process] = []
        gap = False
        while True:
            gap = await self._stopped_within(LOOK_SECONDS) or gap
            processes = [p for p in self._processes.values() if p.status == "live"]
            try:
                ended = await self._link.ended([p.session_id for p in processes])
            except Exception as error:
                log.info("cannot look for Sessions that have ended: %s", error)
                gap = True
                continue
            for process in processes:
                if process.session_id in ended:
                    self._drop(process, "its Session has ended")
            doubtful = await self._ask(processes if gap else doubtful)
            gap = False

    async def _stopped_within(self, seconds: float) -> bool:
        """Let so much time pass; True as soon as this host was stopped for longer than Temporal overlooks."""
        time = asyncio.get_running_loop().time
        until = time() + seconds
        while (left := until - (before := time())) > 0:
            await asyncio.sleep(min(left, 1))
            if time() - before > GAP_SECONDS:
                return True
        return False

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _ask(self, doubtful: list[Process]) -> list[Process]:
        """Drop those that their Session has given up; answers those whose Session does not tell."""
        untold: list[Process] = []
        for process in doubtful:
            if process.status == "live":
                try:
                    expected = await self._link.expects(process.session_id, process.epoch)
                except Exception:
                    untold.append(process)
                    continue
                if not expected:
                    self._drop(process, "its Session has moved on")
        return untold

    def _is_alone(self, process: Process, turn: HostedTurn) -> bool:
        return process.turn is turn and not turn.awaited and process.status != "gone"

    async def _look_for_waiter(self, process: Process, turn: HostedTurn) -> None:
        """A Session that answers has sent again all that it waits for; one that cannot may come back."""
        while self._is_alone(process, turn):
            try:
                expected = await self._link.expects(process.session_id, process.epoch)
            except Exception:
                await asyncio.sleep(LAST_CALL_SECONDS)
                continue
            if expected:
                await asyncio.sleep(LAST_CALL_SECONDS)
            if self._is_alone(process, turn):
                self._drop(process, "nobody waits for its Turn")
            return

    def _drop(self, process: Process, why: str) -> None:
        log.warning("a Process is dropped: %s", why, extra=process.ids)
        process.abandon()

    def _keep(self, coroutine: Awaitable[None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
