"""Messages and Asks: what people say to the running Turn, and what it asks them."""

from datetime import datetime, timedelta

from turnhold.session import commands, events, hosting, limits, receipts, steps
from turnhold.session.errors import Refused
from turnhold.session.model import Ask, Message, SessionState, Turn
from turnhold.session.questions import Answer, checked
from turnhold.session.transaction import Effect, Transaction

# --- messages -------------------------------------------------------------------------------------


def admit_message(tx: Transaction, sequence: int, command: commands.Send) -> Effect:
    """Admit a message to the running Turn, which takes messages (S-30, S-34)."""
    state = tx.state
    if sum(message.turn == sequence for message in state.messages.values()) >= limits.OPEN_MESSAGES:
        raise Refused("message_limit", f"{limits.OPEN_MESSAGES} messages to this Turn are still open.")
    state.messages_admitted += 1
    number = state.messages_admitted
    message_id = state.message_id(number)
    state.messages[message_id] = Message(turn=sequence, content=command.content, admitted_at=tx.now)
    tx.write(events.MessageAdmitted(message_id=message_id, content=command.content), sequence)
    _hand_next(tx)
    return Effect(turn=sequence, message=number)


def why_deaf(turn: Turn) -> str:
    """Why a running Turn takes no messages, to go on after its name."""
    if turn.stop is not None:
        return "is being stopped"
    return "has returned" if turn.returned else "has registered no message handler"


def _hand_next(tx: Transaction) -> None:
    """Hand the next message to the host. One is under way at a time: so they arrive in order (S-31)."""
    state, process = tx.state, tx.state.process
    if any(isinstance(step, steps.DeliverMessage) for step in state.outstanding.values()):
        return
    waiting = ((i, message.turn) for i, message in state.messages.items() if not message.handed)
    message_id, turn = next(waiting, (None, None))
    if message_id is not None:
        tx.issue(
            steps.DeliverMessage, turn=turn, epoch=process.epoch, queue=process.queue, message_id=message_id
        )


def message_handed(tx: Transaction, step: steps.DeliverMessage) -> None:
    """The host has the message; the next one may follow."""
    message = tx.state.messages.get(step.message_id)
    if message is not None:
        tx.state.messages[step.message_id] = message.but(handed=True)
    _hand_next(tx)


def message_started(tx: Transaction, fact: hosting.MessageStarted) -> None:
    message = tx.state.messages.get(fact.message_id)
    if message is not None and not message.started:
        tx.state.messages[fact.message_id] = message.but(started=True)
        tx.write(events.MessageStarted(message_id=fact.message_id), message.turn)


def message_settled(tx: Transaction, fact: hosting.MessageSettled) -> None:
    message = tx.state.messages.pop(fact.message_id, None)
    if message is None:
        return
    if fact.reason is None:
        tx.write(events.MessageDelivered(message_id=fact.message_id), message.turn)
    else:
        rejected = events.MessageRejected(message_id=fact.message_id, reason=fact.reason, detail=fact.detail)
        tx.write(rejected, message.turn)


def withdraw_messages(tx: Transaction, reason: str, *, started: bool = True) -> None:
    """Reject every open message; one that had started has an unknown outcome, or is let be (S-33).

    A started one is finished before its Turn ends by itself: if it was not, it was stopped.
    """
    tx.drop(steps.DeliverMessage)
    for message_id, message in list(tx.state.messages.items()):
        if message.started and not started:
            continue
        del tx.state.messages[message_id]
        rejected = events.MessageRejected(message_id=message_id, reason=reason)
        if message.started:
            rejected = rejected.but(reason="turn_stopped", outcome="unknown")
        tx.write(rejected, message.turn)


# --- asks -----------------------------------------------------------------------------------------


def create_ask(tx: Transaction, sequence: int, fact: hosting.AskCreated) -> None:
    """Record a question; one asked by a Turn that is being stopped, or while closing, ends at once (S-42)."""
    state = tx.state
    if fact.ask_id in state.asks:
        return
    expires = None if fact.timeout is None else tx.now + timedelta(seconds=fact.timeout)
    state.asks[fact.ask_id] = Ask(
        turn=sequence,
        prompt=fact.prompt,
        control=fact.control,
        created_at=tx.now,
        expires_at=expires,
    )
    tx.write(events.AskCreated(ask_id=fact.ask_id, prompt=fact.prompt, control=fact.control), sequence)
    stop = state.turns[sequence].stop
    if stop is not None:
        cancel_ask(tx, fact.ask_id, ask_reason(stop.kind), tell_host=False)  # the stop is on its way
    elif state.status == "closing":
        cancel_ask(tx, fact.ask_id, "close")


def ask_reason(stop: str) -> str:
    """Why a stop of this kind cancels an Ask."""
    return {"session_interrupt": "interrupt", "turn_deadline_elapsed": "deadline"}.get(stop, stop)


