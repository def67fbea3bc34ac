"""The timeline: pages of it, and what of it a run hands to the next."""

from turnhold.session import limits
from turnhold.session.model import Event, SessionState
from turnhold.session.values import encoded_bytes
from turnhold.session.views import EventPage, EventView, PageRequest


def page(state: SessionState, request: PageRequest) -> EventPage:
    """Retained events after a cursor: up to the limit or 1 MiB, never empty while there are more (S-81)."""
    events = state.timeline
    start = max(request.after - state.retained_after, 0)
    records: list[EventView] = []
    size = 0
    has_more = False
    for event in events[start:]:
        if request.kinds and event.kind not in request.kinds:
            continue
        if request.turn_id is not None and event.turn_id != request.turn_id:
            continue
        size += encoded_bytes(event)
        if records and (len(records) >= request.limit or size > limits.PAGE_BYTES):
            has_more = True
            break
        records.append(view(state, event))
    return EventPage(
        records=tuple(records),
        next_after=records[-1].sequence if records else request.after,
        has_more=has_more,
        retained_after=state.retained_after,
    )


def view(state: SessionState, event: Event) -> EventView:
    return EventView(
        session_id=state.id,
        turn_id=event.turn_id,
        sequence=event.sequence,
        created_at=event.created_at,
        kind=event.kind,
        data=event.data,
    )


def trim(state: SessionState) -> None:
    """Let go of the oldest settled Turns and events until what is carried fits in one payload.

    Half of the room that everything else leaves goes to settled Turns, the rest to the timeline,
    the newest first. What goes is visible: `retained_after` (S-82).
    """
    for request_id in list(state.outcomes)[: -limits.OUTCOMES_MAX]:
        del state.outcomes[request_id]
    settled = [n for n, turn in state.turns.items() if turn.settled]
    kept = dict(state.turns)
    events = state.timeline
    state.timeline = []
    for sequence in settled:
        del state.turns[sequence]
    room = limits.CARRIED_BYTES - encoded_bytes(state)
    turns_room = room // 2
    retained: list[int] = []
    for sequence in reversed(settled):
        size = encoded_bytes(kept[sequence]) + _asks_bytes(state, sequence)
        if size > turns_room:
            break
        turns_room -= size
        room -= size
        retained.append(sequence)
    gone = set(settled) - set(retained)
    state.turns = {n: turn for n, turn in kept.items() if n not in gone}
    for ask_id in [a for a, ask in state.asks.items() if ask.turn in gone]:
        del state.asks[ask_id]
    first = len(events)
    while first > 0 and (size := encoded_bytes(events[first - 1])) <= room:
        room -= size
        first -= 1
    state.timeline = events[first:]
    state.retained_after = state.last_sequence - len(state.timeline)


def _asks_bytes(state: SessionState, sequence: int) -> int:
    return sum(encoded_bytes(ask) for ask in state.asks.values() if ask.turn == sequence)
