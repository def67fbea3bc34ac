"""Steps towards other Sessions: starting one, telling one, looking whether one is still there.

An owned Session is a child workflow that outlives any run of its owner, and is found again by its
ID. What Temporal alone can tell is asked by activities of any worker of Sessions.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowCancellationType, ParentClosePolicy

from turnhold.session import ownership, peers, steps
from turnhold.session.carried import SessionInput
from turnhold.session.commands import OwnedReport
from turnhold.session.machine import Machine
from turnhold.temporal import names
from turnhold.temporal.creation import TASK_SECONDS, Creation

Step = steps.StartOwned | steps.SendOwnerState | steps.TellOwner | steps.LookForOwned | steps.LookForOwner
Child = workflow.ChildWorkflowHandle[Any, Any]

_CALL = timedelta(seconds=4)
_UNTIL_DONE = RetryPolicy(
    initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10)
)
_TWICE = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=2)
_FULL_SECONDS = 5.0  # the other takes no more signals in its present run; it will roll over


async def start(
    machine: Machine, step: steps.StartOwned, events_per_run: int | None
) -> tuple[peers.OwnedStart, Child | None]:
    """Start the Session, or find that it has been; with the child, if this run has started it."""
    state, new = machine.state, step.session
    if step.independent:
        call = peers.StartSessionCall(session_id=step.session_id, new=new, key=step.key)
        started = await _ask(names.START_SESSION, call, peers.Started, _UNTIL_DONE)
        return _ended(started), None
    made = Creation.of(new, step.session_id, idempotency_key=step.key)
    snapshot = ownership.snapshot(state)
    try:
        child = await workflow.start_child_workflow(
            names.WORKFLOW,
            SessionInput(new=new, owner_state=snapshot, events_per_run=events_per_run),
            id=step.session_id,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            parent_close_policy=ParentClosePolicy.ABANDON,
            cancellation_type=ChildWorkflowCancellationType.ABANDON,
            task_timeout=timedelta(seconds=TASK_SECONDS),
            memo={names.MEMO_SESSION: made},
            search_attributes=made.attributes(),
            static_summary=made.summary(),
        )
    except WorkflowAlreadyStartedError:
        call = peers.MadeByCall(session_id=step.session_id, caller=new.caller, key=step.key)
        return _ended(await _ask(names.MADE_BY, call, peers.Started, _UNTIL_DONE)), None
    return peers.OwnedStart(how="started", version=snapshot.version), child


def _ended(started: peers.Started) -> peers.OwnedStart:
    return peers.OwnedStart(how="started" if started.ours else "taken")


async def tell(machine: Machine, step: steps.SendOwnerState | steps.TellOwner) -> peers.Told:
    """Signal the other Session what there is to say now; tried again while it can take no more."""
    there = workflow.get_external_workflow_handle(step.session_id)
    while True:
        try:
            if isinstance(step, steps.SendOwnerState):
                said = ownership.snapshot(machine.state)
                await there.signal(names.SIGNAL_OWNER_STATE, said)
                return peers.Told(reached=True, version=said.version)
            closed = OwnedReport(session_id=machine.state.id, closed_how=machine.state.closed_how or "")
            await there.signal(names.SIGNAL_OWNED, closed)
            return peers.Told(reached=True)
        except ApplicationError as error:
            if "limit" not in error.message:
                return peers.Told(reached=False)
            await asyncio.sleep(_FULL_SECONDS)


async def look(machine: Machine, step: steps.LookForOwned | steps.LookForOwner) -> peers.Looked:
    """Which are no more. When nobody can tell now, none: there will be another look."""
    if isinstance(step, steps.LookForOwner):
        call = peers.EndedCall(session_ids=(step.session_id,))
    else:
        call = peers.EndedCall(session_ids=ownership.unwatched(machine.state), unsaid=True)
    if not call.session_ids:
        return peers.Looked()
    try:
        return await _ask(names.ENDED_SESSIONS, call, peers.Looked, _TWICE)
    except ActivityError:
        return peers.Looked()


async def _ask(name: str, call: Any, result: type[Any], retry: RetryPolicy) -> Any:
    return await workflow.execute_activity(
        name,
        call,
        task_queue=names.unversioned_queue(workflow.info().task_queue),
        result_type=result,
        start_to_close_timeout=_CALL,
        retry_policy=retry,
    )
