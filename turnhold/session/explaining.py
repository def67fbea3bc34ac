"""Why a Session does not move: every cause that its state knows, the most decisive first (S-94).

What only the outside knows (no worker, no Process slot, no Temporal) is added where it is known.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from turnhold.session import remedies, sealing, steps, waiting
from turnhold.session.model import ClosedHow, SessionState
from turnhold.session.views import Cause, Explanation, HoldView

_ENDED: dict[str, str] = {
    "close": "This Session was closed.",
    "cancel": "This Session was cancelled.",
    "idle": "This Session was idle for as long as it may be, and closed.",
    "terminated": "The workflow of this Session was ended in Temporal.",
}


def explain(state: SessionState) -> Explanation:
    """Why this Session does not move, as far as it knows itself."""
    if state.status == "closed":
        return ended(state.id, state.closed_how, state.closed_at)
    causes = (
        *_holding(state),
        *_asking(state),
        *_stopping(state),
        *_waiting_for_process(state),
        *_waiting_for_store(state),
        *_closing_on_owned(state),
        *_queued_behind(state),
        *_nothing_to_do(state),
    )
    return Explanation(moving=_moves(state), causes=causes)


def ended(session_id: str, how: ClosedHow | None, at: datetime | None) -> Explanation:
    message = _ENDED.get(how or "", "This Session is closed.")
    return Explanation(
        moving=False, causes=(Cause(code="closed", message=message, since=at, session_id=session_id),)
    )


def holds(state: SessionState) -> tuple[HoldView, ...]:
    """The holds, as everybody sees them."""
    return tuple(
        HoldView(
            id=hold.id,
            session_id=hold.session_id,
            kind=hold.kind,
            can_release=not hold.inherited,
            placed_by=hold.placed_by,
            created_at=hold.created_at,
        )
        for hold in state.holds.values()
    )


def held(session_id: str, hold: HoldView) -> Cause:
    """One hold. One that was placed at an owner is released there."""
    where = session_id if hold.can_release else hold.session_id
    if where != session_id:
        message = (
            f"An interrupt of Session {where}, which owns this one, holds it until it is released there."
        )
    elif hold.kind == "process_failed":
        message = "Its Process kept failing: no Turn starts until somebody has looked and releases this hold."
    else:
        message = "An interrupt holds this Session: no Turn starts until it is released."
    return Cause(
        code="held",
        message=message,
        since=hold.created_at,
        hold_id=hold.id,
        session_id=hold.session_id,
        clear=remedies.resume(where, hold.id),
    )


def _moves(state: SessionState) -> bool:
    if state.running is not None:
        return not any(ask.status == "pending" for ask in state.asks.values())
    return bool(state.queue) and not state.held


def _holding(state: SessionState) -> Iterator[Cause]:
    """A closing Session has nothing left that a hold could block."""
    if state.status == "open":
        yield from (held(state.id, hold) for hold in holds(state))


def _asking(state: SessionState) -> Iterator[Cause]:
    for ask_id, ask in state.asks.items():
        if ask.status == "pending":
            turn_id = state.turn_id(ask.turn)
            yield Cause(
                code="asking",
                message=f"Turn {ask.turn} has asked a question and waits for its answer.",
                since=ask.created_at,
                until=ask.expires_at,
                ask_id=ask_id,
                turn_id=turn_id,
                session_id=state.id,
                clear=remedies.answer(state.id, turn_id, ask_id, ask.control),
            )


def _stopping(state: SessionState) -> Iterator[Cause]:
    turn, process = state.running_turn, state.process
    patience = timedelta(seconds=state.config.stop_deadline)
    if turn is not None and turn.stop is not None:
        yield Cause(
            code="stopping",
            message=f"Turn {turn.sequence} is being stopped; past the stop deadline it ends anyway.",
            since=turn.stop.accepted_at,
            until=turn.stop.accepted_at + patience,
            turn_id=state.turn_id(turn.sequence),
            session_id=state.id,
        )
    elif process.status == "stopping" and _waits(state):
        yield Cause(
            code="stopping",
            message="The Process is being stopped; the next Turn starts another one once it is gone.",
            since=process.since,
            until=process.since and process.since + patience,
            turn_id=state.turn_id(state.queue[0]),
            session_id=state.id,
        )


def _waits(state: SessionState) -> bool:
    """A queued Turn could run, if there were a Process for it."""
    return state.running is None and bool(state.queue) and not state.held


def _waiting_for_process(state: SessionState) -> Iterator[Cause]:
    process = state.process
    if not _waits(state) or (process.status == "none" and not _has_what_it_needs(state)):
        return
    sequence = state.queue[0]
    starting = Cause(
        code="process_starting",
        message=f"Process {process.epoch} is starting; Turn {sequence} runs once it is there.",
        since=process.since,
        until=process.since and process.since + timedelta(seconds=state.config.init_timeout),
        turn_id=state.turn_id(sequence),
        session_id=state.id,
    )
    if process.status == "starting":
        yield starting
    elif process.status == "none":
        failed = f"{process.failures} failed in a row" if process.failures else "the last start was lost"
        yield starting.but(
            code="process_backing_off",
            message=f"A new Process for Turn {sequence} is tried after a pause, since {failed}.",
            until=process.retry_at,
        )


def _has_what_it_needs(state: SessionState) -> bool:
    """The store does not keep the next Turn from running."""
    return sealing.has_room(state) and waiting.is_at_hand(state)


def _waiting_for_store(state: SessionState) -> Iterator[Cause]:
    """No Turn begins before the store has what earlier ones left, and gives its input.

    Why it does not, others know.
    """
    if _waits(state) and not _has_what_it_needs(state):
        full = not sealing.has_room(state)
        until = "taken what earlier ones left" if full else "given its input"
        kind = steps.Seal if full else steps.Fetch
        asked = [step.issued_at for step in state.outstanding.values() if isinstance(step, kind)]
        yield Cause(
            code="store_unavailable",
            message=f"Turn {state.queue[0]} waits until the store has {until}; it goes on by itself then.",
            since=min(asked, default=None),
            turn_id=state.turn_id(state.queue[0]),
            session_id=state.id,
        )


def _closing_on_owned(state: SessionState) -> Iterator[Cause]:
    """Its own work is done, and a Session that it owns is still open (S-53)."""
    if state.status != "closing" or state.running is not None or state.queue:
        return
    for owned in state.owned.values():
        if not owned.independent:
            yield Cause(
                code="closing_on_owned",
                message=f"It closes as soon as Session {owned.session_id}, which it owns, is closed.",
                session_id=owned.session_id,
                clear=remedies.cancel(owned.session_id),
            )


def _queued_behind(state: SessionState) -> Iterator[Cause]:
    turn = state.running_turn
    if turn is None or not state.queue or state.held:
        return
    turn_id = state.turn_id(turn.sequence)
    many = "1 Turn waits" if len(state.queue) == 1 else f"{len(state.queue)} Turns wait"
    yield Cause(
        code="queued_behind",
        message=f"{many} in the queue behind Turn {turn.sequence}, which is running.",
        since=turn.started_at,
        turn_id=turn_id,
        session_id=state.id,
        clear=None if turn.stop is not None else remedies.interrupt_turn(state.id, turn_id),
    )


def _nothing_to_do(state: SessionState) -> Iterator[Cause]:
    if state.status == "open" and state.running is None and not state.queue:
        yield Cause(
            code="nothing_to_do",
            message="No Turn is queued.",
            since=state.idle_since,
            session_id=state.id,
            clear=remedies.enqueue(state.id),
        )
