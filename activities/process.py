"""A live Process: an Agent's memory for one Session, on a thread and event loop of its own.

The host's loop holds the handle and decides; the Process's loop runs the author's code. They talk
by callbacks that never wait, so that code which blocks its loop hurts nobody else.
"""

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Literal

from activities import outcome
from activities.link import SessionLink
from activities.outbox import Outbox, call_in
from activities.running import TurnRun
from activities.waiting import HostedTurn, ProcessUnknown
from turnhold.agents.blocking import Bridge, SyncContext, call_in_thread
from turnhold.agents.context import Context
from turnhold.agents.definition import AgentDefinition
from turnhold.agents.errors import Refused
from turnhold.session.hosting import ProcessGone, RunTurnCall, StartProcessCall, TurnOutcome
from turnhold.session.views import TurnView

log = logging.getLogger(__name__)

_HISTORY_RETRY_SECONDS = 1.0
_FLUSH_SECONDS = 5.0
_GIVEN_UP_SECONDS = 8.0
_GIVEN_UP_POLL_SECONDS = 0.05
_STOP_SECONDS = 5.0  # for handlers of a worker that must end


class Process:
    """One Process, seen from the host's loop, where every public method is called.

    `starting` until `init` has ended, `live` while it takes Turns, `leaving` while it ends, `gone`
    when the host is done with it, whether or not its thread has ended.
    """

    def __init__(
        self,
        call: StartProcessCall,
        definition: AgentDefinition,
        link: SessionLink,
        *,
        deployment: str,
        on_change: Callable[["Process"], None],
    ) -> None:
        self.session_id = call.session.id
        self.epoch = call.epoch
        self.stop_deadline = call.stop_deadline
        self.status: Literal["starting", "live", "leaving", "gone"] = "starting"
        self.turn: HostedTurn | None = None
        self.draining = False
        self.init_error: BaseException | None = None
        self._call = call
        self._definition = definition
        self._link = link
        self._deployment = deployment
        self._on_change = on_change
        self._host_loop = asyncio.get_running_loop()
        self._outbox = Outbox(link, self.session_id, self.epoch, self.abandon)
        self._idle_since = 0.0
        self._stops_ahead: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: asyncio.Future[str | None] = self._host_loop.create_future()
        self._ended = asyncio.Event()  # the thread
        self._death: str | None = None
        # Of the Process's loop:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving = asyncio.Event()
        self._memory: Any = None
        self._init_task: asyncio.Task[str | None] | None = None
        self._run: TurnRun | None = None
        self._run_task: asyncio.Task[TurnOutcome] | None = None
        self._thread = threading.Thread(
            target=self._main, name=f"process-{self.session_id}-{self.epoch}", daemon=True
        )
        self._thread.start()

    # --- starting -------------------------------------------------------------------------------

    async def started(self) -> str | None:
        """Wait for `init`: None when it succeeded, else what went wrong, for people (S-21)."""
        seconds = self._call.init_timeout
        try:
            async with asyncio.timeout(seconds):
                failure = await asyncio.shield(self._ready)
        except TimeoutError:
            failure = f"init took longer than {seconds:g} s."
        if failure is None and self._ended.is_set():
            failure = self._death
        if failure is None and self.status == "starting":
            self._become("live")
        elif failure is not None:
            self.abandon()
        return failure

    # --- Turns ----------------------------------------------------------------------------------

    def begin(self, call: RunTurnCall) -> HostedTurn:
        """Run this Turn, or find it running or just ended. Raises ProcessUnknown."""
        turn = self.turn
        if turn is not None and turn.id == call.turn_id:
            return turn
        if (
            self.status != "live"
            or self.draining
            or (turn and (turn.running or turn.sequence >= call.sequence))
        ):
            raise ProcessUnknown
        turn = self.turn = HostedTurn(call)
        self._outbox.begin(call.turn_id)
        self._in_process(self._begin, call, self._stops_ahead.pop(call.turn_id, None))
        self._stops_ahead.clear()
        return turn

    def stop_turn(self, turn_id: str, reason: str) -> None:
        """Interrupt the handler; remembered if the Turn has not arrived (S-58)."""
        turn = self.turn
        if turn is None or turn.id != turn_id:
            self._stops_ahead[turn_id] = reason
        elif turn.running:
            self._tell_run(turn_id, lambda run: run.interrupt(reason))

    def tell(self, turn_id: str, what: Callable[[TurnRun], None]) -> None:
        """Say something to the running Turn; one that has ended hears nothing."""
        if self.runs(turn_id):
            self._tell_run(turn_id, what)

    def runs(self, turn_id: str) -> bool:
        """Whether the handler of this Turn has not ended."""
        return self.turn is not None and self.turn.id == turn_id and self.turn.running

    def _tell_run(self, turn_id: str, what: Callable[[TurnRun], None]) -> None:
        def tell() -> None:
            if self._run is not None and self._run.turn.id == turn_id:
                what(self._run)

        self._in_process(tell)

    # --- the end --------------------------------------------------------------------------------

    async def stop(self, deadline: float) -> None:
        """End it: gently up to `deadline` seconds, else leave its thread behind (S-59)."""
        self._leave()
        try:
            async with asyncio.timeout(deadline):
                await self._ended.wait()
        except TimeoutError:
            log.warning("did not stop in time and is left behind", extra=self.ids)
        self.abandon()

    def abandon(self) -> None:
        """Be done with it now: drop what it still says; its thread ends when its handler does (S-16)."""
        if self.status == "gone":
            return
        self._leave()
        self._become("gone")
        self._outbox.close()
        for task in self._tasks:
            task.cancel()
        if self.turn is not None:
            self.turn.give_up()

    @property
    def idle_seconds(self) -> float:
        """How long it has had nothing to do; 0 while it has."""
        if self.status != "live" or (self.turn is not None and not self.turn.collected):
            return 0.0
        return self._host_loop.time() - self._idle_since

    def hibernate(self) -> None:
        """End it while it is idle; its Session starts another when it needs one (S-22)."""
        self._keep(self._say_goodbye(ProcessGone(reason="hibernated")))

    async def shut_down(self, grace: float, hurry: asyncio.Event) -> None:
        """The worker stops: let a running Turn go on for `grace` seconds, then end it (S-25)."""
        self.draining = True
        turn = self.turn
        if turn is not None and turn.running:
            await turn.ended_within(grace, hurry)
            if turn.running:
                self._tell_run(turn.id, lambda run: run.interrupt("worker_shutdown"))
                await turn.ended_within(min(self.stop_deadline, _STOP_SECONDS))
            if turn.running:
                stopped = outcome.stopped(turn.call, "worker_shutdown")
                self._keep(self._finish(turn, stopped))
            await turn.collected_within(_FLUSH_SECONDS)
            await self._given_up()
        elif self.status == "live":
            if turn is not None:
                await turn.collected_within(_FLUSH_SECONDS)
            await self._say_goodbye(ProcessGone(reason="worker_shutdown"))
            await self._given_up()
        self.abandon()

    async def _given_up(self) -> None:
        """Wait until the Session counts on this Process no more, while this host still answers it (S-25).

        A Turn may be on its way here, and is refused then: with nobody there it would be lost. And the
        call that took an outcome may have been given up in an outage: the Session asks again.
        """
        pause = _GIVEN_UP_POLL_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(_GIVEN_UP_SECONDS):
                while True:
                    with suppress(Refused):  # nobody can tell now
                        if not await self._link.expects(self.session_id, self.epoch):
                            return
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, 1)

    @property
    def stuck(self) -> bool:
        """The host is done with it, and its thread is still there."""
        return self.status == "gone" and not self._ended.is_set()

    @property
    def ids(self) -> dict[str, object]:
        return {"session_id": self.session_id, "epoch": self.epoch, "agent": self._definition.name}

    def _leave(self) -> None:
        if self.status in ("starting", "live"):
            self._become("leaving")
            self._in_process(self._begin_to_leave)

    def _become(self, status: Literal["live", "leaving", "gone"]) -> None:
        self.status = status
        self._idle_since = self._host_loop.time()
        self._on_change(self)

    async def _say_goodbye(self, fact: ProcessGone) -> None:
        self._become("leaving")
        self._outbox.put(fact, urgent=True)
        try:
            async with asyncio.timeout(_FLUSH_SECONDS if self.draining else None):
                await self._outbox.flushed()
        except TimeoutError:
            log.warning("the Session was not told that its Process is gone", extra=self.ids)
        self._in_process(self._begin_to_leave)
        self.abandon()

    # --- the host hears of it -------------------------------------------------------------------

    async def _finish(self, turn: HostedTurn, ended: TurnOutcome) -> None:
        """Make the outcome complete, and keep it until the next call shows that it has arrived."""
        if not turn.end() or self.status == "gone":
            return
        if ended.how == "died":
            self._leave()
        elif self.draining:
            ended = ended.but(process="worker_shutdown")
        first, facts = await self._outbox.settle()
        turn.settle(ended.but(first=first, facts=facts))
        self._idle_since = self._host_loop.time()
        if ended.how == "died":
            self.abandon()

    def _turn_ended(self, call: RunTurnCall, ended: TurnOutcome) -> None:
        if self.turn is not None and self.turn.id == call.turn_id:
            self._keep(self._finish(self.turn, ended))

    def _thread_ended(self) -> None:
        detail = self._death or "The Process ended by itself."
        was_live = self.status == "live"
        self._ended.set()
        if not self._ready.done():
            self._ready.set_result(detail)
        if self.turn is not None and self.turn.running:
            self._keep(self._finish(self.turn, outcome.died(self.turn.call, detail)))
        elif was_live:
            log.warning("died between Turns: %s", detail, extra=self.ids)
            self._keep(self._say_goodbye(ProcessGone(reason="process_failed", detail=detail)))

    def _keep(self, coroutine: Awaitable[None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- on the Process's thread ----------------------------------------------------------------

    def _main(self) -> None:
        try:
            with asyncio.Runner() as runner:
                try:
                    runner.run(self._live())
                except BaseException as error:  # what ends a loop ends this Process, and nothing else
                    self._death = outcome.describe(error)
        finally:
            call_in(self._host_loop, self._thread_ended)

    async def _live(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._init_task = loop.create_task(self._init(), name=f"init {self.session_id}")
        call_in(self._host_loop, self._loop_is_there)
        await asyncio.wait([self._init_task])
        failure = "init was stopped." if self._init_task.cancelled() else self._init_task.result()
        call_in(self._host_loop, lambda: self._ready.done() or self._ready.set_result(failure))
        if failure is None:
            await self._leaving.wait()
        if self._run_task is not None:
            await asyncio.wait([self._run_task])

    def _loop_is_there(self) -> None:
        if self.status in ("leaving", "gone"):
            self._in_process(self._begin_to_leave)

    async def _init(self) -> str | None:
        hook = self._definition.init_hook
        try:
            if hook is not None:
                context = self._context(self._call.state)
                if inspect.iscoroutinefunction(hook):
                    self._memory = await hook(context)
                else:
                    bridge = Bridge(asyncio.get_running_loop())
                    self._memory = await call_in_thread(hook, SyncContext(context, bridge))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.init_error = error
            return f"init failed: {outcome.describe(error)}"
        return None

    def _begin(self, call: RunTurnCall, stop_reason: str | None) -> None:
        run = self._run = TurnRun(call, self._definition.handler, self._context, self._outbox)
        if stop_reason is not None:
            run.interrupt(stop_reason)
        task = self._run_task = asyncio.create_task(run.run(), name=f"run {call.turn_id}")

        def ended(task: asyncio.Task[TurnOutcome]) -> None:
            if not task.cancelled():
                error = task.exception()
                how = task.result() if error is None else outcome.raised(call, error, call.state)
                call_in(self._host_loop, self._turn_ended, call, how)

        task.add_done_callback(ended)

    def _begin_to_leave(self) -> None:
        if self._init_task is not None:
            self._init_task.cancel()
        if self._run is not None:
            self._run.interrupt("stop_process")
        self._leaving.set()

    def _context(self, state: Any) -> Context:
        return Context(
            self,
            session=self._call.session,
            state=state,
            process=self._memory,
            process_epoch=self.epoch,
            recovery=self._call.recovery,
            deployment=self._deployment,
        )

    def _in_process(self, callback: Callable[..., object], *args: object) -> None:
        if self._loop is not None:
            call_in(self._loop, callback, *args)

    async def history(self, limit: int) -> list[TurnView]:
        """Of the Context; waits while no worker or no Temporal can tell. On the Process's loop."""
        while True:
            asked = asyncio.run_coroutine_threadsafe(
                self._link.history(self.session_id, limit), self._host_loop
            )
            try:
                return await asyncio.wrap_future(asked)
            except Refused as refused:
                if refused.code not in ("worker_unavailable", "temporal_unavailable"):
                    raise
            await asyncio.sleep(_HISTORY_RETRY_SECONDS)
