"""Controls: interrupt, resume, close, cancel. The first accepted one decides (S-50 to S-57)."""

from turnhold.session import commands, events, ids, limits, owner, ownership, people, processes, steps, turns
from turnhold.session.errors import Refused, Rejection
from turnhold.session.model import ClosedHow, SessionState
from turnhold.session.transaction import Effect, Transaction


def interrupt(tx: Transaction, command: commands.Interrupt) -> Effect:
    owner.authorize(tx.state, command.caller)
    if command.turn_id is not None:
        return _interrupt_turn(tx, command.turn_id)
    return _interrupt_session(tx, command)


def _interrupt_turn(tx: Transaction, turn_id: str) -> Effect:
    """Stop exactly that Turn, while it runs; nothing is held (S-50)."""
    state = tx.state
    sequence = turns.find(state, turn_id)
    turns.refuse_if_closed(state)
    if turns.running_as(state, sequence) is None:
        raise turns.not_running(state, sequence)
    turns.stop(tx, "interrupt")
    return Effect(turn=sequence)


def _interrupt_session(tx: Transaction, command: commands.Interrupt) -> Effect:
    """Hold this Session and those it owns; their running Turns stop (S-51)."""
    state = tx.state
    turns.refuse_unless_open(state)
    if len(state.holds) >= limits.HOLDS:
        raise Refused("hold_limit", f"{limits.HOLDS} holds are placed; release some first.")
    hold_id = processes.place_hold(tx, "interrupt", command.caller)
    tx.write(events.SessionInterrupted(hold_id=hold_id, placed_by=command.caller))
    running = state.running
    turns.stop(tx, "session_interrupt")
    ownership.pass_down(tx)
    return Effect(turn=running, hold_id=hold_id)


def resume(tx: Transaction, command: commands.Resume) -> Effect:
    """Release exactly one hold (S-52).

    One that an owner has placed is released there, as long as that is still there: a look tells.
    """
    state = tx.state
    if command.caller.id != state.id:
        owner.authorize(state, command.caller)
    hold = state.holds.get(command.hold_id)
    if hold is None:
        if (ids.number_of("hld", state.seed, command.hold_id) or 0) in range(1, state.holds_placed + 1):
            turns.refuse_if_closed(state)  # an unknown hold is no such hold even then (S-55)
        raise Refused("hold_not_found", "This Session has no such hold, or it is released already.")
    if hold.inherited:
        owner.look(tx, command)
        return Effect(deferred=True)
    owner.authorize_release(state, command.caller, hold)
    owner.release(tx, hold.id, command.caller)
    ownership.pass_down(tx)
    return Effect(hold_id=hold.id)


def owned_by_ancestor(state: SessionState, hold_id: str) -> Rejection | None:
    """Why a `resume` that has waited for a look at the owner is rejected; None if it may be judged."""
    hold = state.holds.get(hold_id)
    if hold is None or not hold.inherited:
        return None
    detail = f"This hold was placed at Session {hold.session_id}; release it there."
    return Rejection(code="hold_owned_by_ancestor", detail=detail)


def close(tx: Transaction, command: commands.Close) -> Effect:
    """Take no more Turns; what a hold blocks and what asks a person is cancelled at once (S-53)."""
    state = tx.state
    owner.authorize(state, command.caller)
    if state.status == "open":
        tx.write(events.SessionClosing(requested_by=command.caller))
        begin_closing(tx, "close")
    return Effect()


def begin_closing(tx: Transaction, how: ClosedHow) -> None:
    """From here on the Session only finishes what it has; `close_if_settled` ends it."""
    state = tx.state
    state.status = "closing"
    state.closing_how = how
    people.cancel_asks(tx, "close")
    if state.held:
        turns.cancel_queued(tx, "hold_blocked")
    ownership.pass_down(tx)


def close_if_settled(tx: Transaction) -> None:
    """A closing Session closes when its work has settled and those it owns are closed."""
    state = tx.state
    if state.status != "closing" or state.running is not None or state.queue:
        return
    if ownership.open_owned(state) == 0:
        _closed(tx, state.closing_how or "close")


def cancel(tx: Transaction, command: commands.Cancel) -> Effect:
    owner.authorize(tx.state, command.caller)
    cancel_at_once(tx, "cancel")
    return Effect()


def cancel_at_once(tx: Transaction, how: ClosedHow, *, by_owner: bool = False) -> None:
    """Closed now, throughout the owned tree; physical stopping may end later (S-54).

    An owner that has cancelled is closed, and records no more what becomes of those it owned (S-75).
    """
    if tx.state.status == "closed":
        return
    turns.cancel_running(tx)
    turns.cancel_queued(tx, "cancel")
    _closed(tx, how, tell_owner=not by_owner)


def _closed(tx: Transaction, how: ClosedHow, *, tell_owner: bool = True) -> None:
    """The end: no holds, no Process, `session.closed` as the last event (S-80)."""
    state = tx.state
    processes.abandon(tx, "closed")
    tx.drop(steps.StartProcess)
    tx.change_process(status="none", queue=None, retry_at=None, stop_reason=None)
    state.holds.clear()
    state.idle_since = None
    state.status = "closed"
    state.closed_how = how
    state.closed_at = tx.now
    state.last_activity_at = tx.now
    tx.write(events.SessionClosed(how=how))
    ownership.pass_down(tx)
    if tell_owner:
        owner.tell(tx)
