"""What a Session is made of: its configuration, records and serialisable state.

Every record is frozen; a change is a new record in its container. So a snapshot of the state is
a copy of its containers, and a command that goes wrong leaves nothing behind (`SessionState.fork`).
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    model_validator,
)

from turnhold.session import ids
from turnhold.session.commands import AnswerAsk
from turnhold.session.creation import Config
from turnhold.session.errors import Rejection
from turnhold.session.questions import Answer, Control
from turnhold.session.steps import Step
from turnhold.session.values import Content, Lean, Origin, Output, Record, Timestamp

SessionStatus = Literal["open", "closing", "closed"]
ClosedHow = Literal["close", "cancel", "idle", "terminated"]
TurnStatus = Literal["queued", "running", "completed", "failed", "interrupted", "cancelled"]
HoldKind = Literal["interrupt", "process_failed", "recovery_gap", "storage_pressure"]
AskStatus = Literal["pending", "answered", "cancelled"]
StopKind = Literal["interrupt", "session_interrupt", "turn_deadline_elapsed"]
ProcessStatus = Literal["none", "starting", "live", "stopping"]


class TurnError(Record):
    """Why a Turn failed: a stable code, the exception's type and its message; never a traceback."""

    code: str
    type: str
    message: str


class Stop(Record):
    """An accepted stop of the running Turn, or its passed deadline (`kind` is the Turn's later reason)."""

    kind: StopKind
    accepted_at: Timestamp


class Turn(Lean):
    """One admitted input and its single outcome."""

    sequence: int
    status: TurnStatus = "queued"
    origin: Origin = Origin()
    input: Content = ()
    input_bytes: int = 0
    aside: bool = False  # the store has its input; here that is only while it runs, or is about to
    created_at: Timestamp
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    result: JsonValue = None
    response: Output | None = None
    error: TurnError | None = None
    reason: str | None = None
    output_bytes: int = 0
    first_event: int = 0  # `turn.queued`: the Turn's output is looked for from here on
    last_event: int | None = None
    handler_registered: bool = False
    returned: bool = False  # the host reported that the Turn's function returned
    stop: Stop | None = None

    @property
    def settled(self) -> bool:
        return self.status not in ("queued", "running")

    @property
    def input_away(self) -> bool:
        """Only the store has its input."""
        return self.aside and not self.input

    @property
    def bytes_here(self) -> int:
        return 0 if self.input_away else self.input_bytes

    @property
    def accepts_messages(self) -> bool:
        listening = self.handler_registered and not self.returned
        return self.status == "running" and listening and self.stop is None


class Message(Record):
    """Text for one running Turn; kept while it is open."""

    turn: int
    content: Content
    admitted_at: Timestamp
    handed: bool = False  # its host has it
    started: bool = False


class Ask(Record):
    """A typed question from a running Turn to a person."""

    turn: int
    status: AskStatus = "pending"
    prompt: str
    control: Control
    answer: Answer | None = None
    answered_by: Origin | None = None
    reason: str | None = None  # why it was cancelled
    created_at: Timestamp
    expires_at: Timestamp | None = None
    settled_at: Timestamp | None = None
    settled_event: int | None = None  # once that has left the state, the timeline alone tells of it


class Hold(Record):
    """A reason why no Turn may start. `session_id` is the Session where it was placed."""

    id: str
    kind: HoldKind
    session_id: str
    placed_by: Origin = Origin()
    created_at: Timestamp
    inherited: bool = False  # placed at a living ancestor and released there
    version: int = 0  # the first `owner_state` of this Session that has it


class Process(Record):
    """The live incarnation of the Agent, as far as the Session knows."""

    epoch: int = 0
    status: ProcessStatus = "none"
    queue: str | None = None  # the task queue of its host
    failures: int = 0  # counted failures in a row
    retry_at: Timestamp | None = None  # the back-off's end
    next_fact: int = 1  # the next number expected from this epoch's outbox
    turns: int = 0  # Turns dispatched to it
    stop_reason: str | None = None  # why it is stopping
    recovery_reason: str | None = None  # what ended the last one; None before the first
    since: Timestamp | None = None


