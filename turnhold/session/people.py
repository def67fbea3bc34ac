"""Messages and Asks: what people say to the running Turn, and what it asks them."""

from datetime import timedelta

from turnhold.session import commands, events, hosting, ids, limits, steps
from turnhold.session.errors import Refused
from turnhold.session.model import (
    Answer,
    Ask,
    ChoiceControl,
    Control,
    Message,
    Receipt,
    SessionState,
    Turn,
)
from turnhold.session.transaction import Effect, Transaction

_QUOTED = 100  # characters of a wrong answer that are worth repeating

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
    event = tx.write(events.AskCancelled(ask_id=ask_id, reason=reason), ask.turn)
    tx.state.asks[ask_id] = ask.but(status="cancelled", reason=reason, settled_at=tx.now, settled_event=event)
    if tell_host:
        _tell_host(tx, ask, ask_id)


def cancel_asks(tx: Transaction, reason: str, *, tell_host: bool = True) -> None:
    for ask_id in pending_asks(tx.state):
        cancel_ask(tx, ask_id, reason, tell_host=tell_host)


def first_answer(state: SessionState, command: commands.Command) -> Receipt | None:
    """The receipt of the answer that `command` repeats: its `response_id`, and what it says (S-41)."""
    response = _response(command) if isinstance(command, commands.AnswerAsk) else None
    if response is None:
        return None
    return next((receipt for receipt in state.receipts.values() if receipt.response == response), None)


def _response(command: commands.AnswerAsk) -> str | None:
    if command.response_id is None:
        return None
    said = (command.answer.text or "", *(command.answer.selected or ()))
    return ids.digest(command.turn_id, command.ask_id, command.response_id, *said)


def answer(tx: Transaction, command: commands.AnswerAsk) -> Effect:
    """Settle a pending Ask with its first valid answer (S-41)."""
    state = tx.state
    ask = state.asks.get(command.ask_id)
    was_asked = ids.number_of("ask", command.turn_id, command.ask_id) is not None
    if not was_asked if ask is None else state.turn_id(ask.turn) != command.turn_id:
        raise Refused("ask_not_found", "This Turn has no such Ask.")
    if state.status == "closed":
        raise Refused("session_closed", "This Session is closed.")
    if ask is None or ask.status != "pending":
        raise Refused("ask_settled", f"This Ask is {ask.status if ask else 'settled'} already.")
    given = _checked(ask.control, command.answer)
    answered = events.AskAnswered(ask_id=command.ask_id, answer=given, answered_by=command.caller)
    event = tx.write(answered, ask.turn)
    state.asks[command.ask_id] = ask.but(
        status="answered",
        answer=given,
        answered_by=command.caller,
        settled_at=tx.now,
        settled_event=event,
    )
    _tell_host(tx, ask, command.ask_id)
    return Effect(turn=ask.turn, ask_id=command.ask_id, response=_response(command))


def _tell_host(tx: Transaction, ask: Ask, ask_id: str) -> None:
    process = tx.state.process
    if process.status == "live" and process.queue is not None:
        tx.issue(steps.AnswerAsk, turn=ask.turn, epoch=process.epoch, queue=process.queue, ask_id=ask_id)


def _checked(control: Control, answer: Answer) -> Answer:
    """The answer as it is recorded, if the control allows it."""
    if isinstance(control, ChoiceControl):
        return _checked_choice(control, answer)
    if answer.selected is not None:
        raise Refused("invalid_answer", "This Ask takes a text, no selection.")
    if not answer.text:
        raise Refused("invalid_answer", "This Ask takes a text that is not empty.")
    return Answer(text=_within(answer.text, limits.ASK_ANSWER_BYTES))


def _within(text: str, most: int) -> str:
    if len(text.encode("utf-8", "surrogatepass")) > most:
        raise Refused("invalid_answer", f"The text has more than {most} bytes.")
    return text


def _checked_choice(control: ChoiceControl, answer: Answer) -> Answer:
    declared = [option.id for option in control.options]
    selected = list(answer.selected or ())
    if answer.text is not None and not control.allow_text:
        raise Refused("invalid_answer", "This Ask takes no text.")
    unknown = [option for option in selected if option not in declared]
    if unknown:
        raise Refused("invalid_answer", f"This Ask has no option {unknown[0][:_QUOTED]!r}.")
    if len(set(selected)) != len(selected):
        raise Refused("invalid_answer", "An option is selected twice.")
    if selected != [option for option in declared if option in selected]:
        raise Refused("invalid_answer", "Selected options stand in the order in which they are declared.")
    if len(selected) > 1 and not control.multiple:
        raise Refused("invalid_answer", "This Ask takes one option.")
    text = _within(answer.text or "", limits.ASK_CUSTOM_TEXT_BYTES)
    if not selected and not text:
        raise Refused(
            "invalid_answer", "Select an option" + (", or say something." if control.allow_text else ".")
        )
    return Answer(text=text or None, selected=tuple(selected))
