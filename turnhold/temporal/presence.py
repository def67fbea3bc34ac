"""Which Sessions are still there, asked for many at once."""

from collections.abc import Sequence
from datetime import timedelta

from temporalio.client import Client, WorkflowExecutionStatus

from turnhold.temporal import names
from turnhold.temporal.calls import CALL_SECONDS, Calls, bounded
from turnhold.temporal.failures import Failure

ALIVE = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)
_FEW = 10
_BATCH = 200  # Session IDs in one visibility query


async def ended(client: Client, session_ids: Sequence[str], *, unsaid: bool = False) -> set[str]:
    """Those of these Sessions whose workflow has ended or is not there, for whatever reason.

    With `unsaid` but for those that completed, of their own accord.

    A few are asked for by name. Of many, one count for every 200 is all as long as none has ended;
    the visibility store may lag, so that whom it misses is asked for by name, too.

    Raises:
        Failure: `temporal_unavailable` or `rate_limited`.
    """
    found: set[str] = set()
    for first in range(0, len(session_ids), _BATCH):
        batch = session_ids[first : first + _BATCH]
        for session_id in await _missing(client, batch):
            status = await _status(client, session_id)
            if status not in ALIVE and not (unsaid and status == WorkflowExecutionStatus.COMPLETED):
                found.add(session_id)
    return found


async def _missing(client: Client, session_ids: Sequence[str]) -> list[str]:
    """Those that the visibility store does not show as running, or all if they are few."""
    if len(session_ids) <= _FEW:
        return list(session_ids)
    quoted = ", ".join(f"'{session_id}'" for session_id in session_ids)
    running = (
        f"WorkflowType = '{names.WORKFLOW}' AND ExecutionStatus = 'Running' AND WorkflowId IN ({quoted})"
    )
    patience = timedelta(seconds=CALL_SECONDS)
    async with bounded(CALL_SECONDS):
        counted = await client.count_workflows(running, rpc_timeout=patience)
        if counted.count == len(session_ids):
            return []
        shown = {row.id async for row in client.list_workflows(running, rpc_timeout=patience)}
    return [session_id for session_id in session_ids if session_id not in shown]


async def _status(client: Client, session_id: str) -> WorkflowExecutionStatus | None:
    """What has become of the workflow; None when it is not there."""
    try:
        return (await Calls(client).describe(session_id)).status
    except Failure as failure:
        if failure.code == "session_not_found":
            return None
        raise
