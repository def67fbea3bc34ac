"""Turns: admitted in order, dispatched one at a time, settled once."""

from datetime import datetime

from turnhold.session import events, hosting, ids, people, steps, waiting
from turnhold.session.errors import Refused
from turnhold.session.model import SessionState, Stop, StopKind, Turn
from turnhold.session.transaction import Transaction
from turnhold.session.values import Content, Origin, encoded_bytes


def refuse_unless_open(state: SessionState) -> None:
    """Raises `session_closing` or `session_closed` (S-11)."""
    if state.status == "closing":
        raise Refused("session_closing", "This Session is closing and takes no new Turns.")
    refuse_if_closed(state)


def refuse_if_closed(state: SessionState) -> None:
    if state.status == "closed":
        raise Refused("session_closed", "This Session is closed.")


def find(state: SessionState, turn_id: str) -> int:
    """The sequence of a Turn that was ever admitted, retained or not; else `turn_not_found`."""
    number = ids.number_of("trn", state.seed, turn_id)
    if number is None or not 1 <= number <= state.turns_admitted:
        raise Refused("turn_not_found", "This Session has no such Turn.")
    return number


def running_as(state: SessionState, sequence: int) -> Turn | None:
    """The Turn of this number while it runs, else None."""
    return state.turns[sequence] if state.running == sequence else None


def not_running(state: SessionState, sequence: int) -> Refused:
    """`turn_not_running`, and how the Turn stands instead."""
    turn = state.turns.get(sequence)
    detail = "has ended" if turn is None or turn.settled else "is queued"
    ended = f" as {turn.status}" if turn is not None and turn.settled else ""
    return Refused("turn_not_running", f"Turn {state.turn_id(sequence)} {detail}{ended}.")


def admit(tx: Transaction, content: Content, origin: Origin, created_at: datetime | None = None) -> int:
    """Admit an input as the last of the queue; answers its sequence (S-10, S-11).

    `created_at` is when it was given, where that is known to be earlier than now.

    Raises:
        Refused: `session_closing`, `session_closed`, `queue_full`, `session_busy`.
    """
    state = tx.state
    refuse_unless_open(state)
    if len(state.queue) >= state.config.queue_limit:
        raise Refused("queue_full", f"{len(state.queue)} Turns are queued, and no more may be.")
    size = require_room(state, content)
    state.turns_admitted += 1
    sequence = state.turns_admitted
    queued = tx.write(events.TurnQueued(sequence=sequence, origin=origin), sequence)
    state.turns[sequence] = Turn(
        sequence=sequence,
        origin=origin,
        input=content,
        input_bytes=size,
        created_at=created_at or tx.now,
        first_event=queued,
    )
    state.queue.append(sequence)
    state.inputs_bytes += size
    return sequence


def require_room(state: SessionState, content: Content) -> int:
    """The size of `content` in bytes, if it may wait beside what waits already (S-95).

    Raises:
        Refused: `session_busy`.
    """
    size = encoded_bytes(content)
    if not waiting.fits(state, size):
        raise Refused(
            "session_busy",
            "What waits here is as large as it may be; try again once the store has taken some of it, or "
            "Turns and messages have ended.",
        )
    return size


def dispatch(tx: Transaction) -> None:
    """Give the first of the queue to the live Process."""
    state = tx.state
    sequence = state.queue.pop(0)
    process = tx.change_process(turns=state.process.turns + 1)
    state.running = sequence
    tx.write(events.TurnRunning(process_epoch=process.epoch), sequence)
    tx.change_turn(sequence, status="running", started_at=tx.now)
    tx.issue(steps.RunTurn, turn=sequence, epoch=process.epoch, queue=process.queue)


def put_back(tx: Transaction) -> None:
    """The running Turn goes back to the front of the queue: surely nothing of it has begun (S-13)."""
    state = tx.state
    sequence = state.running
    assert sequence is not None
    state.running = None
    state.queue.insert(0, sequence)
    tx.change_turn(sequence, status="queued", started_at=None)


