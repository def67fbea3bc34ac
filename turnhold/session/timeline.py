"""The timeline: pages of it, and what of it a run hands to the next."""

from turnhold.session import limits
from turnhold.session.model import Event, SessionState
from turnhold.session.steps import AnswerAsk
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
    """Let go of the oldest settled Turns, Asks and events until what is carried fits in one payload.

    Half of the room that everything else leaves goes to settled Turns with their Asks (those of the
    running Turn first), the rest to the timeline, the newest first. What goes is visible:
    `retained_after` (S-82).
    """
    for request_id in list(state.outcomes)[: -limits.OUTCOMES_MAX]:
        del state.outcomes[request_id]
    turns, asks, events = state.turns, state.asks, state.timeline
    state.turns = {n: turn for n, turn in turns.items() if not turn.settled}
    state.asks = {a: asks[a] for a in _asks_at_work(state)}
    state.timeline = []
    room = limits.CARRIED_BYTES - encoded_bytes(state)
    turns_room = room // 2
    for turn in sorted(turns, reverse=True):
        mine = [a for a, ask in asks.items() if ask.turn == turn and a not in state.asks]
        size = 0
        if turns[turn].settled:
            size = encoded_bytes(turns[turn]) + sum(encoded_bytes(asks[a]) for a in mine)
            if size > turns_room:
                break
            state.turns[turn] = turns[turn]
            state.asks |= {a: asks[a] for a in mine}
        else:
            for ask_id in reversed(mine):
                if size + encoded_bytes(asks[ask_id]) > turns_room:
                    break
                size += encoded_bytes(asks[ask_id])
                state.asks[ask_id] = asks[ask_id]
        turns_room -= size
        room -= size
    state.turns = {n: turn for n, turn in turns.items() if n in state.turns}
    state.asks = {a: ask for a, ask in asks.items() if a in state.asks}
    first = len(events)
    while first > 0 and (size := encoded_bytes(events[first - 1])) <= room:
        room -= size
        first -= 1
    state.timeline = events[first:]
    state.retained_after = state.last_sequence - len(state.timeline)


def _asks_at_work(state: SessionState) -> list[str]:
    """Those that wait for an answer, and those whose answer is on its way to the handler."""
    on_their_way = {step.ask_id for step in state.outstanding.values() if isinstance(step, AnswerAsk)}
    return [a for a, ask in state.asks.items() if ask.status == "pending" or a in on_their_way]
