"""One Turn inside its Process: everything here runs on the Process's own loop."""

import asyncio
import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from activities import outcome
from activities.messages import Inbox
from activities.outbox import Outbox
from turnhold.agents.blocking import Bridge, SyncContext, SyncTurn, call_in_thread
from turnhold.agents.content import utf8_bytes
from turnhold.agents.context import Context
from turnhold.agents.controls import Reply
from turnhold.agents.definition import Handler
from turnhold.agents.errors import AskCancelled
from turnhold.agents.turn import Message, MessageHandler, Turn
from turnhold.session import ids, limits
from turnhold.session.hosting import (
    AnswerAskCall,
    AskCreated,
    AskWithdrawn,
    DeliverMessageCall,
    OutputWritten,
    RunTurnCall,
    TurnOutcome,
)
from turnhold.session.questions import Control
from turnhold.session.values import Output, encoded_bytes


@dataclass(frozen=True)
class _Pending:
    """A question that waits; `size` is its fact's, in bytes of JSON."""

    control: Control
    size: int
    reply: asyncio.Future[Reply]


class TurnRun:
    """A Turn's handler, what it says, and what is said to it. Made on the Process's loop."""

    def __init__(
        self, call: RunTurnCall, handler: Handler, make_context: Callable[[Any], Context], outbox: Outbox
    ) -> None:
        self._call = call
        self._handler = handler
        self._outbox = outbox
        self._context = make_context(copy.deepcopy(call.state))
        self.turn = Turn(
            self,
            id=call.turn_id,
            sequence=call.sequence,
            input=call.input,
            origin=call.origin,
            created_at=call.created_at,
        )
        self._inbox = Inbox(outbox, self.turn.interrupted)
        self._bridge = Bridge(asyncio.get_running_loop(), self.turn.interrupted)
        self._function: asyncio.Task[TurnOutcome] | None = None
        self._stop_reason: str | None = None
        self._asks: dict[str, _Pending] = {}
        self._asked = 0
        self._spent = 0
        self._over = False

    async def run(self) -> TurnOutcome:
        """Run the handler to its end. The outcome has no facts yet.

        A stop that came before leaves the handler unbegun (S-58); one that comes after the
        function has returned does not change what it returned (the Session judges, S-56).
        """
        if self.turn.interrupted:
            return self._stopped()
        self._function = asyncio.create_task(self._call_handler(), name=f"turn {self._call.turn_id}")
        await asyncio.wait([self._function])
        how = self._stopped() if self._function.cancelled() else self._function.result()
        await self._inbox.close()
        self._over = True
        for pending in self._asks.values():
            pending.reply.cancel()  # of a task that outlives its Turn
        return how

    async def _call_handler(self) -> TurnOutcome:
        try:
            value = await self._returned()
            await self.turn.calls.have_begun()
        except asyncio.CancelledError as error:
            return self._stopped() if self.turn.interrupted else self._raised(error)
        except Exception as error:
            return self._stopped() if self.turn.interrupted else self._raised(error)
        except BaseException as error:
            return outcome.died(self._call, outcome.describe(error))
        if self.turn.interrupted:
            return self._stopped()
        return outcome.returned(self._call, value, self.turn.response, self._context.state)

    async def _returned(self) -> Any:
        if inspect.iscoroutinefunction(self._handler):
            return await self._handler(self.turn, self._context)
        turn, context = SyncTurn(self.turn, self._bridge), SyncContext(self._context, self._bridge)
        return await call_in_thread(self._handler, turn, context)

    def _stopped(self) -> TurnOutcome:
        return outcome.stopped(
            self._call, self._stop_reason if self._stop_reason == "worker_shutdown" else None
        )

    def _raised(self, error: BaseException) -> TurnOutcome:
        return outcome.raised(self._call, error, self._context.state)

    # --- what is said to it ---------------------------------------------------------------------

    def interrupt(self, reason: str) -> None:
        """Stop the handler; a second stop changes nothing."""
        if self.turn.interrupted:
            return
        self._stop_reason = reason
        self.turn.interrupted.set()
        self._bridge.interrupt()
        self._inbox.interrupt()
        if self._function is not None:
            self._function.cancel()

    def deliver(self, call: DeliverMessageCall) -> None:
        self._inbox.deliver(Message(id=call.message_id, content=call.content))

    def answer(self, call: AnswerAskCall) -> None:
        """Settle the waiting call, once."""
        pending = self._asks.get(call.ask_id)
        if pending is None or pending.reply.done():
            return
        if call.answer is None:
            pending.reply.set_exception(AskCancelled(call.reason or "close"))
        else:
            pending.reply.set_result(Reply.of(pending.control, call.answer, call.answered_by))

    # --- what it says (TurnPort) ----------------------------------------------------------------

    async def write(self, content: Output) -> None:
        if not content:
            return
        size = encoded_bytes(content)
        if size > limits.OUTPUT_FRAGMENT_BYTES:
            raise ValueError(
                f"one fragment of output has at most {limits.OUTPUT_FRAGMENT_BYTES} bytes encoded as JSON"
            )
        self._spend(utf8_bytes(content))
        self._outbox.put(OutputWritten(content=content), size)
        await self._outbox.room()

    async def listen(self, handler: MessageHandler) -> None:
        self._refuse_when_over()
        await self._inbox.register(handler)

    async def ask(self, prompt: str, control: Control, seconds: float | None) -> Reply:
        if self.turn.interrupted:
            raise asyncio.CancelledError
        if len(self._asks) >= limits.PENDING_ASKS:
            raise RuntimeError(f"a Turn has at most {limits.PENDING_ASKS} pending questions")
        ask_id = ids.numbered("ask", self._call.turn_id, self._asked + 1)
        asked = AskCreated(ask_id=ask_id, prompt=prompt, control=control, timeout=seconds)
        size = encoded_bytes(asked)
        if size + sum(pending.size for pending in self._asks.values()) > limits.PENDING_ASKS_BYTES:
            raise ValueError(
                f"pending questions have at most {limits.PENDING_ASKS_BYTES} bytes together, encoded as JSON"
            )
        self._spend(len(prompt.encode()) + encoded_bytes(control))
        self._asked += 1
        pending = self._asks[ask_id] = _Pending(control, size, asyncio.get_running_loop().create_future())
        self._outbox.put(asked, size, urgent=True)
        try:
            return await pending.reply
        except asyncio.CancelledError:
            if not (self.turn.interrupted or self._over):
                self._outbox.put(AskWithdrawn(ask_id=ask_id), urgent=True)
            raise
        finally:
            del self._asks[ask_id]

    def _spend(self, size: int) -> None:
        self._refuse_when_over()
        if self._spent + size > limits.TURN_OUTPUT_BYTES:
            raise ValueError(
                f"output and questions of one Turn have at most {limits.TURN_OUTPUT_BYTES} bytes"
            )
        self._spent += size

    def _refuse_when_over(self) -> None:
        if self._over:
            raise RuntimeError("this Turn is over")
