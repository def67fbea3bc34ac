"""What a Session's run has used of what Temporal allows, and what is left of it (S-95)."""

from turnhold.session import limits
from turnhold.session.model import SessionState
from turnhold.session.values import Record, encoded_bytes
from turnhold.session.views import Headroom


class Used(Record):
    """What the run has used up so far; a roll-over begins it anew."""

    events: int
    bytes: int
    signals: int


def left(state: SessionState, used: Used) -> Headroom:
    """What is left before each wall; of the state, before the oldest of it is let go of."""
    return Headroom(
        history_events=max(limits.RUN_EVENTS - used.events, 0),
        history_bytes=max(limits.RUN_BYTES - used.bytes, 0),
        signals=max(limits.RUN_SIGNALS - used.signals, 0),
        state_bytes=max(limits.CARRIED_BYTES - encoded_bytes(state), 0),
    )
