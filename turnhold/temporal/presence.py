"""Which Sessions are still there, asked for many at once."""

from collections.abc import Sequence
from datetime import timedelta

from temporalio.client import Client, WorkflowExecutionStatus

from turnhold.temporal import names
from turnhold.temporal.calls import CALL_SECONDS, Calls, bounded
from turnhold.temporal.failures import Failure

ALIVE = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)
_BATCH = 200  # Session IDs in one visibility query


async def ended(client: Client, session_ids: Sequence[str]) -> set[str]:
    """Those of these Sessions whose workflow has ended or is not there, for whatever reason.

    One count for every 200 of them, which is all as long as none has ended. The visibility store may
    lag, so that whom it misses is asked for by name.

    Raises:
        Failure: `temporal_unavailable` or `rate_limited`.
    """
    found: set[str] = set()
    for first in range(0, len(session_ids), _BATCH):
        batch = session_ids[first : first + _BATCH]
        for session_id in await _missing(client, batch):
            if await _has_ended(client, session_id):
                found.add(session_id)
    return found


async def _missing(client: Client, session_ids: Sequence[str]) -> list[str]:
    """Those that the visibility store does not show as running."""
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


async def _has_ended(client: Client, session_id: str) -> bool:
    try:
        return (await Calls(client).describe(session_id)).status not in ALIVE
    except Failure as failure:
        if failure.code == "session_not_found":
            return True
        raise
