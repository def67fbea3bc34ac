"""What handlers produce: content in its accepted spellings, and JSON that any reader can decode."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue, ValidationError
from pydantic_core import from_json

from turnhold.session.values import OUTPUT, JsonPart, Output, TextPart, merged

__all__ = ["JsonPart", "OutputContent", "TextPart", "clean_json", "encodable", "output_of", "utf8_bytes"]

_One = str | TextPart | JsonPart | Mapping[str, Any]
OutputContent = _One | Sequence[_One]
"""Text, one part, or several; a part may be written as its dict: `{"type": "json", "value": …}`."""

_NOT_CONTENT = "content is text, a JsonPart, or a list of both"

_NESTING_RESERVE = 50  # JSON readers stop at 200 levels, and a value travels inside other objects


def encodable(text: str) -> str:
    """`text` itself. Raises ValueError for a lone surrogate: UTF-8 has no bytes for it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"text with a lone surrogate at position {error.start} cannot be encoded") from None
    return text


def clean_json(value: object) -> tuple[JsonValue, int]:
    """A copy of `value` in nothing but JSON's own types, and its size as JSON in bytes.

    Raises ValueError when `value` is not JSON: another type, NaN or an infinity, a lone surrogate,
    a cycle, or nested too deeply.
    """
    try:
        encoded = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
        from_json(b"[" * _NESTING_RESERVE + encoded + b"]" * _NESTING_RESERVE, allow_inf_nan=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise ValueError(str(error)) from None
    return json.loads(encoded), len(encoded)


def output_of(content: OutputContent) -> Output:
    """Normalised parts without empty text. Raises ValueError for what is not content."""
    written = [content] if isinstance(content, str | TextPart | JsonPart | Mapping) else content
    if not isinstance(written, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{_NOT_CONTENT}, not {type(written).__name__}")
    try:
        parts = OUTPUT.validate_python(tuple(_in_plain_json(part) for part in written))
    except ValidationError:
        raise ValueError(_NOT_CONTENT) from None
    clean: list[TextPart | JsonPart] = []
    for part in parts:
        if isinstance(part, JsonPart):
            clean.append(JsonPart(value=clean_json(part.value)[0]))
        elif part.text:
            encodable(part.text)
            clean.append(part)
    return merged(tuple(clean))


def _in_plain_json(part: Any) -> Any:
    """A part written as text or a dict, with whatever `clean_json` makes of a value."""
    if isinstance(part, str):
        return TextPart(text=part)
    if isinstance(part, Mapping):
        fields = dict(cast("Mapping[str, Any]", part))
        return fields | {"value": clean_json(fields["value"])[0]} if "value" in fields else fields
    return part


def utf8_bytes(content: Output) -> int:
    """How many UTF-8 bytes of text, or of JSON, are in `content`."""
    return sum(
        len(part.text.encode()) if isinstance(part, TextPart) else clean_json(part.value)[1]
        for part in content
    )