def stop(tx: Transaction, kind: StopKind) -> None:
    """Accept a stop of the running Turn, unless one is accepted already (S-56, S-58).

    Its Asks and messages are withdrawn at once; the Turn stays running until it has stopped.
    """
    state = tx.state
    turn = state.running_turn
    if turn is None or turn.stop is not None:
        return
    tx.change_turn(turn.sequence, stop=Stop(kind=kind, accepted_at=tx.now))
    people.cancel_asks(tx, people.ask_reason(kind), tell_host=False)
    people.withdraw_messages(tx, "turn_stopped")
    process = state.process
    tx.issue(steps.StopTurn, turn=turn.sequence, epoch=process.epoch, queue=process.queue, reason=kind)


def complete(tx: Transaction, outcome: hosting.TurnOutcome) -> None:
    """The running Turn's own handler completed or failed it (S-12, S-14, S-18)."""
    state = tx.state
    _withdraw(tx, "turn_settling", "turn_ended")
    sequence = _leave(tx)
    state.committed = outcome.state
    state.process = state.process.but(failures=0)
    if outcome.how == "completed":
        event = tx.write(events.TurnCompleted(result=outcome.result, response=outcome.response), sequence)
        _end(tx, sequence, event, status="completed", result=outcome.result, response=outcome.response)
    else:
        assert outcome.error is not None
        event = tx.write(events.TurnFailed(error=outcome.error), sequence)
        _end(tx, sequence, event, status="failed", error=outcome.error)


def interrupt(tx: Transaction, reason: str) -> None:
    """The running Turn ends `interrupted`; an accepted stop decides the reason, whatever came after."""
    turn = tx.state.running_turn
    assert turn is not None
    latency = None
    if turn.stop is not None:
        reason = turn.stop.kind
        latency = round((tx.now - turn.stop.accepted_at).total_seconds() * 1000)
    _withdraw(tx, "turn_stopped", people.ask_reason(reason))
    sequence = _leave(tx)
    event = tx.write(events.TurnInterrupted(reason=reason, stop_latency_ms=latency), sequence)
    _end(tx, sequence, event, status="interrupted", reason=reason)


def cancel_running(tx: Transaction) -> None:
    """A cancel ends the running Turn at once; a stop accepted before decides its outcome (S-54, S-56)."""
    turn = tx.state.running_turn
    if turn is None:
        return
    if turn.stop is not None:
        interrupt(tx, turn.stop.kind)
        return
    _withdraw(tx, "turn_stopped", "cancel")
    cancel(tx, _leave(tx), "cancel")


def cancel_queued(tx: Transaction, reason: str) -> None:
    """Cancel all queued Turns in queue order: for `cancel`, or because a hold blocks them."""
    state = tx.state
    while state.queue:
        cancel(tx, state.queue.pop(0), reason)


def cancel(tx: Transaction, sequence: int, reason: str) -> None:
    event = tx.write(events.TurnCancelled.model_validate({"reason": reason}), sequence)
    _end(tx, sequence, event, status="cancelled", reason=reason)


def _withdraw(tx: Transaction, message_reason: str, ask_reason: str) -> None:
    people.cancel_asks(tx, ask_reason, tell_host=False)
    people.withdraw_messages(tx, message_reason)


def _leave(tx: Transaction) -> int:
    sequence = tx.state.running
    assert sequence is not None
    tx.state.running = None
    tx.drop(steps.RunTurn, steps.DeliverMessage, steps.AnswerAsk, steps.FindTurn)
    return sequence


def _end(tx: Transaction, sequence: int, event: int, **outcome: object) -> None:
    waiting.leave(tx, sequence)
    turn = tx.change_turn(sequence, ended_at=tx.now, last_event=event, **outcome)
    tx.state.settled_bytes += encoded_bytes(turn)
    tx.state.last_activity_at = tx.now