class Event(Record):
    """One fact in the timeline. `data` is what `events.py` describes for its kind."""

    sequence: int
    created_at: Timestamp
    kind: str
    turn_id: str | None = None
    data: dict[str, JsonValue]


class Segment(Record):
    """Where retention may cut: the last number of an object in the store, and what it goes by."""

    last: int
    event: int  # the last event that is told of in it …
    at: Timestamp  # … and when that was


class Receipt(Record):
    """An accepted command, in as few bytes as will answer its retry."""

    request_id: str
    operation: str
    at: Timestamp
    event_sequence: int
    session_status: SessionStatus
    turn: int | None = None
    message: int | None = None
    hold_id: str | None = None
    ask_id: str | None = None
    response: str | None = None  # digest of what was answered, under which `response_id`
    spawned: str | None = None  # the Session that a spawn made
    key: str | None = None  # digest of caller, operation, target and idempotency key
    fingerprint: str | None = None


_ROW = (
    *("request_id", "operation", "at", "event_sequence", "session_status", "turn", "key", "fingerprint"),
    *("message", "hold_id", "ask_id", "spawned", "response"),
)
"""The fields of a receipt in the order in which it is carried; new ones go to the end."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _rows(receipts: dict[str, Receipt]) -> list[list[Any]]:
    """2,500 receipts in 320 KiB: values without names, and without the nulls at the end."""
    rows: list[list[Any]] = []
    for receipt in receipts.values():
        row = [getattr(receipt, name) for name in _ROW]
        row[2] = (receipt.at - _EPOCH) // timedelta(milliseconds=1)
        while row[-1] is None:
            row.pop()
        rows.append(row)
    return rows


def _receipts(rows: Any) -> Any:
    if not isinstance(rows, list):
        return rows
    named = [dict(zip(_ROW, row, strict=False)) for row in cast("list[list[Any]]", rows)]
    return {row["request_id"]: row | {"at": _EPOCH + timedelta(milliseconds=row["at"])} for row in named}


Receipts = Annotated[dict[str, Receipt], BeforeValidator(_receipts), PlainSerializer(_rows, when_used="json")]


class Outcome(Record):
    """What else a request ID may stand for: a rejection, or an exact retry of an accepted command."""

    at: Timestamp
    rejection: Rejection | None = None
    replay_of: str | None = None


class Owner(Record):
    """The Session that owns this one, and what it last said of itself."""

    session_id: str
    version: int = 0  # of the snapshot applied last
    gone: bool = False  # it ended without saying so
    looked_at: Timestamp | None = None  # when it was last looked for


class Owned(Record):
    """A Session that this one spawned and that is not closed (or, independent, is being started)."""

    session_id: str
    agent: str
    status: Literal["starting", "open"] = "starting"
    independent: bool = False
    turn: int  # the Turn that spawned it
    requests: tuple[str, ...] = ()  # that wait for its start: their receipts come then
    version: int = 0  # of the newest `owner_state` that has reached it
    watched: bool = False  # Temporal tells this run when it ends


class SessionState(BaseModel):
    """Everything a Session knows: what a run hands to the next one.

    Mutable only in its fields and containers, never in a record. `fork` gives a copy that can be
    thrown away.
    """

    model_config = ConfigDict(extra="ignore")

    # what it was created with
    id: str
    seed: str
    agent: str
    environment: str
    key: str | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    config: Config
    caller: Origin = Origin()
    created_at: Timestamp
    root_id: str
    depth: int = 1
    owner: Owner | None = None
    deployment: str | None = None
    prefix: str = ""  # its folder in the store
    moving_to: str | None = None  # an accepted move, until the run on the other version begins

    # where it stands
    status: SessionStatus = "open"
    closed_how: ClosedHow | None = None
    closing_how: ClosedHow | None = None
    closed_at: Timestamp | None = None
    last_activity_at: Timestamp
    idle_since: Timestamp | None = None
    admission_tokens: int = 1
    turns_admitted: int = 0
    holds_placed: int = 0
    messages_admitted: int = 0
    commands_seen: int = 0
    steps_issued: int = 0
    owner_version: int = 0  # of the `owner_state` this Session sends to those it owns
    owned_looked_at: Timestamp | None = None  # when it was last looked whether those are still there
    committed: JsonValue = None  # the conversation's state, S-18
    running: int | None = None
    process: Process = Process()
    last_sequence: int = 0
    retained_after: int = 0
    turns_retained_after: int = 0  # the same of Turns
    removed_after: int = 0  # the events, and
    turns_removed_after: int = 0  # the Turns, that the store has been told to remove
    inputs_bytes: int = Field(default=0, exclude=True)  # of unsettled Turns, as far as they are here
    tail_bytes: int = 0  # of `timeline`
    settled_bytes: int = 0  # of the settled Turns in `turns`
    judged: int = 0  # commands that have an outcome
    recorded: int | None = None  # `judged` when the last record went to the store (S-83)

    # containers: Turns and events are the newest, the older ones are in the store
    queue: list[int] = Field(default_factory=list[int])
    turns: dict[int, Turn] = Field(default_factory=dict[int, Turn])
    messages: dict[str, Message] = Field(default_factory=dict[str, Message])
    asks: dict[str, Ask] = Field(default_factory=dict[str, Ask])
    late: dict[str, AnswerAsk] = Field(default_factory=dict[str, AnswerAsk])  # by request ID
    holds: dict[str, Hold] = Field(default_factory=dict[str, Hold])
    released: dict[str, Hold] = Field(default_factory=dict[str, Hold])  # not all owned have seen them
    owned: dict[str, Owned] = Field(default_factory=dict[str, Owned])  # by the spawn key's digest
    spawned: dict[str, str] = Field(default_factory=dict[str, str])  # likewise, for life: body, Session ID
    outstanding: dict[int, Step] = Field(default_factory=dict[int, Step])
    receipts: Receipts = Field(default_factory=dict[str, Receipt])
    keys: dict[str, str] = Field(default_factory=dict[str, str], exclude=True)
    outcomes: dict[str, Outcome] = Field(default_factory=dict[str, Outcome])
    timeline: list[Event] = Field(default_factory=list[Event])
    event_segments: list[Segment] = Field(default_factory=list[Segment])  # only with retention
    turn_segments: list[Segment] = Field(default_factory=list[Segment])

    @model_validator(mode="after")
    def _derive(self) -> "SessionState":
        """Receipts and Turns say it all: the index of keys, and the sum of inputs, are not carried."""
        self.inputs_bytes = sum(turn.bytes_here for turn in self.turns.values() if not turn.settled)
        self.keys = {r.key: r.request_id for r in self.receipts.values() if r.key is not None}
        return self

    def fork(self) -> "SessionState":
        """A copy that shares the frozen records and nothing that can change."""
        twin = self.model_copy()
        for name in _CONTAINERS:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def turn_id(self, sequence: int) -> str:
        return ids.numbered("trn", self.seed, sequence)

    def message_id(self, number: int) -> str:
        return ids.numbered("msg", self.seed, number)

    @property
    def tail_after(self) -> int:
        """Events up to here have left the state."""
        return self.last_sequence - len(self.timeline)

    @property
    def turns_after(self) -> int:
        """Turns up to here have left the state. Settled ones are always the first."""
        return self.turns_admitted - len(self.turns)

    @property
    def running_turn(self) -> Turn | None:
        return None if self.running is None else self.turns[self.running]

    @property
    def held(self) -> bool:
        return bool(self.holds)


_CONTAINERS = (
    *("queue", "turns", "messages", "asks", "late", "holds", "released", "owned", "spawned"),
    *("outstanding", "receipts", "keys", "outcomes", "timeline"),
    *("event_segments", "turn_segments"),
)
