"""Steps of the host as activities: on which queue, within which time, under which name in the Temporal UI.

Only names and models are shared with the host; its implementation is never imported here.
"""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

from turnhold.session import calls, hosting, limits, steps
from turnhold.session.handover import Fetched
from turnhold.session.model import SessionState
from turnhold.temporal import names

_ONCE = RetryPolicy(maximum_attempts=1)
_THRICE = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_attempts=3)
_UNTIL_DONE = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))
_STORE = timedelta(minutes=1)
_HEARTBEAT = timedelta(seconds=limits.HEARTBEAT_TIMEOUT_SECONDS)
_DISPATCH = timedelta(seconds=limits.DISPATCH_SECONDS)
_ATTACH = timedelta(seconds=limits.ATTACH_SECONDS)
_UNTIL_HEARD = RetryPolicy(
    initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=5)
)
_WORD = timedelta(seconds=5)  # a host takes note at once: longer, and its task is lost
_MARGIN = 30.0  # beyond what the host itself allows: only a host that hangs gets here


Step = (
    steps.StartProcess
    | steps.RunTurn
    | steps.StopTurn
    | steps.StopProcess
    | steps.DeliverMessage
    | steps.AnswerAsk
    | steps.FindTurn
    | steps.Seal
    | steps.SetAside
    | steps.Fetch
)


async def execute(state: SessionState, step: Step) -> Any:
    """Carry out one step of the host's or the store's; answers its result.

    Raises:
        ActivityError: it was not carried out.
    """
    match step:
        case steps.StartProcess():
            call = calls.start_process(state, step)
            return await workflow.execute_activity(
                names.START_PROCESS,
                call,
                result_type=hosting.StartProcessResult,
                start_to_close_timeout=timedelta(seconds=call.init_timeout + _MARGIN),
                heartbeat_timeout=_HEARTBEAT,
                retry_policy=_ONCE,
                summary=f"Start process {step.epoch}",
            )
        case steps.RunTurn():
            return await workflow.execute_activity(
                names.RUN_TURN,
                calls.run_turn(state, step),
                result_type=hosting.TurnOutcome,
                task_queue=step.queue,
                schedule_to_start_timeout=_DISPATCH if step.first else _ATTACH,
                start_to_close_timeout=timedelta(seconds=limits.RUN_TURN_SECONDS),
                heartbeat_timeout=_ATTACH if step.attach else _HEARTBEAT,
                retry_policy=_ONCE,
                summary=f"Turn {step.turn}" if step.first else f"Turn {step.turn}, attached",
            )
        case steps.StopTurn():
            call = calls.stop_turn(state, step)
            return await _control(names.STOP_TURN, call, step.queue, f"Stop turn {step.turn}")
        case steps.StopProcess():
            call = calls.stop_process(state, step)
            patience = 0.0 if step.abandon else call.stop_deadline
            return await _control(
                names.STOP_PROCESS, call, step.queue, f"Stop process {step.epoch}", patience
            )
        case steps.DeliverMessage():
            call = calls.deliver_message(state, step)
            summary = f"Message to turn {step.turn}"
            return call and await _word(names.DELIVER_MESSAGE, call, step.queue, summary)
        case steps.AnswerAsk():
            call = calls.answer_ask(state, step)
            summary = f"Answer to turn {step.turn}"
            return call and await _word(names.ANSWER_ASK, call, step.queue, summary)
        case steps.FindTurn():
            call = calls.find_turn(state, step)
            return await _word(names.FIND_TURN, call, step.queue, f"Find turn {step.turn}")
        case steps.Seal():
            return await _store(names.SEAL, calls.seal(state, step), _sealed(step))
        case steps.SetAside():
            summary = f"Set {len(step.turns)} inputs aside"
            return await _store(names.SET_ASIDE, calls.set_aside(state, step), summary)
        case steps.Fetch():
            summary = f"Fetch the input of turn {step.turn}"
            return await _store(names.FETCH, calls.fetch(state, step), summary, Fetched)


async def _control(name: str, call: Any, queue: str, summary: str, patience: float = 0.0) -> None:
    """A call that returns as soon as the host has taken note; tried again, since it is idempotent."""
    await workflow.execute_activity(
        name,
        call,
        task_queue=queue,
        schedule_to_start_timeout=_ATTACH,
        start_to_close_timeout=timedelta(seconds=patience + _MARGIN),
        retry_policy=_THRICE,
        summary=summary,
    )


async def _word(name: str, call: Any, queue: str, summary: str) -> None:
    """What a person said, or hangs on it: kept until the host hears it, or its Turn ends."""
    await workflow.execute_activity(
        name,
        call,
        task_queue=queue,
        start_to_close_timeout=_WORD,
        retry_policy=_UNTIL_HEARD,
        summary=summary,
    )


async def _store(name: str, call: Any, summary: str, result: type | None = None) -> Any:
    """A call to the store: any worker of Sessions makes it, until it is done."""
    return await workflow.execute_activity(
        name,
        call,
        result_type=result,
        task_queue=names.unversioned_queue(workflow.info().task_queue),
        start_to_close_timeout=_STORE,
        retry_policy=_UNTIL_DONE,
        summary=summary,
    )


def _sealed(step: steps.Seal) -> str:
    return f"Seal events up to {step.events[1]}" if step.record is None else "Seal the last record"
