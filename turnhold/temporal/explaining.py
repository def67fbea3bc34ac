"""Why a Session does not move, as far as only the outside knows it: Temporal, workers, slots (S-94)."""

from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus

from turnhold.session import explaining
from turnhold.session.views import Cause, Explanation
from turnhold.temporal import creation, names, workers

SLOT_SECONDS = 1.0
"""A start that no host has taken for so long waits for a slot, and is not merely on its way."""
STORE_SECONDS = 5.0
"""What is being written to the store for no longer is merely on its way."""
_REFUSES = {names.SEAL: "does not take it", names.FETCH: "does not give it"}


def temporal_away(session_id: str, detail: str) -> Explanation:
    """Nobody can tell more: the Session itself may be unknown."""
    return Explanation(
        moving=False,
        causes=(Cause(code="temporal_unavailable", message=detail, session_id=session_id),),
    )


async def of_ended(description: WorkflowExecutionDescription) -> Explanation:
    """A workflow that has ended; one that did not complete was ended by an operator's hand (S-90)."""
    latest = await _latest(description)
    clean = description.status == WorkflowExecutionStatus.COMPLETED or latest.closed_how is not None
    return explaining.ended(
        description.id,
        latest.closed_how if clean else "terminated",
        latest.closed_at or description.close_time,
    )


async def without_worker(
    description: WorkflowExecutionDescription, queue: DescribeTaskQueueResponse | None
) -> Explanation:
    """A Session that no worker answers for: what Temporal itself was told of it, behind that cause.

    `queue` is the task queue, if it is known.
    """
    latest = await _latest(description)
    attributes = description.typed_search_attributes
    status = attributes.get(creation.STATUS)
    if status == "closed":
        return await of_ended(description)
    causes = [Cause(code="no_worker", message=_no_worker(description, queue), session_id=description.id)]
    if status == "open":
        causes += [explaining.held(description.id, hold) for hold in latest.holds]
    if attributes.get(creation.ASKING):
        causes.append(
            Cause(
                code="asking",
                message="A Turn has asked a question and waits for its answer.",
                session_id=description.id,
            )
        )
    return Explanation(moving=False, causes=tuple(causes))


def with_slots(
    explanation: Explanation, description: WorkflowExecutionDescription, now: datetime
) -> Explanation:
    """A Process that starts as far as its Session knows, but whose start no host has taken (S-22)."""
    since = _untaken_start(description)
    if since is None or now - since < timedelta(seconds=SLOT_SECONDS):
        return explanation
    starting = next((c for c in explanation.causes if c.code == "process_starting"), None)
    if starting is None:
        return explanation
    waiting = starting.but(
        code="no_free_slot",
        message="No worker has a free Process slot: one is free when another Session's Process ends.",
        since=since,
        until=None,
    )
    return Explanation(
        moving=False,
        causes=tuple(waiting if cause is starting else cause for cause in explanation.causes),
    )


def with_store(
    explanation: Explanation, description: WorkflowExecutionDescription, now: datetime
) -> Explanation:
    """Of a Session that waits for its store: what the store last answered, where it has failed."""
    waiting = next((c for c in explanation.causes if c.code == "store_unavailable"), None)
    if waiting is None:
        return explanation
    answers = [
        f"The store {_REFUSES[pending.activity_type.name]}: {pending.last_failure.message}."
        for pending in description.raw_description.pending_activities
        if pending.activity_type.name in _REFUSES and pending.HasField("last_failure")
    ]
    late = waiting.since is not None and now - waiting.since > timedelta(seconds=STORE_SECONDS)
    if not answers and not late:
        return explanation
    why = answers[0] if answers else "No worker has asked it yet."
    failing = waiting.but(message=f"{waiting.message} {why}")
    return Explanation(
        moving=False, causes=tuple(failing if cause is waiting else cause for cause in explanation.causes)
    )


def _untaken_start(description: WorkflowExecutionDescription) -> datetime | None:
    for pending in description.raw_description.pending_activities:
        scheduled = pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        if scheduled and pending.activity_type.name == names.START_PROCESS:
            return pending.scheduled_time.ToDatetime(UTC)
    return None


def _no_worker(description: WorkflowExecutionDescription, queue: DescribeTaskQueueResponse | None) -> str:
    version = workers.pinned(description)
    current = workers.current(queue) if queue and not version else None
    if queue and not version and workers.awaits_promotion(queue):
        return "No version of the workers is current: it begins once one is promoted."
    if version:
        whose = f"worker of {version}"
    else:
        whose = f"worker of {current}, the current version," if current else "unversioned worker"
    return (
        f"No {whose} answers on task queue {description.task_queue}; "
        "what is given meanwhile is kept, and it goes on when one is back."
    )


async def _latest(description: WorkflowExecutionDescription) -> creation.Latest:
    found = await description.memo_value(names.MEMO_LATEST, None, type_hint=creation.Latest)
    return found or creation.Latest()
