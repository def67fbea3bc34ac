"""Twins of Turn and Context for plain `def` handlers, which run in a thread of their own.

A call that waits blocks the handler's thread and nothing else. After a stop, `turn.interrupted`
is true and the first such call raises `asyncio.CancelledError`, once, like the first `await` of
an `async def` handler; later ones work, so that the handler can clean up.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from turnhold.agents.content import OutputContent
from turnhold.agents.context import Context, PastTurn
from turnhold.agents.controls import Reply
from turnhold.agents.turn import Interruption, Message, Turn, each_of
from turnhold.session.questions import Control

T = TypeVar("T")


async def call_in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call `function` in a daemon thread: one that blocks never keeps the worker from exiting.

    Cannot be cancelled: a thread has no such thing, and its call is over only when it returns.
    """
    loop = asyncio.get_running_loop()
    done: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            done.set_result(function(*args))
        except StopIteration as error:  # no future can carry it
            done.set_exception(RuntimeError(f"{function!r} raised StopIteration: {error}"))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name=f"{threading.current_thread().name}-call", daemon=True).start()
    waiting = asyncio.wrap_future(done, loop=loop)
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            continue
    return waiting.result()


class Bridge:
    """Brings a plain handler's calls to the loop of its Process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interrupted: Interruption | None = None) -> None:
        self._loop = loop
        self._interrupted = interrupted
        self._told = False
        self._waiting: concurrent.futures.Future[Any] | None = None

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._interrupted and not self._told:
            coroutine.close()
            self._told = True
            raise asyncio.CancelledError
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._waiting = future
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            self._told = True
            raise asyncio.CancelledError from None
        finally:
            self._waiting = None

    def interrupt(self) -> None:
        """The stop has arrived: a call that waits raises now."""
        if waiting := self._waiting:
            waiting.cancel()


class SyncOutput:
    """`turn.output` for plain handlers."""

    def __init__(self, turn: Turn, bridge: Bridge) -> None:
        self._turn = turn
        self._bridge = bridge

    def write(self, content: OutputContent) -> None:
        self._bridge.call(self._turn.output.write(content))

    def pipe(self, contents: Iterable[OutputContent]) -> None:
        for content in each_of(contents):
            self.write(content)


class SyncTurn:
    """`Turn` for plain handlers: the same members, blocking."""

    def __init__(self, turn: Turn, bridge: Bridge) -> None:
        self._turn = turn
        self._bridge = bridge
        self.id = turn.id
        self.sequence = turn.sequence
        self.input = turn.input
        self.text = turn.text
        self.origin = turn.origin
        self.created_at = turn.created_at
        self.output = SyncOutput(turn, bridge)
        self.interrupted = turn.interrupted

    def respond(self, content: OutputContent) -> None:
        self._turn.respond(content)

    def on_message(self, handler: Callable[[Message], Any]) -> None:
        """Take messages with `handler`, each in a thread."""

        async def in_thread(message: Message) -> None:
            await call_in_thread(handler, message)

        self._bridge.call(self._turn.on_message(in_thread))

    def ask(self, prompt: str, control: Control | None = None, timeout: float | str | None = None) -> Reply:
        return self._bridge.call(self._turn.ask(prompt, control, timeout))


class SyncSessions:
    """`ctx.sessions` for plain handlers."""

    def __init__(self, context: Context, bridge: Bridge) -> None:
        self._context = context
        self._bridge = bridge

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Awaitable[Any]] = getattr(self._context.sessions, name)

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await call(*args, **kwargs)

        return lambda *args, **kwargs: self._bridge.call(awaited(*args, **kwargs))


class SyncContext:
    """`Context` for plain handlers: the same members, blocking. `state` is the same value."""

    def __init__(self, context: Context, bridge: Bridge) -> None:
        self._context = context
        self._bridge = bridge
        self.session = context.session
        self.process = context.process
        self.process_epoch = context.process_epoch
        self.recovery = context.recovery
        self.deployment = context.deployment
        self.sessions = SyncSessions(context, bridge)

    @property
    def state(self) -> Any:
        return self._context.state

    @state.setter
    def state(self, value: Any) -> None:
        self._context.state = value

    def history(self, limit: int = 20) -> list[PastTurn]:
        return self._bridge.call(self._context.history(limit))
