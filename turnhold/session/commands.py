"""Commands: what callers ask of a Session, one model a signal.

Imperative names. A command carries its payload flat beside its envelope, and the envelope is
optional, so that a signal with the payload alone, sent by an operator's hand, is a command too
(S-91). What a payload may say is validated here and nowhere else: the REST bodies derive from the
payloads.
"""

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError, to_json

from turnhold.session import ids, limits
from turnhold.session.creation import Config, Metadata, NewSession, Overrides, SessionKey
from turnhold.session.questions import Answer
from turnhold.session.values import Content, Origin, Record, Timestamp, is_empty

IdempotencyKey = Annotated[
    str, StringConstraints(min_length=1, max_length=limits.IDEMPOTENCY_KEY_CHARS, pattern=r"^[\x20-\x7e]+$")
]


def _not_empty(content: Content) -> Content:
    if is_empty(content):
        raise PydanticCustomError("empty_input", "there is no text in it")
    return content


FullContent = Annotated[Content, AfterValidator(_not_empty)]
"""Content with some text in it; anything else is `empty_input` (S-1)."""


class Command(Record):
    """The envelope: `request_id` names this attempt, the key and fingerprint make retries exact."""

    operation: ClassVar[str]

    request_id: Annotated[str, StringConstraints(pattern=r"^req_[0-9a-z]{8,64}$")] | None = None
    idempotency_key: IdempotencyKey | None = None
    fingerprint: Annotated[str, StringConstraints(max_length=64)] | None = None
    caller: Origin = Origin()

    @property
    def target(self) -> str:
        """What of the Session it acts on, beside the Session itself: a Turn, or nothing (S-3)."""
        return ""


class Create(Command):
    """The creation itself, as its receipt names it."""

    operation = "create"


class CreatePayload(Record):
    """What a new Session is asked to be. Without `input` it has no Turn yet."""

    agent: str
    input: FullContent | None = None
    key: SessionKey | None = None
    config: Overrides | None = None
    metadata: Metadata = Field(default_factory=dict)

    def fingerprint(self, resolved: Config) -> str:
        """Equal for every way of writing the same creation; `resolved` is what its settings come to (S-3)."""
        return self._digest(resolved.model_dump(mode="json"))

    def fingerprint_as_given(self) -> str:
        """The same without the settings that were left out: a retry's stays equal when an Agent's change."""
        return self._digest(self.config.model_dump(mode="json", exclude_unset=True) if self.config else {})

    def _digest(self, config: dict[str, Any]) -> str:
        return ids.digest(
            to_json(self.but(config=None).model_dump(mode="json") | {"config": config}).decode()
        )


class EnqueuePayload(Record):
    input: FullContent


class Enqueue(Command, EnqueuePayload):
    """Admit a Turn (S-10, S-11)."""

    operation = "enqueue"


class SendPayload(Record):
    content: FullContent
    fallback: Literal["enqueue"] | None = None


class Send(Command, SendPayload):
    """Send a message to exactly this running Turn (S-30)."""

    operation = "send"
    turn_id: str

    @property
    def target(self) -> str:
        return self.turn_id


class Interrupt(Command):
    """Stop that Turn (S-50); without `turn_id`, hold the whole Session (S-51)."""

    operation = "interrupt"
    turn_id: str | None = None

    @property
    def target(self) -> str:
        return self.turn_id or ""


class ResumePayload(Record):
    hold_id: str


class Resume(Command, ResumePayload):
    """Release exactly one hold (S-52)."""

    operation = "resume"


class Close(Command):
    """Take no more Turns, let the rest finish, close (S-53)."""

    operation = "close"


class Cancel(Command):
    """Close at once (S-54)."""

    operation = "cancel"


class AnswerPayload(Record):
    answer: Answer
    response_id: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None


class AnswerAsk(Command, AnswerPayload):
    """Answer a pending Ask (S-41). `sent_at` is by the clock of whoever sent it for the caller."""

    operation = "answer"
    turn_id: str
    ask_id: str
    sent_at: Timestamp | None = None

    @property
    def target(self) -> str:
        return self.ask_id


class Spawn(Command):
    """A running Turn starts another Session (S-70). Internal: only a host sends it.

    `session` is resolved by the host, but for what ties it to this Session; `epoch` and `turn_id`
    fence it; `independent` says that nobody will own it. The idempotency key is the spawn key.
    """

    operation = "spawn"
    turn_id: str
    epoch: int
    session: NewSession
    independent: bool = False


class Move(Command):
    """An operator moves the Session to the deployment `to`, `NAME:BUILD` (S-4). Internal."""

    operation = "move"
    to: str


class InheritedHold(Record):
    """`version` is that of the first snapshot which has it."""

    id: str
    session_id: str
    placed_by: Origin = Origin()
    version: int = 0


class OwnerState(Record):
    """Signal `owner_state`, a snapshot of what an owner passes down: its holds, and how it ends.

    The newest `version` wins; a snapshot is complete, so order, doubling and loss of older ones
    do not matter. `released` are holds that were placed and released while some owned Session had
    not seen them yet: they still stop its Turn.
    """

    owner_id: str
    version: int
    holds: tuple[InheritedHold, ...] = ()
    released: tuple[InheritedHold, ...] = ()
    mode: Literal["open", "close", "cancel"] = "open"
    how: Literal["close", "cancel", "idle"] | None = None


class OwnedReport(Record):
    """Signal `owned`, an owned Session to its owner: it has closed."""

    session_id: str
    closed_how: str


PUBLIC: dict[str, type[Command]] = {
    command.operation: command for command in (Enqueue, Send, Interrupt, Resume, Close, Cancel, AnswerAsk)
}
"""The public signals by name."""


def fingerprint(payload: Record) -> str:
    """The digest of a validated payload: equal for every way of writing the same command (S-3)."""
    return ids.digest(json.dumps(payload.model_dump(mode="json"), sort_keys=True))
