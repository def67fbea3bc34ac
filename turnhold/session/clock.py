"""Time in a Session: what is due, and when to look again. The machine itself has no clock."""

from datetime import datetime, timedelta

from turnhold.session import (
    controls,
    limits,
    owner,
    ownership,
    people,
    processes,
    retention,
    sealing,
    steps,
    turns,
    waiting,
)
from turnhold.session.model import SessionState
from turnhold.session.transaction import Transaction


def is_idle(state: SessionState) -> bool:
    """No Turn runs and no queued Turn could run (S-60)."""
    return state.running is None and (not state.queue or state.held)


def _after(moment: datetime | None, seconds: float | None) -> datetime | None:
    return None if moment is None or seconds is None else moment + timedelta(seconds=seconds)


def _stop_due(state: SessionState) -> datetime | None:
    turn = state.running_turn
    return _after(turn.stop.accepted_at, state.config.stop_deadline) if turn and turn.stop else None


def _turn_due(state: SessionState) -> datetime | None:
    turn = state.running_turn
    return _after(turn.started_at, state.config.max_turn_duration) if turn and not turn.stop else None


def _asks_due(state: SessionState) -> dict[str, datetime]:
    return {a: ask.expires_at for a, ask in state.asks.items() if ask.status == "pending" and ask.expires_at}


def _close_due(state: SessionState) -> datetime | None:
    return _after(state.idle_since, state.config.close_after_idle) if state.status == "open" else None


def _hibernate_due(state: SessionState) -> datetime | None:
    live = state.process.status == "live"
    return _after(state.idle_since, state.config.hibernate_after_idle) if live else None


def _retry_due(state: SessionState) -> datetime | None:
    return state.process.retry_at if _may_start(state) else None


def _look_due(state: SessionState) -> datetime | None:
    """Also of a closed Session: it waits for the last word of those that it owns."""
    due = _after(state.owned_looked_at, limits.LOOK_FOR_OWNED_SECONDS)
    return due if ownership.unwatched(state) else None


def next_deadline(state: SessionState) -> datetime | None:
    """The first moment at which `tick` will have something to do."""
    if state.status == "closed":
        return _look_due(state)
    single = (
        _stop_due,
        _turn_due,
        _close_due,
        _hibernate_due,
        _retry_due,
        _look_due,
        owner.look_due,
        retention.due,
    )
    moments = [due for of in single if (due := of(state)) is not None]
    return min([*moments, *_asks_due(state).values()], default=None)


def tick(tx: Transaction) -> None:
    """Do what is due; a back-off that is over needs only `advance`."""
    state = tx.state

    def passed(due: datetime | None) -> bool:
        return due is not None and due <= tx.now

    if passed(_look_due(state)):
        ownership.look_for_owned(tx)
    if state.status == "closed":
        return
    if passed(owner.look_due(state)):
        owner.look(tx)
    for ask_id, due in _asks_due(state).items():
        if passed(due):
            people.cancel_ask(tx, ask_id, "timeout")
    if passed(_stop_due(state)):
        _stop_deadline_elapsed(tx)
    elif passed(_turn_due(state)):
        turns.stop(tx, "turn_deadline_elapsed")
    if passed(_close_due(state)):
        controls.begin_closing(tx, "idle")
    elif passed(_hibernate_due(state)):
        processes.stop(tx, "hibernated")


def _stop_deadline_elapsed(tx: Transaction) -> None:
    """The handler ignored its stop: the Turn ends, and its Process with it (S-59)."""
    turns.interrupt(tx, "interrupt")
    processes.abandon(tx, "stop_deadline_elapsed")
    tx.drop(steps.StopTurn)
    processes.fail(tx, "stop_deadline_elapsed", "The Turn did not stop within the stop deadline.")


def advance(tx: Transaction) -> None:
    """What follows of itself: the next Turn, its Process, the end, the idle clock."""
    state = tx.state
    if state.moving_to is None:
        _start_next(tx)
    elif state.process.status == "live":
        processes.stop(tx, "moved")
    controls.close_if_settled(tx)
    if state.status == "closed" or not is_idle(state):
        state.idle_since = None
    elif state.idle_since is None:
        state.idle_since = tx.now
    waiting.advance(tx)
    sealing.advance(tx)


def _may_start(state: SessionState) -> bool:
    """A queued Turn could run; of its Process nothing is said."""
    open_ = state.status != "closed" and state.moving_to is None
    could = open_ and state.running is None and bool(state.queue) and not state.held
    return could and sealing.has_room(state) and waiting.is_at_hand(state)


def _start_next(tx: Transaction) -> None:
    state, process = tx.state, tx.state.process
    if not _may_start(state):
        return
    if process.status == "live":
        turns.dispatch(tx)
    elif process.status == "none" and (process.retry_at is None or process.retry_at <= tx.now):
        processes.start(tx)
