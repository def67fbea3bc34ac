"""What an operator sees of a Session in Temporal: search attributes, and details in the UI."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from turnhold.session.model import SessionState
from turnhold.temporal import names

_STATUS = SearchAttributeKey.for_keyword(names.ATTRIBUTE_STATUS)
_HELD = SearchAttributeKey.for_bool(names.ATTRIBUTE_HELD)
_ASKING = SearchAttributeKey.for_bool(names.ATTRIBUTE_ASKING)
_LAST_ACTIVITY = SearchAttributeKey.for_datetime(names.ATTRIBUTE_LAST_ACTIVITY)
_QUIET = timedelta(minutes=1)


@dataclass(frozen=True)
class Shown:
    """What the search attributes say now."""

    status: str
    held: bool
    asking: bool
    active: datetime
    settled: int


def at_start(created_at: datetime) -> Shown:
    """What whoever starts a Session writes."""
    return Shown(status="open", held=False, asking=False, active=created_at, settled=0)


def shown(state: SessionState) -> Shown:
    """What the attributes say of this state; after a roll-over, what the last run wrote."""
    return Shown(
        status=state.status,
        held=state.held,
        asking=any(ask.status == "pending" for ask in state.asks.values()),
        active=state.last_activity_at,
        settled=state.turns_admitted - len(state.queue) - (state.running is not None),
    )


def show(state: SessionState, before: Shown) -> Shown:
    """Bring the search attributes up to date, and the details that the UI asks for.

    The last activity is written with a Turn's end, and otherwise at most once a minute: an update
    is an event in the history.
    """
    now_shown = shown(state)
    workflow.set_current_details(details(state))
    updates: list[SearchAttributeUpdate[Any]] = []
    if now_shown.status != before.status:
        updates.append(_STATUS.value_set(now_shown.status))
    if now_shown.held != before.held:
        updates.append(_HELD.value_set(now_shown.held))
    if now_shown.asking != before.asking:
        updates.append(_ASKING.value_set(now_shown.asking))
    if updates or now_shown.settled > before.settled or now_shown.active - before.active >= _QUIET:
        updates.append(_LAST_ACTIVITY.value_set(now_shown.active))
    if not updates:
        return before
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
    lines += [
        f"- Hold `{hold.id}`: {hold.kind}, placed at {hold.session_id}" for hold in state.holds.values()
    ]
    owned = sum(o.status == "open" for o in state.owned.values())
    if owned:
        lines.append(f"- Open owned Sessions: {owned}")
    return "\n".join(lines)
