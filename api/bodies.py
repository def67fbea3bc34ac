"""Request bodies: the payloads of the commands, with unknown fields refused."""

from collections.abc import Callable
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError, to_json

from api.parameters import NoNul
from turnhold.session import ids, limits
from turnhold.session.commands import (
    AnswerPayload,
    EnqueuePayload,
    FullContent,
    ResumePayload,
    SendPayload,
)
from turnhold.session.creation import Config, Metadata, SessionKey
from turnhold.session.questions import Answer
from turnhold.session.values import Record, TextPart


def _only_fields_of(model: type[Record], what: str) -> Callable[[Any], Any]:
    """Refuses what this model would ignore."""

    def check(given: Any) -> Any:
        fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        if unknown := sorted(set(fields) - set(model.model_fields)):
            context = {"what": what, "field": unknown[0]}
            raise PydanticCustomError("extra_forbidden", "{what} has no {field}", context)
        return cast("Any", given)

    return check


_only_fields_of_a_part = _only_fields_of(TextPart, "a text part")


def _no_unknown_fields(content: Any) -> Any:
    for part in cast("list[Any]", content) if isinstance(content, list) else ():
        _only_fields_of_a_part(part)
    return cast("Any", content)


_PART = {
    "type": "object",
    "properties": {"type": {"const": "text", "default": "text"}, "text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
_CONTENT = {
    "type": "array",
    "items": _PART,
    "contains": {"properties": {"text": {"minLength": 1}}},
    "minItems": 1,
    "maxItems": limits.CONTENT_PARTS,
}
Input = Annotated[
    FullContent,
    BeforeValidator(_no_unknown_fields),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, _CONTENT]}),
]
"""Content as a request gives it: an unknown field of a part is an error too."""

_METADATA = {
    "type": "object",
    "maxProperties": limits.METADATA_PAIRS,
    "propertyNames": {"minLength": 1, "maxLength": limits.METADATA_KEY_CHARS},
    "additionalProperties": {"type": "string", "maxLength": limits.METADATA_VALUE_CHARS},
}


GivenAnswer = Annotated[
    Answer,
    BeforeValidator(_only_fields_of(Answer, "an answer")),
    WithJsonSchema(Answer.model_json_schema() | {"additionalProperties": False}),
]


class EnqueueBody(EnqueuePayload):
    model_config = ConfigDict(extra="forbid")

    input: Input


class SendBody(SendPayload):
    model_config = ConfigDict(extra="forbid")

    content: Input


class AnswerBody(AnswerPayload):
    model_config = ConfigDict(extra="forbid")

    answer: GivenAnswer


class ResumeBody(ResumePayload):
    model_config = ConfigDict(extra="forbid")


class EmptyBody(Record):
    """Nothing: the command has no payload. The body may be absent."""

    model_config = ConfigDict(extra="forbid")


class ConfigBody(Config):
    """What this Session does differently from its Agent; an explicit `null` means none."""

    model_config = ConfigDict(extra="forbid")


class CreateBody(Record):
    """A new Session. Without `input` it has no Turn yet."""

    model_config = ConfigDict(extra="forbid")

    agent: str
    input: Input | None = None
    key: Annotated[SessionKey, NoNul] | None = None
    config: ConfigBody | None = None
    metadata: Annotated[Metadata, WithJsonSchema(_METADATA)] = Field(default_factory=dict)

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
