"""Bodies: strict JSON within bounds, read no further than needed."""

import pytest
from starlette.types import Message

from api import strict_json
from turnhold.session import limits
from turnhold.session.errors import Refused


def scope(content_type: str = "application/json", length: int | None = None) -> dict[str, object]:
    headers = [(b"content-type", content_type.encode())]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    return {"type": "http", "headers": headers}


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b"{} {}",
        b"{",
        b"[NaN]",
        b"[Infinity]",
        b"[-Infinity]",
        b"[1e999]",
        b'["\\ud800"]',
        b'{"\\udc00": 1}',
        b'["\xff"]',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b"9" * 10_000,
        b"'a'",
        b"   ",
    ],
)
def test_what_is_not_json_to_every_reader_is_invalid_json(body: bytes) -> None:
    with pytest.raises(Refused) as caught:
        strict_json.check(scope(), body)
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize("body", [b"", b"{}", b'["\\ud83d\\ude00"]', b'"x"', b"null", b"[1.5e3]"])
def test_json_passes(body: bytes) -> None:
    strict_json.check(scope(), body)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_type_is_refused(content_type: str) -> None:
    with pytest.raises(Refused) as caught:
        strict_json.check(scope(content_type), b"{}")
    assert caught.value.code == "invalid_request"


class Connection:
    """Sends a body in chunks, and counts how many were taken."""

    def __init__(self, chunks: int, size: int) -> None:
        self.chunks = chunks
        self.size = size
        self.taken = 0

    async def receive(self) -> Message:
        self.taken += 1
        more = self.taken < self.chunks
        return {"type": "http.request", "body": b"x" * self.size, "more_body": more}


async def test_a_body_that_says_it_is_too_large_is_not_read_at_all() -> None:
    connection = Connection(100, 65_536)
    with pytest.raises(Refused) as caught:
        await strict_json.read_body(scope(length=limits.REQUEST_BODY_BYTES + 1), connection.receive)
    assert (caught.value.code, connection.taken) == ("content_too_large", 0)


async def test_a_chunked_body_is_read_to_the_limit_and_no_further() -> None:
    connection = Connection(1_000, 65_536)
    with pytest.raises(Refused) as caught:
        await strict_json.read_body(scope(), connection.receive)
    assert caught.value.code == "content_too_large"
    assert connection.taken == limits.REQUEST_BODY_BYTES // 65_536 + 1
