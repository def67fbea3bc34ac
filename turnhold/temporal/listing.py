"""The list of Sessions, from Temporal's visibility store: it may lag by seconds, and needs no worker."""

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from turnhold.session.model import SessionStatus
from turnhold.session.values import Record, rfc3339
from turnhold.session.views import SessionListed
from turnhold.temporal import creation, names
from turnhold.temporal.calls import CALL_SECONDS, bounded
from turnhold.temporal.failures import Failure

DEPLOYMENT = "TemporalWorkerDeploymentVersion"
_DEPLOYMENT = SearchAttributeKey.for_keyword(DEPLOYMENT)
UNVERSIONED = "unversioned"
OWNED_ROWS = 1_000
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)


class Filter(Record):
    """Which Sessions of an environment to list; what is None does not matter."""

    agent: str | None = None
    status: SessionStatus | None = None
    held: bool | None = None
    asking: bool | None = None
    parent_id: str | None = None
    root_id: str | None = None
    deployment: str | None = None
    active_since: datetime | None = None


class OwnedSessions(Record):
    """Owned Sessions, the newest created first."""

    sessions: tuple[SessionListed, ...]


class SessionPage(Record):
    """A page of Sessions, the newest created first; `next_cursor` is null on the last one."""

    sessions: tuple[SessionListed, ...]
    next_cursor: str | None = None


async def list_sessions(
    client: Client, environment: str, wanted: Filter, limit: int, cursor: str | None
) -> SessionPage:
    """One page.

    Raises:
        Failure: `invalid_request` for a cursor that is none; `temporal_unavailable`.
    """
    rows = client.list_workflows(
        query(environment, wanted),
        page_size=limit,
        next_page_token=_token(cursor),
        rpc_timeout=timedelta(seconds=CALL_SECONDS),
    )
    async with bounded(CALL_SECONDS):
        try:
            await rows.fetch_next_page()
        except RPCError as error:
            if cursor and error.status in (RPCStatusCode.UNKNOWN, RPCStatusCode.INVALID_ARGUMENT):
                raise _bad_cursor() from error
            raise
        page = [await _row(execution) for execution in rows.current_page or ()]
    following = rows.next_page_token
    return SessionPage(
        sessions=tuple(row for row in page if row is not None),
        next_cursor=base64.urlsafe_b64encode(following).decode() if following else None,
    )


async def owned_sessions(
    client: Client, made: creation.Creation, session_id: str, *, recursive: bool
) -> OwnedSessions:
    """The Sessions that `session_id`, which was made so, owns; with `recursive` those below them, too.

    At most the newest `OWNED_ROWS`. May lag by seconds, like every list.

    Raises:
        Failure: `temporal_unavailable`.
    """
    wanted = Filter(root_id=made.root_id) if recursive else Filter(parent_id=session_id)
    rows = client.list_workflows(
        query(made.environment, wanted), limit=OWNED_ROWS, rpc_timeout=timedelta(seconds=CALL_SECONDS)
    )
    found: list[SessionListed] = []
    async with bounded(CALL_SECONDS):
        async for execution in rows:
            if (row := await _row(execution)) is not None:
                found.append(row)
    return OwnedSessions(sessions=tuple(_below(session_id, found)))


def _below(session_id: str, rows: Sequence[SessionListed]) -> list[SessionListed]:
    """Of a whole tree, what is below this Session."""
    below = {session_id}
    for row in sorted(rows, key=lambda row: row.created_at):  # whoever spawns is older
        if row.parent_id in below:
            below.add(row.id)
    return [row for row in rows if row.parent_id in below]


def query(environment: str, wanted: Filter) -> str:
    """The visibility query. A workflow that has ended is a closed Session, whatever it last wrote."""
    terms = [
        f"WorkflowType = {quoted(names.WORKFLOW)}",
        f"{names.ATTRIBUTE_ENVIRONMENT} = {quoted(environment)}",
        "ExecutionStatus != 'ContinuedAsNew'",
    ]
    if wanted.agent is not None:
        terms.append(f"{names.ATTRIBUTE_AGENT} = {quoted(wanted.agent)}")
    if wanted.status == "closed":
        terms.append(f"({names.ATTRIBUTE_STATUS} = 'closed' OR ExecutionStatus != 'Running')")
    elif wanted.status is not None:
        terms.append(f"{names.ATTRIBUTE_STATUS} = {quoted(wanted.status)} AND ExecutionStatus = 'Running'")
    terms += _flag(names.ATTRIBUTE_HELD, wanted.held)
    terms += _flag(names.ATTRIBUTE_ASKING, wanted.asking)
    if wanted.parent_id is not None:
        terms.append(f"{names.ATTRIBUTE_PARENT} = {quoted(wanted.parent_id)}")
    if wanted.root_id is not None:
        terms.append(f"{names.ATTRIBUTE_ROOT} = {quoted(wanted.root_id)}")
    if wanted.deployment == UNVERSIONED:
        terms.append(f"{DEPLOYMENT} IS NULL")
    elif wanted.deployment is not None:
        terms.append(f"{DEPLOYMENT} = {quoted(wanted.deployment)}")
    if wanted.active_since is not None:
        terms.append(f"{names.ATTRIBUTE_LAST_ACTIVITY} >= {quoted(rfc3339(_within(wanted.active_since)))}")
    return " AND ".join(terms)


def _within(moment: datetime) -> datetime:
    """`moment`, or the nearest that visibility stores can compare: no Session was active beyond."""
    if moment.year < _FIRST.year:
        return _FIRST
    return moment if moment.year < _LAST.year else _LAST


def _flag(attribute: str, wanted: bool | None) -> list[str]:
    """A Session that has ended holds nothing and asks nothing."""
    if wanted is None:
        return []
    if wanted:
        return [f"{attribute} = true AND ExecutionStatus = 'Running'"]
    return [f"({attribute} = false OR ExecutionStatus != 'Running')"]


def quoted(value: str) -> str:
    """A string in a visibility query."""
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _token(cursor: str | None) -> bytes | None:
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _bad_cursor() from error


def _bad_cursor() -> Failure:
    return Failure("invalid_request", "This cursor is none that a list has given.")


async def _row(execution: WorkflowExecution) -> SessionListed | None:
    made = await execution.memo_value(names.MEMO_SESSION, None, type_hint=creation.Creation)
    if made is None:
        return None
    attributes = execution.typed_search_attributes
    running = execution.status == WorkflowExecutionStatus.RUNNING
    clean = execution.status == WorkflowExecutionStatus.COMPLETED
    written = attributes.get(creation.STATUS)
    status: Literal["open", "closing", "closed"] = "open"
    if not running or written == "closed":
        status = "closed"
    elif written == "closing":
        status = "closing"
    latest = (
        await execution.memo_value(names.MEMO_LATEST, None, type_hint=creation.Latest) or creation.Latest()
    )
    return SessionListed(
        id=execution.id,
        agent=made.agent,
        key=made.key,
        status=status,
        closed_how="terminated" if not running and not clean else latest.closed_how,
        deployment=attributes.get(_DEPLOYMENT) or latest.deployment,
        parent_id=made.parent_id,
        root_id=made.root_id,
        metadata=made.metadata,
        created_at=made.created_at,
        closed_at=latest.closed_at or execution.close_time,
        last_activity_at=attributes.get(creation.LAST_ACTIVITY) or made.created_at,
        held=status != "closed" and attributes.get(creation.HELD) is True,
        asking=status != "closed" and attributes.get(creation.ASKING) is True,
    )
