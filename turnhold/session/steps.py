"""Steps: what the machine asks the world to do.

A step is issued once, stays outstanding in the state until its fact arrives, and is issued again
by the next run of the workflow; whoever carries it out is idempotent by what it names. So a step
is small: the call that a host receives is made of it when it is carried out (`Machine.call`).
"""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from turnhold.session.creation import NewSession
from turnhold.session.values import Record, Timestamp


class StartProcess(Record):
    """Make a Process where a slot is free: fact `ProcessStarted` or `ProcessNotStarted`."""

    kind: Literal["start_process"] = "start_process"
    id: int
    epoch: int


class RunTurn(Record):
    """Begin the Turn on its host, or attach to it: fact `TurnEnded` or `TurnUnreachable`.

    `first` is true for the one dispatch of which it is certain that nothing can have begun
    before; `attach` for the second look after a missed heartbeat.
    """

    kind: Literal["run_turn"] = "run_turn"
    id: int
    turn: int
    epoch: int
    queue: str
    first: bool = True
    attach: bool = False


class StopTurn(Record):
    """Interrupt the Turn's handler."""

    kind: Literal["stop_turn"] = "stop_turn"
    id: int
    turn: int
    epoch: int
    queue: str
    reason: str


class StopProcess(Record):
    """Throw the Process away; `abandon` does not wait for a handler that will not stop."""

    kind: Literal["stop_process"] = "stop_process"
    id: int
    epoch: int
    queue: str
    reason: str
    abandon: bool = False


class DeliverMessage(Record):
    kind: Literal["deliver_message"] = "deliver_message"
    id: int
    turn: int
    epoch: int
    queue: str
    message_id: str


class AnswerAsk(Record):
    """Bring an Ask's answer, or its cancellation, to the waiting handler."""

    kind: Literal["answer_ask"] = "answer_ask"
    id: int
    turn: int
    epoch: int
    queue: str
    ask_id: str


class FindTurn(Record):
    """Hear from the host that it still has the Turn, before an answer that comes late is judged."""

    kind: Literal["find_turn"] = "find_turn"
    id: int
    turn: int
    epoch: int
    queue: str


class StartOwned(Record):
    """Start a Session that a Turn spawned (or, independent, only started): fact `OwnedStart`."""

    kind: Literal["start_owned"] = "start_owned"
    id: int
    session_id: str
    key: str  # digest of the spawn key
    session: NewSession
    independent: bool = False


class SendOwnerState(Record):
    """Tell an owned Session what holds and which end it inherits: fact `Told`.

    What it says is read when it is carried out, so that a newer step takes an older one's place.
    """

    kind: Literal["send_owner_state"] = "send_owner_state"
    id: int
    session_id: str


class TellOwner(Record):
    """Tell the owner that this Session has closed: fact `Told`."""

    kind: Literal["tell_owner"] = "tell_owner"
    id: int
    session_id: str


class LookForOwned(Record):
    """Look whether owned Sessions are still there: fact `Looked`."""

    kind: Literal["look_for_owned"] = "look_for_owned"
    id: int


class LookForOwner(Record):
    """Look whether the owner is still there: fact `Looked`.

    `resume` is a command (JSON) that waits for it: the release of a hold that an owner has placed.
    """

    kind: Literal["look_for_owner"] = "look_for_owner"
    id: int
    session_id: str
    resume: dict[str, JsonValue] | None = None


class Seal(Record):
    """Write what is settled to the store: fact `Sealed`.

    What it takes is fixed here, and never changes: to repeat it writes the same objects. Events
    and Turns after the first number up to the second; with `final` the Session's last record.
    """

    kind: Literal["seal"] = "seal"
    id: int
    issued_at: Timestamp
    events: tuple[int, int] = (0, 0)
    turns: tuple[int, int] = (0, 0)
    record: int | None = None
    retained_after: int = 0  # up to here its events and …
    turns_retained_after: int = 0  # … Turns are removed


class SetAside(Record):
    """Write the inputs of these waiting Turns to the store, an object each: they leave the state then."""

    kind: Literal["set_aside"] = "set_aside"
    id: int
    issued_at: Timestamp
    turns: tuple[int, ...]


class Fetch(Record):
    """Bring back the input of the Turn that is next in the queue: fact `Fetched`."""

    kind: Literal["fetch"] = "fetch"
    id: int
    issued_at: Timestamp
    turn: int


Step = Annotated[
    StartProcess
    | RunTurn
    | StopTurn
    | StopProcess
    | DeliverMessage
    | AnswerAsk
    | FindTurn
    | StartOwned
    | SendOwnerState
    | TellOwner
    | LookForOwned
    | LookForOwner
    | Seal
    | SetAside
    | Fetch,
    Field(discriminator="kind"),
]

Failure = Literal["not_taken", "refused", "unheard", "suspected", "lost"]
"""Why a step could not be carried out: nobody took it within its schedule-to-start; the host has no
such Process; no heartbeat ever came; the next one did not come; or anything else that leaves its fate
unknown."""
