"""The one argument of the Session workflow: a new Session, or the state that a run hands on."""

from turnhold.session.commands import OwnerState
from turnhold.session.creation import NewSession
from turnhold.session.model import SessionState
from turnhold.session.values import Record


class SessionInput(Record):
    """Either `new` or `state`.

    `owner_state` is the owner's snapshot at the moment an owned Session is started.
    `events_per_run` rolls a run over after so many history events instead of `ROLL_OVER_EVENTS`:
    for tests.
    """

    new: NewSession | None = None
    state: SessionState | None = None
    owner_state: OwnerState | None = None
    events_per_run: int | None = None
