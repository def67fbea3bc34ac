"""A viewer of an event stream that costs next to nothing, so that a thousand fit into one process."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic_core import from_json

_BUFFER = 4 * 1024 * 1024


@dataclass(frozen=True)
class Seen:
    """An event, and when it arrived, in seconds of the system's clock."""

    sequence: int
    kind: str
    data: bytes
    at: float

    def text(self) -> str:
        """Of `turn.output`: its text."""
        parts = from_json(self.data)["data"]["content"]
        return "".join(part.get("text", "") for part in parts)


class Viewer:
    """One open stream. HTTP/1.0, so that its body comes as it is written."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.reader = reader

    async def events(self) -> AsyncGenerator[Seen]:
        """Everything that comes, until the server ends it."""
        while True:
            try:
                block = await self.reader.readuntil(b"\n\n")
            except asyncio.IncompleteReadError:
                return
            at = time.time()
            fields = dict(line.split(b": ", 1) for line in block.strip().splitlines() if b": " in line)
            if b"data" in fields and b"id" in fields:
                yield Seen(int(fields[b"id"]), fields[b"event"].decode(), fields[b"data"], at)

    async def until(self, kind: str) -> list[Seen]:
        """Everything up to the first event of this kind.

        Raises:
            EOFError: the stream ended without.
        """
        seen: list[Seen] = []
        async for event in self.events():
            seen.append(event)
            if event.kind == kind:
                return seen
        raise EOFError(f"the stream ended without {kind}")


@asynccontextmanager
async def viewing(url: str, session: str, after: int = 0) -> AsyncGenerator[Viewer]:
    """An open stream of a Session's events.

    Raises:
        ConnectionError: the server does not answer with a stream.
    """
    host = urlsplit(url).netloc
    reader, writer = await asyncio.open_connection(*host.split(":"), limit=_BUFFER)
    try:
        writer.write(
            f"GET /v1/sessions/{session}/events?after={after} HTTP/1.0\r\n"
            f"Host: {host}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.splitlines()[0]:
            raise ConnectionError(head.decode())
        yield Viewer(reader)
    finally:
        writer.close()
