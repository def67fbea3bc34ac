"""The Session workflow: a thin shell around the machine.

It feeds the machine with signals, results and time, and carries out its steps with Temporal's
primitives. It decides nothing. Handlers never await; every step runs in a task of its own, so
that the main coroutine, which only waits for conditions, is the one place where Temporal's Cancel
arrives.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    TimeoutError,
    TimeoutType,
)

from turnhold.session import commands, handover, headroom, hosting, limits, steps
from turnhold.session import peers as told
from turnhold.session.carried import SessionInput
from turnhold.session.machine import Machine
from turnhold.session.values import Record
from turnhold.session.views import ReadRequest, ReadResult
from turnhold.temporal import names
from workflows import activities, display, metrics, peers
from workflows.incoming import Nonsense, command_of

_Said = TypeVar("_Said", bound=Record)
_MOVE = workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE


@workflow.defn(name=names.WORKFLOW)
class Session:
    """One continuing conversation with an Agent."""

    @workflow.init
    def __init__(self, given: SessionInput) -> None:
        self._given = given
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._timers: dict[datetime, asyncio.Task[None]] = {}
        self._children: dict[str, asyncio.Task[None]] = {}
        self._stale = False
        self._left = False
        self._seen = 0
        self._too_large_at: int | None = None  # the length of the history at that task
        self._signals = 0
        if given.new is not None:
            self._shown = display.at_start(given.new.created_at)
            self._machine = Machine.begin(
                workflow.info().workflow_id,
                given.new,
                workflow.now(),
                owner_state=given.owner_state,
                log=workflow.logger,
            )
        elif given.state is not None:
            self._shown = display.shown(given.state)
            self._machine = Machine(given.state, log=workflow.logger)
        else:
            raise ApplicationError("a Session starts with `new` or `state`", non_retryable=True)
        self._machine.begin_run(_deployment(), workflow.now())
        info = workflow.info()
        self._machine.state.prefix = names.folder_of(info.workflow_id, info.first_execution_run_id)
        self._recorded = self._machine.state

    @workflow.run
    async def run(self, given: SessionInput) -> None:
        self._machine.take()
        self._carry_out()
        while True:
            try:
                await workflow.wait_condition(lambda: self._stale or self._machine.finished or self._is_due())
            except asyncio.CancelledError:
                self._feed(self._machine.cancelled)
            if self._stale:  # once for all that a task of the workflow has brought
                self._stale = False
                self._shown = display.show(self._machine.state, self._shown)
            if self._machine.finished:
                break
            if self._is_due():
                if self._machine.may_be_carried:
                    break
                self._too_large_at = workflow.info().get_current_history_length()
                self._begin_steps()
        metrics.run_ended(self._machine.state, self._used())
        if self._machine.finished:
            return
        self._left = True
        workflow.continue_as_new(
            given.model_copy(
                update={"new": None, "owner_state": None, "state": self._machine.carry(self._tasks)}
            ),
            initial_versioning_behavior=_MOVE if self._machine.leaving else None,
        )

    # --- signals --------------------------------------------------------------------------------

    @workflow.signal
    def enqueue(self, *payload: Any) -> None:
        self._command(commands.Enqueue, payload)

    @workflow.signal
    def send(self, *payload: Any) -> None:
        self._command(commands.Send, payload)

    @workflow.signal
    def interrupt(self, *payload: Any) -> None:
        self._command(commands.Interrupt, payload)

    @workflow.signal
    def resume(self, *payload: Any) -> None:
        self._command(commands.Resume, payload)

    @workflow.signal
    def close(self, *payload: Any) -> None:
        self._command(commands.Close, payload)

    @workflow.signal
    def cancel(self, *payload: Any) -> None:
        self._command(commands.Cancel, payload)

    @workflow.signal
    def answer(self, *payload: Any) -> None:
        self._command(commands.AnswerAsk, payload)

    @workflow.signal
    def spawn(self, *payload: Any) -> None:
        """A host, for the running Turn."""
        self._command(commands.Spawn, payload)

    @workflow.signal
    def move(self, *payload: Any) -> None:
        """An operator's command line (S-4)."""
        self._command(commands.Move, payload)

    @workflow.signal
    def report(self, *payload: Any) -> None:
        """A host reports facts of the running Turn."""
        self._said(hosting.Report, payload, self._machine.report)

    @workflow.signal
    def owner_state(self, *payload: Any) -> None:
        """The owner tells what it passes down."""
        self._said(commands.OwnerState, payload, self._machine.owner_said)

    @workflow.signal
    def owned(self, *payload: Any) -> None:
        """An owned Session tells that it has closed."""
        self._said(commands.OwnedReport, payload, self._machine.owned_said)

    @workflow.signal(dynamic=True)
    def unknown(self, name: str, _args: Sequence[RawValue]) -> None:
        """A signal of any other name changes nothing, and is not kept (S-91)."""
        self._signals += 1
        workflow.logger.warning("dropped a signal of unknown name: %s", name)

    def _said(
        self, model: type[_Said], payload: tuple[Any, ...], take: Callable[[_Said, datetime], None]
    ) -> None:
        self._signals += 1
        try:
            said = model.model_validate(payload[0] if payload else None)
        except ValidationError:
            workflow.logger.warning("dropped a signal that makes no sense: %s", model.__name__)
            return
        self._feed(lambda now: take(said, now))

    def _command(self, model: type[commands.Command], payload: tuple[Any, ...]) -> None:
        self._signals += 1
        try:
            command = command_of(model, payload)
        except Nonsense as nonsense:
            workflow.logger.warning("dropped a signal `%s`: %s", model.operation, nonsense)
            if nonsense.request_id is not None:
                named, rejection = nonsense.request_id, nonsense.rejection
                self._feed(lambda now: self._machine.reject(named, rejection, now))
            return

        def judge(now: datetime) -> None:
            request_id = self._machine.command(command, now)
            metrics.judged(self._machine.state, request_id)

        self._feed(judge)

    # --- the one query --------------------------------------------------------------------------

    @workflow.query
    def read(self, request: ReadRequest) -> ReadResult:
        """A run that ends says what it knew before its last task: Temporal takes the end back when a signal
        comes in between, and what the task brought is judged once more, perhaps in another order (S-80).
        """
        if self._left:
            recorded = Machine(self._recorded, log=workflow.logger)
            return recorded.read(request, workflow.now(), self._used()).but(leaving=True)
        return self._machine.read(request, workflow.now(), self._used())

    def _used(self) -> headroom.Used:
        info = workflow.info()
        return headroom.Used(
            events=info.get_current_history_length(),
            bytes=info.get_current_history_size(),
            signals=self._signals,
        )

    # --- the machine, fed -----------------------------------------------------------------------

    def _feed(self, give: Callable[[datetime], object]) -> None:
        """Let the machine judge something, then do what it asks for."""
        length = workflow.info().get_current_history_length()
        if length != self._seen:  # the first of a task
            self._seen, self._recorded = length, self._machine.state.fork()
        self._machine.runs_on(_deployment(), workflow.now())
        give(workflow.now())
        for step_id in self._machine.take():
            task = self._tasks.pop(step_id, None)
            if task is not None:
                task.cancel()
        self._carry_out()

    def _carry_out(self) -> None:
        """Begin every step that is not under way; when this run is about to end, leave it to the next one."""
        if not self._is_due():
            self._begin_steps()
        self._stale = True

    def _begin_steps(self) -> None:
        for step in self._machine.outstanding():
            if step.id not in self._tasks:
                self._tasks[step.id] = asyncio.create_task(self._step(step), name=f"step {step.id}")
        self._arm()

    def _is_due(self) -> bool:
        """A roll-over is due. Whether the state is small enough for it is looked at once in a task of the
        workflow: that takes milliseconds, and a task may bring hundreds of signals.
        """
        info = workflow.info()
        length = info.get_current_history_length()
        long = length >= (self._given.events_per_run or limits.ROLL_OVER_EVENTS)
        due = long or info.is_continue_as_new_suggested() or self._machine.leaving
        return due and length != self._too_large_at

    async def _step(self, step: steps.Step) -> None:
        """Carry a step out, and tell the machine what came of it."""
        machine = self._machine
        try:
            result = await self._result(step)
        except asyncio.CancelledError:
            return
        except ActivityError as error:
            if step.id in self._tasks:
                failure = _failure(error)
                workflow.logger.warning("step %s was not carried out: %s", step.kind, failure)
                self._done(step, lambda now: machine.step_failed(step.id, failure, now))
            return
        match result:
            case hosting.StartProcessResult():
                self._done(step, lambda now: machine.process_started(step.id, result, now))
            case hosting.TurnOutcome():
                self._done(step, lambda now: machine.turn_ended(step.id, result, now))
            case handover.Fetched():
                self._done(step, lambda now: machine.fetched(step.id, result.content, now))
            case told.OwnedStart():
                self._done(step, lambda now: machine.start_ended(step.id, result, now))
            case told.Told():
                self._done(step, lambda now: machine.told(step.id, result, now))
            case told.Looked():
                self._done(step, lambda now: machine.looked(step.id, result, now))
            case _:
                self._done(step, lambda now: machine.step_done(step.id, now))

    async def _result(self, step: steps.Step) -> Any:
        """What came of a step: of the host's activity, or of a call to another Session."""
        match step:
            case steps.StartOwned():
                start, child = await peers.start(self._machine, step, self._given.events_per_run)
                if child is not None:
                    watching = asyncio.create_task(self._watch(child), name=f"owned {child.id}")
                    self._children[child.id] = watching
                return start
            case steps.SendOwnerState() | steps.TellOwner():
                return await peers.tell(self._machine, step)
            case steps.LookForOwned() | steps.LookForOwner():
                return await peers.look(self._machine, step)
            case _:
                return await activities.execute(self._machine.state, step)

    async def _watch(self, child: peers.Child) -> None:
        """Temporal tells this run, and no later one, when the child ends."""
        with suppress(ChildWorkflowError):
            await child
        del self._children[child.id]
        self._feed(lambda now: self._machine.doubt(child.id, now))

    def _done(self, step: steps.Step, fact: Callable[[datetime], None]) -> None:
        self._tasks.pop(step.id, None)
        self._feed(fact)

    # --- time -----------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Make sure that a timer fires by the machine's next deadline.

        Timers are left alone once they run, and reused: a short Turn costs none.
        """
        due = self._machine.next_deadline()
        if due is not None and not any(at <= due for at in self._timers):
            self._timers[due] = asyncio.create_task(self._wake(due), name="timer")

    async def _wake(self, due: datetime) -> None:
        pause = max((due - workflow.now()).total_seconds(), 0.001)
        await workflow.sleep(timedelta(seconds=pause), summary="Look again")
        del self._timers[due]
        self._feed(self._machine.tick)


def _deployment() -> str:
    version = workflow.info().get_current_deployment_version()
    if version is None or not version.deployment_name:
        return "unversioned"
    return f"{version.deployment_name}:{version.build_id}"


def _failure(error: ActivityError) -> steps.Failure:
    cause = error.cause
    if isinstance(cause, TimeoutError):
        if cause.type == TimeoutType.SCHEDULE_TO_START:
            return "not_taken"
        if cause.type == TimeoutType.HEARTBEAT:
            return "suspected" if cause.last_heartbeat_details else "unheard"
        return "lost"
    if isinstance(cause, ApplicationError) and cause.type == hosting.PROCESS_GONE:
        return "refused"
    return "lost"
