"""Owned Sessions: spawned by a running Turn, holding and closing with their owner (S-70 to S-75).

An owner passes down its whole state as versioned snapshots, never single controls: the newest
one wins, so that order, doubling and races at creation do not matter.
"""

from typing import Literal

from turnhold.session import commands, events, ids, limits, steps, turns
from turnhold.session.errors import Refused
from turnhold.session.model import Hold, Owned, SessionState
from turnhold.session.transaction import Effect, Transaction
from turnhold.session.values import Origin

# --- authority (S-73) -----------------------------------------------------------------------------


def authorize(state: SessionState, caller: Origin) -> None:
    """A Session controls only those that it spawned.

    Raises:
        Refused: `permission_denied`.
    """
    if caller.kind == "session" and not _is_owner(state, caller):
        raise Refused("permission_denied", "A Session controls only Sessions that it spawned.")


def authorize_release(state: SessionState, caller: Origin, hold: Hold) -> None:
    """A Session never releases a hold on itself, and of interrupts only those it placed."""
    if caller.kind != "session":
        return
    if caller.id == state.id:
        raise Refused("hold_not_releasable", "A Session does not release a hold on itself.")
    authorize(state, caller)
    if hold.kind == "interrupt" and hold.placed_by != caller:
        raise Refused("permission_denied", "A Session releases only interrupts that it placed.")


def _is_owner(state: SessionState, caller: Origin) -> bool:
    return state.owner is not None and state.owner.session_id == caller.id


# --- spawning (S-70, S-71) --------------------------------------------------------------------------


def spawn(tx: Transaction, command: commands.Spawn) -> Effect:
    """Start a Session for the running Turn, once for each spawn key."""
    state = tx.state
    turns.refuse_unless_open(state)
    turn = state.running_turn
    current = turn is not None and state.turn_id(turn.sequence) == command.turn_id
    if turn is None or not current or state.process.epoch != command.epoch:
        raise Refused("turn_not_running", "Only a running Turn starts Sessions.")
    if turn.stop is not None:
        raise Refused("turn_stopping", "This Turn is being stopped.")
    key = ids.digest("spawn", command.idempotency_key or "", length=16)
    known = state.owned.get(key)
    if known is not None:
        if known.fingerprint != (command.fingerprint or ""):
            raise Refused("idempotency_conflict", "This spawn key was used for another Session.")
        return Effect(turn=turn.sequence, spawned=known.session_id)
    if not command.independent:
        if state.depth >= limits.MAX_DEPTH:
            raise Refused("depth_limit", f"A Session at depth {limits.MAX_DEPTH} owns no others.")
        if open_owned(state) >= limits.OPEN_OWNED:
            raise Refused("owned_limit", f"{limits.OPEN_OWNED} owned Sessions are open.")
    state.owned[key] = Owned(
        session_id=command.session_id,
        agent=command.session.agent,
        independent=command.independent,
        key=key,
        fingerprint=command.fingerprint or "",
    )
    tx.issue(steps.StartOwned, session_id=command.session_id, key=key, session=command.session)
    return Effect(turn=turn.sequence, spawned=command.session_id)


def owned_started(tx: Transaction, step: steps.StartOwned) -> None:
    """The start is confirmed; what changed while it was under way is passed down now."""
    owned = tx.state.owned[step.key]
    if owned.status != "starting":
        return
    tx.state.owned[step.key] = owned.but(status="open")
    if owned.independent:
        return
    if tx.state.status != "closed":
        tx.write(events.OwnedStarted(session_id=owned.session_id, agent=owned.agent))
    _send_state(tx, owned.session_id)


def owned_reported(tx: Transaction, report: commands.OwnedReport) -> None:
    """An owned Session says which snapshot it has applied and, at its end, how it closed."""
    state = tx.state
    for key, owned in state.owned.items():
        if owned.session_id != report.session_id:
            continue
        owned = owned.but(acknowledged=max(owned.acknowledged, report.version))
        if report.closed_how is not None and owned.status != "closed":
            owned = owned.but(status="closed")
            if state.status != "closed":
                tx.write(events.OwnedClosed(session_id=owned.session_id, how=report.closed_how))
        state.owned[key] = owned


def open_owned(state: SessionState) -> int:
    return sum(o.status != "closed" and not o.independent for o in state.owned.values())


# --- the owner's side of the snapshot ---------------------------------------------------------------


def snapshot(state: SessionState) -> commands.OwnerState:
    """What those that this Session owns inherit from it now."""
    mode: Literal["open", "close", "cancel"] = "open"
    if state.status == "closing":
        mode = "close"
    elif state.status == "closed":
        mode = "close" if state.closing_how == state.closed_how else "cancel"
    return commands.OwnerState.model_validate(
        {
            "owner_id": state.id,
            "version": state.owner_version,
            "holds": [
                commands.InheritedHold(id=h.id, session_id=h.session_id, placed_by=h.placed_by)
                for h in state.holds.values()
                if h.kind == "interrupt"
            ],
            "mode": mode,
            "how": state.closed_how or state.closing_how,
        }
    )


def pass_down(tx: Transaction) -> None:
    """Tell every open owned Session what this one has become."""
    tx.state.owner_version += 1
    for owned in tx.state.owned.values():
        if owned.status == "open" and not owned.independent:
            _send_state(tx, owned.session_id)


def _send_state(tx: Transaction, session_id: str) -> None:
    for step in tx.state.outstanding.values():
        if isinstance(step, steps.SendOwnerState) and step.session_id == session_id:
            tx.finish(step.id)
            break
    tx.issue(steps.SendOwnerState, session_id=session_id, version=tx.state.owner_version)


# --- the owned side ---------------------------------------------------------------------------------


def release(tx: Transaction, hold_id: str, released_by: Origin) -> None:
    """One hold less; after `process_failed` the count of failures starts at zero (S-23)."""
    hold = tx.state.holds.pop(hold_id)
    tx.write(events.SessionResumed(hold_id=hold_id, released_by=released_by))
    if hold.kind == "process_failed":
        tx.change_process(failures=0, retry_at=None)


def tell_owner(tx: Transaction) -> None:
    """Acknowledge the newest snapshot, and say so when this Session has closed."""
    state = tx.state
    if state.owner is None or state.owner.gone:
        return
    tx.issue(
        steps.TellOwner,
        session_id=state.owner.session_id,
        version=state.owner.version,
        closed_how=state.closed_how,
    )
