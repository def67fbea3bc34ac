"""Request bodies: the payloads of the commands, with unknown fields refused."""

from typing import Annotated, Any, cast

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from turnhold.session import limits
from turnhold.session.commands import CreatePayload, EnqueuePayload, FullContent, ResumePayload
from turnhold.session.creation import Metadata
from turnhold.session.values import Record, TextPart


def _no_unknown_fields(content: Any) -> Any:
    for part in cast("list[Any]", content) if isinstance(content, list) else ():
        fields = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
        if unknown := sorted(set(fields) - set(TextPart.model_fields)):
            raise PydanticCustomError("extra_forbidden", "a text part has no {field}", {"field": unknown[0]})
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


class EnqueueBody(EnqueuePayload):
    model_config = ConfigDict(extra="forbid")

    input: Input


class ResumeBody(ResumePayload):
    model_config = ConfigDict(extra="forbid")


class EmptyBody(Record):
    """Nothing: the command has no payload. The body may be absent."""

    model_config = ConfigDict(extra="forbid")


class CreateBody(CreatePayload):
    """A new Session. Without `input` it has no Turn yet."""

    model_config = ConfigDict(extra="forbid")

    input: Input | None = None
    metadata: Annotated[Metadata, WithJsonSchema(_METADATA)] = Field(default_factory=dict)
