"""Retention: which sealed segments of the oldest end are dropped, by count and by age (S-82).

The boundary moves first, in the state, so that every reader is told; then the store is told to
remove what lies before it. Only whole objects go, and only what has left the state.
"""

from datetime import datetime, timedelta

from turnhold.session import limits, steps
from turnhold.session.model import Segment, SessionState
from turnhold.session.transaction import Transaction


def apply(tx: Transaction) -> None:
    """Move the boundary; what a closed Session has, stays."""
    state = tx.state
    if state.status == "closed":
        return
    while state.event_segments and _is_over(state, state.event_segments[0], tx.now):
        state.retained_after = state.event_segments.pop(0).last
    while state.turn_segments and state.turn_segments[0].event <= state.retained_after:
        state.turns_retained_after = state.turn_segments.pop(0).last


def is_behind(state: SessionState) -> bool:
    """Whether the store still has to be told of the boundary."""
    return (
        state.retained_after > state.removed_after or state.turns_retained_after > state.turns_removed_after
    )


def due(state: SessionState) -> datetime | None:
    """When the oldest segment is too old."""
    if state.config.retain_for is None or not state.event_segments:
        return None
    return state.event_segments[0].at + timedelta(seconds=state.config.retain_for)


def note(state: SessionState, step: steps.Seal) -> None:
    """`step` has been carried out; what it takes is still in the state."""
    state.removed_after = max(state.removed_after, step.retained_after)
    state.turns_removed_after = max(state.turns_removed_after, step.turns_retained_after)
    if state.config.retain_events is None and state.config.retain_for is None:
        return
    if step.events[1] > state.tail_after:
        event = state.timeline[step.events[1] - state.tail_after - 1]
        _mark(state.event_segments, Segment(last=event.sequence, event=event.sequence, at=event.created_at))
    turn = state.turns.get(step.turns[1])
    if step.turns[1] > step.turns[0] and turn is not None and turn.last_event and turn.ended_at:
        _mark(state.turn_segments, Segment(last=turn.sequence, event=turn.last_event, at=turn.ended_at))


def _is_over(state: SessionState, segment: Segment, now: datetime) -> bool:
    config = state.config
    many = config.retain_events is not None and state.last_sequence - segment.last >= config.retain_events
    return many or (
        config.retain_for is not None and segment.at + timedelta(seconds=config.retain_for) <= now
    )


def _mark(segments: list[Segment], segment: Segment) -> None:
    """Note where a cut is possible; few enough for the state, the last one always among them."""
    segments.append(segment)
    if len(segments) > limits.SEGMENTS_MARKED:
        del segments[-2::-2]