def ask_withdrawn(tx: Transaction, fact: hosting.AskWithdrawn) -> None:
    """The handler waits for an answer no more, though nobody told it to stop."""
    ask = tx.state.asks.get(fact.ask_id)
    if ask is not None and ask.status == "pending":
        cancel_ask(tx, fact.ask_id, "withdrawn", tell_host=False)


def pending_asks(state: SessionState) -> list[str]:
    return [ask_id for ask_id, ask in state.asks.items() if ask.status == "pending"]


def cancel_ask(tx: Transaction, ask_id: str, reason: str, *, tell_host: bool = True) -> None:
    ask = tx.state.asks[ask_id]
    tx.state.asks[ask_id] = ask.but(status="cancelled", reason=reason, settled_at=tx.now)
    tx.write(events.AskCancelled(ask_id=ask_id, reason=reason), ask.turn)
    if tell_host:
        _tell_host(tx, ask, ask_id)


def cancel_asks(tx: Transaction, reason: str, *, tell_host: bool = True) -> None:
    for ask_id in pending_asks(tx.state):
        cancel_ask(tx, ask_id, reason, tell_host=tell_host)


def first_answer(state: SessionState, command: commands.Command) -> str | None:
    """The request of the answer that `command` repeats: its `response_id`, and what it says (S-41)."""
    if not isinstance(command, commands.AnswerAsk) or command.response_id is None:
        return None
    ask = state.asks.get(command.ask_id)
    if ask is None or state.turn_id(ask.turn) != command.turn_id or ask.response_id != command.response_id:
        return None
    try:
        same = checked(ask.control, command.answer) == ask.answer
    except Refused:
        return None
    return ask.request_id if same and ask.request_id in state.receipts else None


def answer(tx: Transaction, command: commands.AnswerAsk, request_id: str) -> Effect:
    """Settle a pending Ask with its first valid answer (S-41)."""
    ask, given = _judged(tx.state, command)
    tx.state.asks[command.ask_id] = ask.but(
        status="answered",
        answer=given,
        answered_by=command.caller,
        response_id=command.response_id,
        request_id=request_id,
        settled_at=tx.now,
    )
    tx.write(
        events.AskAnswered(ask_id=command.ask_id, answer=given, answered_by=command.caller),
        ask.turn,
    )
    _tell_host(tx, ask, command.ask_id)
    return Effect(turn=ask.turn, ask_id=command.ask_id)


def _judged(state: SessionState, command: commands.AnswerAsk) -> tuple[Ask, Answer]:
    ask = state.asks.get(command.ask_id)
    if ask is None or state.turn_id(ask.turn) != command.turn_id:
        raise Refused("ask_not_found", "This Turn has no such Ask.")
    if state.status == "closed":
        raise Refused("session_closed", "This Session is closed.")
    if ask.status != "pending":
        raise Refused("ask_settled", f"This Ask is {ask.status} already.")
    return ask, checked(ask.control, command.answer)


def _tell_host(tx: Transaction, ask: Ask, ask_id: str) -> None:
    process = tx.state.process
    if process.status == "live" and process.queue is not None:
        tx.issue(steps.AnswerAsk, turn=ask.turn, epoch=process.epoch, queue=process.queue, ask_id=ask_id)


# --- answers that come late -----------------------------------------------------------------------
#
# An answer may have waited for a worker for hours, and its Turn's host may have died meanwhile
# without anybody there to notice. So its host is heard before it is judged (S-43).


def comes_late(state: SessionState, command: commands.AnswerAsk, now: datetime) -> bool:
    """Whether an answer waited for a worker, or stands behind one that did."""
    if any(other.ask_id == command.ask_id for other in state.late.values()):
        return True
    waited = (now - command.sent_at).total_seconds() if command.sent_at else 0.0
    return waited >= limits.LATE_ANSWER_SECONDS


def first_late(state: SessionState, command: commands.AnswerAsk) -> str | None:
    """The request of the late answer that this one repeats, if there is one.

    Raises:
        Refused: as when it is judged; and `ask_settled` behind another answer, whatever comes of that.
    """
    _judged(state, command)
    for request_id, other in state.late.items():
        if other.ask_id == command.ask_id:
            if _repeats(command, other):
                return request_id
            raise Refused("ask_settled", "Another answer to this Ask came first.")
    return None


def _repeats(command: commands.AnswerAsk, first: commands.AnswerAsk) -> bool:
    if command.response_id is not None and command.response_id == first.response_id:
        return command.answer == first.answer
    key = receipts.key_of(command)
    return key is not None and key == receipts.key_of(first) and command.fingerprint == first.fingerprint


def hear_host(tx: Transaction, command: commands.AnswerAsk, request_id: str) -> None:
    """Keep an answer until its Turn's host is heard, or the Turn ends."""
    state, process = tx.state, tx.state.process
    state.late[request_id] = command
    if not any(isinstance(step, steps.FindTurn) for step in state.outstanding.values()):
        tx.issue(steps.FindTurn, turn=state.running, epoch=process.epoch, queue=process.queue)
