"""What goes to the store, as the Session hands it over."""

from turnhold.session.model import Event, SessionState, Turn
from turnhold.session.values import Content, Record


class SealCall(Record):
    """Activity `seal`: write events and settled Turns, each kind as one object, and the last record.

    Before that, remove what retention has dropped: the objects up to these numbers."""

    prefix: str
    events: tuple[Event, ...] = ()
    turns: tuple[Turn, ...] = ()
    record: SessionState | None = None
    retained_after: int = 0
    turns_retained_after: int = 0


class WaitingInput(Record):
    """The input of one waiting Turn."""

    sequence: int
    content: Content


class SetAsideCall(Record):
    """Activity `set_aside`: write these inputs, each as an object."""

    prefix: str
    inputs: tuple[WaitingInput, ...] = ()


class FetchCall(Record):
    """Activity `fetch`: answers the input of this Turn."""

    prefix: str
    sequence: int


class Fetched(Record):
    content: Content
