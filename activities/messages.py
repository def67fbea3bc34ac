"""The messages of one Turn: handled one at a time, in order (S-31 to S-33)."""

import asyncio
import inspect
from collections import deque

from activities.outbox import Outbox, resolve
from activities.outcome import describe, message_of
from turnhold.agents.errors import MessageRejected
from turnhold.agents.turn import Interruption, Message, MessageHandler
from turnhold.session.hosting import FunctionReturned, HandlerRegistered, MessageSettled, MessageStarted


class Inbox:
    """Lives on the Process's loop."""

    def __init__(self, outbox: Outbox, interrupted: Interruption) -> None:
        self._outbox = outbox
        self._interrupted = interrupted
        self._handler: MessageHandler | None = None
        self._seen: set[str] = set()
        self._queue: deque[Message] = deque()
        self._work: asyncio.Task[None] | None = None
        self._closed = False

    async def register(self, handler: MessageHandler) -> None:
        """Returns when the Session has it on record (S-30)."""
        self._handler = handler
        recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outbox.put(HandlerRegistered(), urgent=True, on_ack=lambda: resolve(recorded))
        await recorded

    def deliver(self, message: Message) -> None:
        """Take a message; one that has come before, or too late, is the Session's to settle."""
        if self._closed or message.id in self._seen:
            return
        self._seen.add(message.id)
        self._queue.append(message)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._handle_all())

    async def close(self) -> None:
        """The Turn's function has returned: finish the message that has started, and no other."""
        self._closed = True
        self._queue.clear()
        if self._work is not None and not self._work.done():
            self._outbox.put(FunctionReturned(), urgent=True)
            await asyncio.wait([self._work])

    def interrupt(self) -> None:
        """A stop: the Session has settled every message."""
        self._closed = True
        self._queue.clear()
        if self._work is not None:
            self._work.cancel()

    async def _handle_all(self) -> None:
        while self._queue and self._handler is not None:
            message = self._queue.popleft()
            self._outbox.put(MessageStarted(message_id=message.id), urgent=True)
            reason, detail = await self._handle(self._handler, message)
            self._outbox.put(MessageSettled(message_id=message.id, reason=reason, detail=detail), urgent=True)

    async def _handle(self, handler: MessageHandler, message: Message) -> tuple[str | None, str | None]:
        try:
            pending = handler(message)
            if inspect.isawaitable(pending):
                await pending
        except MessageRejected as rejected:
            return message_of(rejected), None
        except asyncio.CancelledError as error:
            if self._interrupted:
                raise
            return "handler_failed", describe(error)
        except Exception as error:
            return "handler_failed", describe(error)
        return None, None
