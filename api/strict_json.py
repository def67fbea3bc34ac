"""Request bodies: bounded while they are read, and JSON in the strict sense or nothing."""

import json
import math
from typing import Any

from starlette.types import Message, Receive, Scope

from turnhold.session import limits
from turnhold.session.errors import Refused

_TOO_LARGE = f"A request body has at most {limits.REQUEST_BODY_BYTES} bytes."


async def read_body(scope: Scope, receive: Receive) -> bytes | None:
    """The whole body; None when the caller has gone.

    Raises:
        Refused: `content_too_large`, before the rest of it is read.
    """
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > limits.REQUEST_BODY_BYTES:
        raise Refused("content_too_large", _TOO_LARGE)
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limits.REQUEST_BODY_BYTES:
            raise Refused("content_too_large", _TOO_LARGE)
        chunks.append(chunk)
        more = message.get("more_body", False)
    return b"".join(chunks)


def check(scope: Scope, body: bytes) -> None:
    """Raises unless `body` is absent, or JSON that says one thing to every reader.

    Raises:
        Refused: `invalid_json`; `invalid_request` for another content type.
    """
    if not body:
        return
    content_type = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
    essence = content_type.split(";")[0].strip().lower()
    if essence != "application/json" and not essence.endswith("+json"):
        raise Refused("invalid_request", "The Content-Type of a body is application/json.")
    try:
        text = body.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise Refused("invalid_json", "The body holds a lone surrogate, which is no character.") from error
    except (ValueError, RecursionError) as error:
        detail = str(error) if not isinstance(error, UnicodeDecodeError) else "not UTF-8"
        raise Refused("invalid_json", f"The body is not valid JSON: {detail}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is out of range")
    return number


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives `body` at once, then what the connection still says."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
