"""What an operator sees of a Session in Temporal: search attributes, memo, and details in the UI."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate

from turnhold.session import explaining, people
from turnhold.session.model import SessionState
from turnhold.temporal import creation, names

_QUIET = timedelta(minutes=1)


@dataclass(frozen=True)
class Shown:
    """What the search attributes and the memo say now."""

    status: str
    held: bool
    asking: bool
    active: datetime
    settled: int
    latest: creation.Latest


def at_start(created_at: datetime) -> Shown:
    """What whoever starts a Session writes."""
    return Shown("open", held=False, asking=False, active=created_at, settled=0, latest=creation.Latest())


def shown(state: SessionState) -> Shown:
    """What the attributes say of this state; after a roll-over, what the last run wrote."""
    return Shown(
        status=state.status,
        held=state.held,
        asking=bool(people.pending_asks(state)),
        active=state.last_activity_at,
        settled=state.turns_admitted - len(state.queue) - (state.running is not None),
        latest=creation.Latest(
            deployment=state.deployment,
            closed_how=state.closed_how,
            closed_at=state.closed_at,
            holds=explaining.holds(state)[: creation.HOLDS_KEPT],
        ),
    )


def show(state: SessionState, before: Shown) -> Shown:
    """Bring the search attributes up to date, and the details that the UI asks for.

    The last activity is written when a Turn has ended and no other one begins, and otherwise at most
    once a minute: an update is an event in the history, and a row to be written that lists search.
    So the deployment waits for whatever is written next.
    """
    now_shown = shown(state)
    workflow.set_current_details(details(state))
    updates: list[SearchAttributeUpdate[Any]] = []
    if now_shown.status != before.status:
        updates.append(creation.STATUS.value_set(now_shown.status))
    if now_shown.held != before.held:
        updates.append(creation.HELD.value_set(now_shown.held))
    if now_shown.asking != before.asking:
        updates.append(creation.ASKING.value_set(now_shown.asking))
    rests = state.running is None and now_shown.settled > before.settled
    if updates or rests or now_shown.active - before.active >= _QUIET:
        updates.append(creation.LAST_ACTIVITY.value_set(now_shown.active))
    latest = now_shown.latest
    if not updates and latest.but(deployment=before.latest.deployment) == before.latest:
        return before
    if latest != before.latest:
        workflow.upsert_memo({names.MEMO_LATEST: latest})
    if updates:
        workflow.upsert_search_attributes(updates)
    return now_shown


def details(state: SessionState) -> str:
    """The Session in a few lines of Markdown."""
    turn = state.running_turn
    process = state.process
    lines = [
        f"**{state.status}**" + (f" ({state.closed_how})" if state.closed_how else ""),
        "",
        f"- Running: {f'Turn {turn.sequence}' if turn else 'no Turn'}"
        + (" (stopping)" if turn and turn.stop else ""),
        f"- Queued: {len(state.queue)}, admitted: {state.turns_admitted}",
        f"- Process: {process.status}, epoch {process.epoch}, failures in a row {process.failures}",
        f"- Events: {state.last_sequence}",
    ]
    for hold in state.holds.values():
        where = "" if hold.session_id == state.id else f", placed at `{hold.session_id}`"
        lines.append(f"- Hold `{hold.id}`: {hold.kind}{where}")
    for ask_id in people.pending_asks(state):
        lines.append(f"- Waits for an answer: Turn {state.asks[ask_id].turn}, `{ask_id}`")
    owned = sum(o.status == "open" for o in state.owned.values())
    if owned:
        lines.append(f"- Open owned Sessions: {owned}")
    return "\n".join(lines)
