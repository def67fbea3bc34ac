"""The Turn as its handler sees it."""

import asyncio
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, cast

from pydantic import TypeAdapter, ValidationError

from turnhold.agents.content import OutputContent, encodable, output_of
from turnhold.agents.controls import Reply
from turnhold.agents.forgotten import Calls
from turnhold.session import limits
from turnhold.session.questions import ChoiceControl, Control, TextControl
from turnhold.session.values import RESPONSE, Content, Origin, Output, Record, Seconds, text_of

_SECONDS: TypeAdapter[float] = TypeAdapter(Seconds)


class Message(Record):
    """Text sent to this Turn while it runs."""

    id: str
    content: Content

    @property
    def text(self) -> str:
        """All text parts joined."""
        return text_of(self.content)


MessageHandler = Callable[[Message], Awaitable[Any] | None]


class TurnPort(Protocol):
    """What a Turn needs of whoever runs it."""

    async def write(self, content: Output) -> None:
        """Append to the timeline; waits while too much is under way. Raises ValueError past a limit."""
        ...

    async def listen(self, handler: MessageHandler) -> None:
        """Take messages from now on; returns when that is on record."""
        ...

    async def ask(self, prompt: str, control: Control, seconds: float | None) -> Reply:
        """Wait for a person. Raises AskCancelled."""
        ...


class Interruption:
    """Whether the Turn is being stopped: a flag (`if turn.interrupted`), and an awaitable."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._thread_event = threading.Event()

    def __bool__(self) -> bool:
        return self._thread_event.is_set()

    def __await__(self) -> Generator[Any, None, bool]:
        return self._event.wait().__await__()

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread until the stop, at most `timeout` seconds: for plain `def` handlers."""
        return self._thread_event.wait(timeout)

    def set(self) -> None:
        """A stop has arrived. Called by the host, on the Turn's loop."""
        self._thread_event.set()
        self._event.set()


class TurnOutput:
    """Where a Turn writes. Everything written stands in the timeline before the Turn's end (S-15)."""

    def __init__(self, port: TurnPort, calls: Calls) -> None:
        self._port = port
        self._calls = calls

    def write(self, content: OutputContent) -> Coroutine[Any, Any, None]:
        """Append text or parts, in order. Waits while the timeline cannot keep up.

        Raises ValueError for what is not content, for a fragment over 1 MiB encoded, and past
        8 MiB in one Turn.
        """
        return self._calls.made("turn.output.write", self._write, content)

    def pipe(
        self, contents: AsyncIterable[OutputContent] | Iterable[OutputContent]
    ) -> Coroutine[Any, Any, None]:
        """Write everything that `contents` yields. Raises TypeError for what yields nothing."""
        return self._calls.made("turn.output.pipe", self._pipe, contents)

    async def _write(self, content: OutputContent) -> None:
        await self._port.write(output_of(content))

    async def _pipe(self, contents: AsyncIterable[OutputContent] | Iterable[OutputContent]) -> None:
        if isinstance(contents, AsyncIterable):
            async for content in contents:
                await self._write(content)
            return
        for content in each_of(contents):
            await self._write(content)


def each_of(contents: Iterable[OutputContent]) -> Iterable[OutputContent]:
    """`contents` itself. Raises TypeError for what `write` takes, or nothing does."""
    given = cast("object", contents)
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        kind = type(cast("object", given)).__name__
        raise TypeError(f"pipe writes all that an iterable yields, and was given a {kind}")
    return contents


class Turn:
    """One input, and the means to answer it. Made by the host, one for each call of a handler."""

    def __init__(
        self,
        port: TurnPort,
        *,
        id: str,
        sequence: int,
        input: Content,
        origin: Origin,
        created_at: datetime,
    ) -> None:
        self._port = port
        self._listening = False
        self.id = id
        self.sequence = sequence
        self.input = input
        self.origin = origin
        self.created_at = created_at
        self.calls = Calls()
        self.output = TurnOutput(port, self.calls)
        self.interrupted = Interruption()
        self.response: Output | None = None

    @property
    def text(self) -> str:
        """All text parts of the input joined."""
        return text_of(self.input)

    def respond(self, content: OutputContent) -> None:
        """Stage the human-readable response, published only if the Turn completes (S-14).

        Raises RuntimeError when called a second time, ValueError for more than 256 KiB.
        """
        if self.response is not None:
            raise RuntimeError("a Turn has one response, and it is staged already")
        try:
            self.response = RESPONSE.validate_python(output_of(content))
        except ValidationError as error:
            raise ValueError(f"not a response: {error.errors()[0]['msg']}") from None

    def on_message(self, handler: MessageHandler) -> Coroutine[Any, Any, None]:
        """Take messages with `handler`, one at a time; returns when that is on record (S-30).

        Raises RuntimeError when called a second time, TypeError for what cannot be called.
        """
        return self.calls.made("turn.on_message", self._on_message, handler)

    async def _on_message(self, handler: MessageHandler) -> None:
        if not callable(handler):
            raise TypeError(f"a message handler is a function, not {type(handler).__name__}")
        if self._listening:
            raise RuntimeError("a Turn registers one message handler, once")
        self._listening = True
        await self._port.listen(handler)

    def ask(
        self, prompt: str, control: Control | None = None, timeout: float | str | None = None
    ) -> Coroutine[Any, Any, Reply]:
        """Ask a person and wait (S-40 to S-43). Without `control` the answer is text.

        `timeout` is seconds or an ISO 8601 duration. Raises AskCancelled when it is over or the
        Session closes, RuntimeError for an eleventh pending Ask, ValueError past a limit, TypeError
        for what is no question. An Ask that is cancelled as a task is withdrawn.
        """
        return self.calls.made("turn.ask", self._ask, prompt, control, timeout)

    async def _ask(self, prompt: str, control: Control | None, timeout: float | str | None) -> Reply:  # noqa: ASYNC109 - a person's time, kept by the Session
        if not isinstance(prompt, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a question is text, not {type(prompt).__name__}")
        if not isinstance(control, TextControl | ChoiceControl | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a control is choice(…) or text(), not {type(control).__name__}")
        if len(encodable(prompt).encode()) > limits.ASK_PROMPT_BYTES:
            raise ValueError(f"a question has at most {limits.ASK_PROMPT_BYTES} bytes")
        try:
            seconds = None if timeout is None else _SECONDS.validate_python(timeout)
        except ValidationError as error:
            raise ValueError(f"timeout: {error.errors()[0]['msg']}") from None
        return await self._port.ask(prompt, control or TextControl(), seconds)
