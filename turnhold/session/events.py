"""The public kinds of events, and the data of each.

The machine writes an `EventData`; the timeline keeps it as JSON. `null` means that a field does
not apply, and fields marked optional are left out then.
"""

from typing import Any, ClassVar, Literal

from pydantic import JsonValue

from turnhold.session.hosting import Recovery
from turnhold.session.model import TurnError
from turnhold.session.questions import Answer, Control
from turnhold.session.values import Origin, Output, Record, TextPart


class EventData(Record):
    """What one kind of event says."""

    kind: ClassVar[str]
    optional: ClassVar[frozenset[str]] = frozenset()

    def json_data(self) -> dict[str, Any]:
        data = self.model_dump(mode="json")
        for name in self.optional:
            if data[name] is None:
                del data[name]
        return data


class TurnQueued(EventData):
    kind = "turn.queued"
    sequence: int
    origin: Origin


class TurnRunning(EventData):
    kind = "turn.running"
    process_epoch: int


class TurnOutput(EventData):
    kind = "turn.output"
    content: Output


class TurnCompleted(EventData):
    kind = "turn.completed"
    result: JsonValue = None
    response: Output | None = None


class TurnFailed(EventData):
    kind = "turn.failed"
    error: TurnError


class TurnInterrupted(EventData):
    kind = "turn.interrupted"
    optional = frozenset({"stop_latency_ms"})
    reason: str
    stop_latency_ms: int | None = None


class TurnCancelled(EventData):
    kind = "turn.cancelled"
    reason: Literal["cancel", "hold_blocked"]


class MessageAdmitted(EventData):
    kind = "message.admitted"
    message_id: str
    content: tuple[TextPart, ...]


class MessageStarted(EventData):
    kind = "message.started"
    message_id: str


class MessageDelivered(EventData):
    kind = "message.delivered"
    message_id: str


class MessageRejected(EventData):
    kind = "message.rejected"
    optional = frozenset({"detail", "outcome"})
    message_id: str
    reason: str
    detail: str | None = None
    outcome: Literal["unknown"] | None = None


class AskCreated(EventData):
    kind = "ask.created"
    ask_id: str
    prompt: str
    control: Control


class AskAnswered(EventData):
    kind = "ask.answered"
    ask_id: str
    answer: Answer
    answered_by: Origin


class AskCancelled(EventData):
    kind = "ask.cancelled"
    ask_id: str
    reason: str


class SessionInterrupted(EventData):
    kind = "session.interrupt"
    optional = frozenset({"session_id"})
    hold_id: str
    placed_by: Origin
    session_id: str | None = None


class SessionResumed(EventData):
    kind = "session.resume"
    hold_id: str
    released_by: Origin


class SessionClosing(EventData):
    kind = "session.close"
    requested_by: Origin


class SessionClosed(EventData):
    kind = "session.closed"
    how: str


class ProcessStarted(EventData):
    kind = "session.process_started"
    process_epoch: int
    recovery: Recovery
    deployment: str


class ProcessStopped(EventData):
    kind = "session.process_stopped"
    process_epoch: int
    reason: str


class ProcessFailed(EventData):
    kind = "session.process_failed"
    process_epoch: int
    reason: Literal["process_failed", "stop_deadline_elapsed", "execution_lost"]
    detail: str
    hold_id: str | None


class OwnedStarted(EventData):
    kind = "owned.started"
    session_id: str
    agent: str


class OwnedClosed(EventData):
    kind = "owned.closed"
    session_id: str
    how: str


class SessionMoved(EventData):
    kind = "session.moved"
    from_: str
    to: str

    def json_data(self) -> dict[str, Any]:
        return {"from": self.from_, "to": self.to}


KINDS: dict[str, type[EventData]] = {data.kind: data for data in EventData.__subclasses__()}
"""Every public kind."""
