"""What a Session and a host say to each other: calls, their answers, and reported facts.

A host is a worker process that keeps Processes. The Session calls it with activities on the
host's own task queue; the host answers with a call's result and with numbered reports. Every
message names the `process_epoch`, and a Session drops what an epoch it has given up still says
(S-16).
"""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from turnhold.session.model import TurnError
from turnhold.session.questions import Answer, Control
from turnhold.session.values import Compact, Content, Origin, Output, Record, Response, Timestamp

# --- calls: Session to host ----------------------------------------------------------------------


class SessionInfo(Record):
    """What an Agent may know of its Session."""

    id: str
    agent: str
    environment: str
    key: str | None = None
    parent_id: str | None = None
    root_id: str = ""
    depth: int = 1
    metadata: dict[str, str] = Field(default_factory=dict)


class Recovery(Compact):
    """Why a Process was made: the Session's first, or one to take an earlier one's place (S-20).

    `reason` is what ended the last one: `hibernated`, `worker_shutdown`, `host_gone`,
    `turn_deadline_elapsed`, `moved`, `process_failed`, `stop_deadline_elapsed`, `execution_lost`.
    """

    kind: Literal["initial", "reconstructed"]
    reason: str | None = None


class StartProcessCall(Record):
    """Activity `start_process`, on the shared queue: run `init` where a slot is free."""

    session: SessionInfo
    epoch: int
    recovery: Recovery
    state: JsonValue = None
    init_timeout: float
    stop_deadline: float


class StartProcessResult(Record):
    """How `init` ended. `queue` is the host's own task queue; a failure has a `detail` for people.

    `agent_not_found` is a failure that a second try cannot mend (S-6).
    """

    status: Literal["started", "init_failed", "agent_not_found"]
    queue: str = ""
    deployment: str = ""
    detail: str = ""


class RunTurnCall(Record):
    """Activity `run_turn`, on the host's queue: begin this Turn, or attach to it if it has begun.

    `state` is the committed state with which the Turn starts. `first`: no earlier call can have begun it.
    """

    session_id: str
    epoch: int
    turn_id: str
    sequence: int
    input: Content
    origin: Origin
    created_at: Timestamp
    state: JsonValue = None
    stop_deadline: float
    first: bool = False


class StopTurnCall(Record):
    """Activity `stop_turn`: interrupt the Turn's handler; remembered if the Turn has not arrived."""

    session_id: str
    epoch: int
    turn_id: str
    reason: str


class StopProcessCall(Record):
    """Activity `stop_process`: throw the Process away; returns once it is gone or abandoned."""

    session_id: str
    epoch: int
    reason: str
    abandon: bool = False
    stop_deadline: float


class DeliverMessageCall(Record):
    """Activity `deliver_message`: hand the message to the Turn's queue; idempotent by its ID."""

    session_id: str
    epoch: int
    turn_id: str
    message_id: str
    content: Content


class AnswerAskCall(Record):
    """Activity `answer_ask`: settle the waiting call; `answer` null means cancelled for `reason`."""

    session_id: str
    epoch: int
    turn_id: str
    ask_id: str
    answer: Answer | None = None
    answered_by: Origin | None = None
    reason: str | None = None


class FindTurnCall(Record):
    """Activity `find_turn`: returns while this Turn runs here; `PROCESS_GONE` where it does not."""

    session_id: str
    epoch: int
    turn_id: str


# --- facts: host to Session ----------------------------------------------------------------------


class OutputWritten(Record):
    kind: Literal["output"] = "output"
    content: Output


class HandlerRegistered(Record):
    """The Turn takes messages from now on."""

    kind: Literal["handler_registered"] = "handler_registered"


class MessageStarted(Record):
    kind: Literal["message_started"] = "message_started"
    message_id: str


class MessageSettled(Record):
    """`reason` null: delivered; else rejected for that reason."""

    kind: Literal["message_settled"] = "message_settled"
    message_id: str
    reason: str | None = None
    detail: str | None = None


class AskCreated(Record):
    """`ask_id` is made by the host: `ids.numbered("ask", turn_id, n)`. `timeout` in seconds."""

    kind: Literal["ask_created"] = "ask_created"
    ask_id: str
    prompt: str
    control: Control
    timeout: float | None = None


class AskWithdrawn(Record):
    """The handler waits for this answer no more: it gave up by itself."""

    kind: Literal["ask_withdrawn"] = "ask_withdrawn"
    ask_id: str


class FunctionReturned(Record):
    """The Turn's function has returned; a started message is still being finished (S-33)."""

    kind: Literal["function_returned"] = "function_returned"


class ProcessGone(Record):
    """The Process is no more. Only `process_failed` is a failure (S-21, S-22, S-25)."""

    kind: Literal["process_gone"] = "process_gone"
    reason: Literal["worker_shutdown", "hibernated", "process_failed"]
    detail: str = ""


Fact = Annotated[
    OutputWritten
    | HandlerRegistered
    | MessageStarted
    | MessageSettled
    | AskCreated
    | AskWithdrawn
    | FunctionReturned
    | ProcessGone,
    Field(discriminator="kind"),
]


class Report(Record):
    """Signal `report`: facts of one epoch's outbox, numbered `first`, `first + 1`, …

    All facts but `process_gone` belong to the Turn `turn_id`. The Session takes each number once,
    in order. One report at a time is under way; only when its signal is acknowledged does the
    next leave.
    """

    epoch: int
    first: int
    turn_id: str | None = None
    facts: tuple[Fact, ...]


class TurnOutcome(Record):
    """Result of `run_turn`: how the handler ended, and every fact not yet acknowledged.

    `stopped` means that a stop reached the handler and it ended; `died` that the Process ended
    under it. `process` says what became of the Process: `live`, or why it is gone.
    """

    epoch: int
    turn_id: str
    first: int
    facts: tuple[Fact, ...] = ()
    how: Literal["completed", "failed", "stopped", "died"]
    result: JsonValue = None
    response: Response | None = None
    error: TurnError | None = None
    state: JsonValue = None
    reason: str | None = None  # of `stopped`, where the host itself stopped it: `worker_shutdown`
    detail: str = ""  # of `died`, for people
    process: Literal["live", "worker_shutdown", "process_failed"] = "live"


PROCESS_GONE = "process_gone"
"""`ApplicationError` type: this host has no such Process; nothing of the call has begun."""
