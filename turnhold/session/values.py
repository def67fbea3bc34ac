"""The small values that everything else is made of: moments, durations, content."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
)
from pydantic_core import PydanticCustomError, to_json

from turnhold.session import limits


class Record(BaseModel):
    """A frozen fact. Fields are only ever added, with defaults; readers ignore what they do not know.

    A nullable field has no default but `null`: what is null does not travel.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", json_schema_serialization_defaults_required=True)

    def but(self, **changes: Any) -> Self:
        """The same record with some fields changed."""
        return self.model_copy(update=changes)


class Compact(Record):
    """A record that leaves out what is null, in every JSON made of it."""

    @model_serializer(mode="wrap")
    def _without_null(self, handler: SerializerFunctionWrapHandler):  # pyright: ignore[reportUnknownParameterType]
        return {name: value for name, value in handler(self).items() if value is not None}


class Lean(Record):
    """A record that leaves out what has its default, in every JSON made of it: many are carried."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler):  # pyright: ignore[reportUnknownParameterType]
        fields = type(self).model_fields
        return {
            name: value
            for name, value in handler(self).items()
            if getattr(self, name) != fields[name].default
        }


def milliseconds(moment: datetime) -> datetime:
    """`moment` in UTC, cut to whole milliseconds: what is recorded is what is shown."""
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


Timestamp = Annotated[
    AwareDatetime, AfterValidator(milliseconds), PlainSerializer(rfc3339, return_type=str, when_used="json")
]
"""A moment: UTC, RFC 3339 with milliseconds and `Z` in JSON."""

_ISO_DURATION = re.compile(
    r"P(?=[0-9T])(?:(?P<weeks>\d+(?:\.\d+)?)W)?(?:(?P<days>\d+(?:\.\d+)?)D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
_UNIT_SECONDS = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_NOT_A_DURATION = "expected a number of seconds or an ISO 8601 duration such as PT15M"
_LONGEST = 100 * 365 * 86_400  # a hundred years: a timer that far is a mistake, and datetime overflows


def _seconds(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("duration", _NOT_A_DURATION)
    if isinstance(value, str):
        match = _ISO_DURATION.fullmatch(value)
        parts = {unit: float(n) for unit, n in match.groupdict().items() if n} if match else {}
        if not parts:
            raise PydanticCustomError("duration", _NOT_A_DURATION)
        value = sum(_UNIT_SECONDS[unit] * amount for unit, amount in parts.items())
    return value


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value


_Positive = Annotated[float, Field(gt=0, le=_LONGEST, allow_inf_nan=False)]
_NUMBER = r"[0-9]+(\.[0-9]+)?"
_Written = Annotated[
    str,
    Field(
        pattern=rf"^P(?!$)({_NUMBER}W)?({_NUMBER}D)?"
        rf"(T(?=[0-9])({_NUMBER}H)?({_NUMBER}M)?({_NUMBER}S)?)?$"
    ),
]
Seconds = Annotated[
    _Positive,
    BeforeValidator(_seconds, json_schema_input_type=_Positive | _Written),
    AfterValidator(_whole),
]
"""A duration: seconds or ISO 8601 (`PT15M`; years and months have no fixed length and are refused)."""


class TextPart(Record):
    """Text, in input, messages, output and responses."""

    type: Literal["text"] = "text"
    text: str


class JsonPart(Record):
    """Any JSON value, in output and responses."""

    type: Literal["json"] = "json"
    value: JsonValue = None


Part = Annotated[TextPart | JsonPart, Field(discriminator="type")]


def encoded_bytes(value: Any) -> int:
    """How many bytes `value` takes as JSON."""
    return len(to_json(value))


def part_bytes(part: TextPart | JsonPart) -> int:
    """What a part counts towards a Turn's cumulative output: UTF-8 bytes (S-15)."""
    return len(part.text.encode()) if isinstance(part, TextPart) else encoded_bytes(part.value)


def _expand(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


def _text_parts(value: Any) -> Any:
    if not isinstance(value, str | list | tuple):
        raise PydanticCustomError("content_type", "expected text or a list of text parts")
    return _expand(value)


_C = TypeVar("_C", bound=tuple[Any, ...])


def _within_bytes(content: _C) -> _C:
    if encoded_bytes(content) > limits.CONTENT_BYTES:
        raise PydanticCustomError("content_too_large", "content is larger than 262144 bytes encoded as JSON")
    return content


Content = Annotated[
    tuple[TextPart, ...],
    BeforeValidator(_text_parts, json_schema_input_type=list[TextPart] | str),
    Field(max_length=limits.CONTENT_PARTS),
    AfterValidator(_within_bytes),
]
"""What a person sends: up to 64 text parts, at most 256 KiB encoded; a plain string means one part."""

Output = tuple[Part, ...]
"""What an Agent writes: text and JSON parts."""

Response = Annotated[
    Output,
    BeforeValidator(_expand),
    Field(max_length=limits.CONTENT_PARTS),
    AfterValidator(_within_bytes),
]

CONTENT: TypeAdapter[Content] = TypeAdapter(Content)
OUTPUT: TypeAdapter[Output] = TypeAdapter(Output)
RESPONSE: TypeAdapter[Output] = TypeAdapter(Response)


def is_empty(content: tuple[TextPart, ...]) -> bool:
    return not any(part.text for part in content)


def text_of(content: tuple[Any, ...]) -> str:
    """All text parts joined."""
    return "".join(part.text for part in content if isinstance(part, TextPart))


def merged(content: Output) -> Output:
    """Normalised content: neighbouring text parts joined into one, nothing else changed."""
    parts: list[TextPart | JsonPart] = []
    run: list[str] = []
    for part in content:
        if isinstance(part, TextPart):
            run.append(part.text)
            continue
        if run:
            parts.append(TextPart(text="".join(run)))
            run = []
        parts.append(part)
    if run:
        parts.append(TextPart(text="".join(run)))
    return tuple(parts)


class Origin(Record):
    """Who caused something: an API key, a Session, an operator's own signal, or nobody known."""

    kind: Literal["api_key", "session", "temporal", "anonymous", "system"] = "temporal"
    id: Annotated[str, Field(max_length=255)] | None = None
