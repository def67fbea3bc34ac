"""The public objects: what a caller sees of a Session, and how the one query asks for it.

These are the REST objects themselves; the API adds nothing to them.
"""

from typing import Any, Literal

from pydantic import Field, JsonValue

from turnhold.session.creation import Config
from turnhold.session.errors import Rejection
from turnhold.session.model import (
    AskStatus,
    ClosedHow,
    HoldKind,
    ProcessStatus,
    SessionStatus,
    TurnError,
    TurnStatus,
)
from turnhold.session.questions import Answer, Control
from turnhold.session.values import Content, Origin, Output, Record, Timestamp


class HoldView(Record):
    id: str
    session_id: str
    kind: HoldKind
    can_release: bool
    placed_by: Origin
    created_at: Timestamp


class ProcessView(Record):
    epoch: int = 0
    status: ProcessStatus = "none"
    consecutive_failures: int = 0


class Headroom(Record):
    """What is left before each limit."""

    history_events: int
    history_bytes: int
    signals: int
    state_bytes: int


class SessionShort(Record):
    """A Session as lists show it: no holds, no process, no counts."""

    id: str
    agent: str
    key: str | None = None
    status: SessionStatus = "open"
    closed_how: ClosedHow | None = None
    deployment: str | None = None
    parent_id: str | None = None
    root_id: str
    metadata: dict[str, str] = Field(default_factory=dict)
    created_at: Timestamp
    closed_at: Timestamp | None = None
    last_activity_at: Timestamp


class SessionListed(SessionShort):
    """A row of the Session list; `held` and `asking` as the index last saw them."""

    held: bool = False
    asking: bool = False


class SessionView(SessionShort):
    config: Config
    holds: tuple[HoldView, ...] = ()
    running_turn_id: str | None = None
    queued_turns: int = 0
    turns_admitted: int = 0
    admission_tokens: int = 1
    process: ProcessView = ProcessView()
    last_event_sequence: int = 0
    retained_after: int = 0
    headroom: Headroom | None = None


class TurnView(Record):
    """A Turn. `input` and `output` are null in lists; `output_bytes` counts what it wrote."""

    id: str
    session_id: str
    sequence: int
    status: TurnStatus
    origin: Origin
    input: Content | None = None
    output: Output | None = None
    output_bytes: int = 0
    response: Output | None = None
    result: JsonValue = None
    error: TurnError | None = None
    reason: str | None = None
    accepts_messages: bool = False
    stopping_since: Timestamp | None = None
    created_at: Timestamp
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None


class AskView(Record):
    id: str
    turn_id: str
    status: AskStatus
    prompt: str
    control: Control
    answer: Answer | None = None
    answered_by: Origin | None = None
    created_at: Timestamp
    settled_at: Timestamp | None = None


class EventView(Record):
    """One record of the timeline; `sequence` is the reconnect cursor."""

    session_id: str
    turn_id: str | None = None
    sequence: int
    created_at: Timestamp
    kind: str
    data: dict[str, JsonValue]


class EventPage(Record):
    """Retained events after a cursor. Events up to `retained_after` are no longer available."""

    records: tuple[EventView, ...] = ()
    next_after: int
    has_more: bool = False
    retained_after: int = 0


class ReceiptView(Record):
    """The recorded answer to one command. `replay` says that it answers an exact retry."""

    request_id: str
    status: Literal["accepted", "rejected", "pending"]
    session_id: str
    session_status: SessionStatus | None = None
    event_sequence: int | None = None
    operation: str | None = None
    turn_id: str | None = None
    sequence: int | None = None
    message_id: str | None = None
    hold_id: str | None = None
    ask_id: str | None = None
    spawned_id: str | None = None
    replay: bool = False
    rejection: Rejection | None = None


CauseCode = Literal[
    "closed",
    "temporal_unavailable",
    "no_worker",
    "held",
    "asking",
    "stopping",
    "no_free_slot",
    "process_starting",
    "process_backing_off",
    "store_unavailable",
    "closing_on_owned",
    "queued_behind",
    "nothing_to_do",
]
"""Why a Session does not move, the most decisive first (S-94)."""


