"""The host: all live Processes of this worker, by Session."""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping

from activities.ghosts import Ghosts
from activities.link import SessionLink
from activities.others import OtherSessions
from activities.process import Process
from activities.waiting import ProcessUnknown, Superseded
from turnhold.agents.definition import AgentDefinition
from turnhold.session.hosting import (
    AnswerAskCall,
    DeliverMessageCall,
    FindTurnCall,
    RunTurnCall,
    StartProcessCall,
    StartProcessResult,
    StopProcessCall,
    StopTurnCall,
    TurnOutcome,
)

log = logging.getLogger(__name__)

ROOMY_AFTER_SECONDS = 10.0  # a host that fills up hibernates a Process that has been idle for so long (S-22)
FULL_AFTER_SECONDS = 5.0  # … and one that is full, where somebody may wait, after so long
ROOM_SHARE = 10  # it keeps one slot in so many free
_LOOK_SECONDS = 0.25
OUTCOME_KEPT_SECONDS = 600.0  # of a Process that is gone: its Session may not have it yet
_STUCK_AT_LEAST = 3


class Host:
    """Keeps Processes; every call of a Session is answered here. Lives on one event loop.

    Args:
        queue: the task queue that this host alone polls.
        max_processes: how many Processes it keeps at once.
    """

    def __init__(
        self,
        agents: Mapping[str, AgentDefinition],
        link: SessionLink,
        others: OtherSessions,
        *,
        queue: str,
        deployment: str,
        max_processes: int,
    ) -> None:
        self.queue = queue
        self.max_processes = max_processes
        self.draining = False
        self.exhausted = asyncio.Event()
        self.on_change: Callable[[], None] = lambda: None
        self._agents = agents
        self._link = link
        self._others = others
        self._deployment = deployment
        self._processes: dict[str, Process] = {}
        self._stuck: list[Process] = []
        self._ghosts = Ghosts(link, self._processes)

    @property
    def occupied(self) -> int:
        """Slots taken by Processes whose start is over. Asked for on any thread."""
        return sum(process.status in ("live", "leaving") for process in list(self._processes.values()))

    # --- calls ----------------------------------------------------------------------------------

    async def start_process(self, call: StartProcessCall, *, late: bool = False) -> StartProcessResult:
        """Run `init` (S-20). A repeated call waits for the same start.

        `late`: it was under way for so long that its Session may have given it up, and is asked first.

        Raises:
            ProcessUnknown: this host takes no Process now; nothing has begun.
        """
        if late:
            await self._refuse_unless_expected(call.session.id, call.epoch)
        process = self._processes.get(call.session.id)
        if process is None or process.epoch < call.epoch:
            if self.draining:
                raise ProcessUnknown
            definition = self._agents.get(call.session.agent)
            if definition is None:
                detail = f"This worker knows no Agent {call.session.agent!r}."
                return StartProcessResult(status="agent_not_found", detail=detail)
            process = self._make(call, definition)
        elif process.epoch > call.epoch:
            raise ProcessUnknown
        try:
            failure = await process.started()
        except asyncio.CancelledError:
            process.abandon()
            raise
        if failure is None and process.status == "live":
            self._ghosts.expect_a_turn(process)
            return StartProcessResult(status="started", queue=self.queue, deployment=self._deployment)
        if failure is None or self.draining:
            raise ProcessUnknown
        log.warning(failure, exc_info=process.init_error, extra=process.ids)
        return StartProcessResult(status="init_failed", deployment=self._deployment, detail=failure)

    async def run_turn(self, call: RunTurnCall, *, late: bool = False) -> TurnOutcome:
        """Begin this Turn or attach to it, and wait for its outcome (S-13).

        The end of this wait is never a stop of the Turn. `late`: as for `start_process`; a handler
        must not begin once its Turn has ended for everybody else (S-26).

        Raises:
            ProcessUnknown: nothing of the call has begun.
            GivenUp: it had begun, and nobody can tell how it ended.
            Superseded: a newer call waits.
        """
        if late:
            await self._refuse_unless_expected(call.session_id, call.epoch)
        process = self._find(call.session_id, call.epoch)
        if process is None:
            raise ProcessUnknown
        if call.first and process.turn is not None and process.turn.id == call.turn_id:
            raise Superseded
        turn = process.begin(call)
        try:
            return await turn.wait()
        finally:
            if not turn.awaited:
                self._ghosts.left_alone(process, turn)

    def stop_turn(self, call: StopTurnCall) -> None:
        """Interrupt the handler at once (S-58); nothing to do for a Process that is gone."""
        if process := self._find(call.session_id, call.epoch):
            process.stop_turn(call.turn_id, call.reason)

    def deliver_message(self, call: DeliverMessageCall) -> None:
        if process := self._find(call.session_id, call.epoch):
            process.tell(call.turn_id, lambda run: run.deliver(call))

    def answer_ask(self, call: AnswerAskCall) -> None:
        if process := self._find(call.session_id, call.epoch):
            process.tell(call.turn_id, lambda run: run.answer(call))

    def find_turn(self, call: FindTurnCall) -> None:
        """Raises ProcessUnknown unless this Turn runs here."""
        process = self._find(call.session_id, call.epoch)
        if process is None or not process.runs(call.turn_id):
            raise ProcessUnknown

    async def stop_process(self, call: StopProcessCall) -> None:
        """Throw the Process away; returns once it is gone or abandoned."""
        process = self._find(call.session_id, call.epoch)
        if process is None:
            return
        if call.abandon:
            process.abandon()
        else:
            await process.stop(call.stop_deadline)
        self._forget(process)

    async def drain(self, grace: float, hurry: asyncio.Event) -> None:
        """Take no new Process, tell idle Sessions, let running Turns go on for `grace` seconds (S-25).

        `hurry` ends the grace. Returns when every Process is gone and every outcome collected.
        """
        self.draining = True
        self.on_change()
        ending = [process.shut_down(grace, hurry) for process in self._processes.values()]
        await asyncio.gather(*ending)
        self._ghosts.cancel()

    async def tend(self) -> None:
        """Look after idle Processes, until cancelled: drop ghosts (S-26), make room (S-22)."""
        async with asyncio.TaskGroup() as tending:
            tending.create_task(self._ghosts.watch())
            tending.create_task(self._make_room())

    async def _make_room(self) -> None:
        """While few slots are free, hibernate the longest idle Processes: whoever comes finds one."""
        full = self.max_processes - math.ceil(self.max_processes / ROOM_SHARE)
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            live = [process for process in self._processes.values() if process.status == "live"]
            if self.draining or len(live) <= full:
                continue
            after = FULL_AFTER_SECONDS if self.occupied >= self.max_processes else ROOMY_AFTER_SECONDS
            live.sort(key=lambda process: process.idle_seconds, reverse=True)
            for process in live[: len(live) - full]:
                if process.idle_seconds >= after:
                    log.info("hibernated to make room", extra=process.ids)
                    process.hibernate()

    async def _refuse_unless_expected(self, session_id: str, epoch: int) -> None:
        """Raises ProcessUnknown where a Session does not say that it counts on this epoch."""
        try:
            expected = await self._link.expects(session_id, epoch)
        except Exception as error:
            raise ProcessUnknown from error
        if not expected:
            raise ProcessUnknown

    # --- the registry ---------------------------------------------------------------------------

    def _make(self, call: StartProcessCall, definition: AgentDefinition) -> Process:
        """Make the Process; an older one of this Session is a ghost."""
        if older := self._processes.get(call.session.id):
            older.abandon()
        process = Process(
            call,
            definition,
            self._link,
            self._others,
            deployment=self._deployment,
            on_change=self._changed,
        )
        self._processes[process.session_id] = process
        return process

    def _find(self, session_id: str, epoch: int) -> Process | None:
        process = self._processes.get(session_id)
        if process is None or process.epoch == epoch:
            return process
        if process.epoch < epoch:
            process.abandon()
        return None

    def _forget(self, process: Process) -> None:
        if self._processes.get(process.session_id) is process:
            del self._processes[process.session_id]

    def _changed(self, process: Process) -> None:
        if process.status == "gone":
            loop = asyncio.get_running_loop()
            kept = process.turn is not None and process.turn.outcome is not None
            loop.call_later(OUTCOME_KEPT_SECONDS if kept else 0, self._forget, process)
            loop.call_later(process.stop_deadline, self._count_stuck, process)
        self.on_change()

    def _count_stuck(self, process: Process) -> None:
        """A thread that is left behind may end yet; too many of them, and this host drains itself."""
        self._stuck = [stuck for stuck in (*self._stuck, process) if stuck.stuck]
        if len(self._stuck) >= max(_STUCK_AT_LEAST, math.ceil(self.max_processes / 10)):
            self.exhausted.set()