class Clearing(Record):
    """The request that clears a cause. What is a caller's to say (an answer, an input) is an example."""

    method: Literal["POST"] = "POST"
    path: str
    body: dict[str, JsonValue] | None = None


class Cause(Record):
    """One reason why a Session does not move, or not on; `until` is when it ends by itself at the latest.

    The IDs name what it is about: a hold, an Ask, the Turn that waits or is waited for, and another
    Session or this one. `clear` is null where no call of a caller's would help.
    """

    code: CauseCode
    message: str
    since: Timestamp | None = None
    until: Timestamp | None = None
    hold_id: str | None = None
    ask_id: str | None = None
    turn_id: str | None = None
    session_id: str | None = None
    clear: Clearing | None = None


class Explanation(Record):
    """Every cause that holds, the most decisive first.

    `moving`: a handler is at work, or one will begin without anybody's action.
    """

    moving: bool
    causes: tuple[Cause, ...] = ()


# --- the one query ---------------------------------------------------------------------------------


Extent = tuple[int, int | None]
"""A Turn's first event, and its last one if it has ended."""


class PageRequest(Record):
    """Events after `after`: at most `limit`, of these `kinds` (all when empty), of this Turn if named.

    `through` is the last one that matters.
    """

    after: int = 0
    through: int | None = None
    limit: int = 100
    kinds: tuple[str, ...] = ()
    turn_id: str | None = None


class TurnsRequest(Record):
    """Retained Turns after a sequence, in order, in one status if named, without input and output."""

    after: int = 0
    limit: int = 20
    status: TurnStatus | None = None


class AsksRequest(Record):
    """Retained Asks after the one named `after`, in order; of this Turn, in this status, this one alone."""

    after: str | None = None
    turn_id: str | None = None
    ask_id: str | None = None
    status: AskStatus | None = None


class AskPage(Record):
    """Up to 1 MiB of Asks. `turn_known` is false for a Turn that was named and is not retained.

    `extent` is that of the Turn that was named.
    """

    asks: tuple[AskView, ...] = ()
    has_more: bool = False
    turn_known: bool = True
    extent: Extent | None = None


class Judge(Record):
    """What would become of this command now? Nothing happens: for a Session that has ended (S-3)."""

    operation: str
    command: dict[str, Any]


class ReadRequest(Record):
    """Query `read`: everything that callers wait for at this moment, in one round trip."""

    request_ids: tuple[str, ...] = ()
    turn_ids: tuple[str, ...] = ()
    pages: tuple[PageRequest, ...] = ()
    turns: tuple[TurnsRequest, ...] = ()
    ask_pages: tuple[AsksRequest, ...] = ()
    session: bool = True
    judge: Judge | None = None
    explain: bool = False
    headroom: bool = False  # the Session with it: measuring the state costs milliseconds


class ArchiveView(Record):
    """What of a Session is in the store, under `prefix`: events and Turns up to these numbers."""

    prefix: str
    seed: str
    events: int = 0
    turns: int = 0
    turns_retained_after: int = 0


class ReadResult(Record):
    """The answers, in the order of the request. A Turn or receipt that is not known is absent.

    They are of what the state still has: what is older is in the `archive`.

    `turns_by_id` holds Turns with their input, or null where the store has it, and with their output.
    Where that is larger than a page, or not all here, it is null, and is read from the events in the
    Turn's extent: from its first to its last one, if it has ended.
    """

    session: SessionView
    archive: ArchiveView | None = None
    receipts: dict[str, ReceiptView] = Field(default_factory=dict)
    turns_by_id: dict[str, TurnView] = Field(default_factory=dict)
    extents: dict[str, Extent] = Field(default_factory=dict)
    pages: tuple[EventPage, ...] = ()
    turns: tuple[tuple[TurnView, ...], ...] = ()
    ask_pages: tuple[AskPage, ...] = ()
    judged: ReceiptView | None = None
    explanation: Explanation | None = None
    wake_at: Timestamp | None = None
    working: bool = False  # a Turn runs or is about to: more events are likely soon
    leaving: bool = False  # of a run that is about to end: it lacks what has come last
