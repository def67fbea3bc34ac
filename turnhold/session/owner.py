"""The owner, as an owned Session sees it: its authority, what it is told, and its loss (S-73, S-75)."""

from datetime import datetime, timedelta

from turnhold.session import commands, events, limits, ownership, peers, steps
from turnhold.session.errors import Refused
from turnhold.session.model import Hold, SessionState
from turnhold.session.transaction import Transaction
from turnhold.session.values import Origin

# --- authority ------------------------------------------------------------------------------------


def authorize(state: SessionState, caller: Origin) -> None:
    """A Session controls only those that it owns.

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


# --- what passes between them ---------------------------------------------------------------------


def tell(tx: Transaction) -> None:
    """This Session has closed."""
    owner = tx.state.owner
    if owner is not None and not owner.gone:
        tx.issue(steps.TellOwner, session_id=owner.session_id)


def release(tx: Transaction, hold_id: str, released_by: Origin) -> None:
    """One hold less; after `process_failed` the count of failures starts at zero (S-23)."""
    hold = tx.state.holds.pop(hold_id)
    tx.write(events.SessionResumed(hold_id=hold_id, released_by=released_by))
    if hold.kind == "process_failed":
        tx.change_process(failures=0, retry_at=None)
    else:
        ownership.remember_released(tx.state, hold)


# --- whether it is still there --------------------------------------------------------------------


def look_due(state: SessionState) -> datetime | None:
    """When to look for the owner that holds this Session: the longer it does, the more seldom."""
    placed = min((hold.created_at for hold in state.holds.values() if hold.inherited), default=None)
    if placed is None or state.owner is None:
        return None
    looked = max(state.owner.looked_at or placed, placed)
    shortest, longest = limits.LOOK_FOR_OWNER_SECONDS
    age = (looked - placed).total_seconds()
    return looked + timedelta(seconds=min(max(age // 4, shortest), longest))


def look(tx: Transaction, resume: commands.Resume | None = None) -> None:
    """See whether the owner is still there; `resume`, of a hold that it has placed, waits for that."""
    owner = tx.state.owner
    assert owner is not None, "only an owner holds from above"
    tx.state.owner = owner.but(looked_at=tx.now)
    waiting = None if resume is None else resume.model_dump(mode="json", exclude_none=True)
    tx.issue(steps.LookForOwner, session_id=owner.session_id, resume=waiting)


def looked(tx: Transaction, step: steps.LookForOwner, seen: peers.Looked) -> None:
    if step.session_id in seen.ended:
        gone(tx)


def pending(state: SessionState, request_id: str) -> bool:
    """Whether this command waits for a look at the owner."""
    looks = (s.resume for s in state.outstanding.values() if isinstance(s, steps.LookForOwner))
    return any(resume is not None and resume.get("request_id") == request_id for resume in looks)


def gone(tx: Transaction) -> None:
    """It ended without saying so: its holds are this Session's own from now on."""
    state = tx.state
    if state.owner is None or state.owner.gone:
        return
    state.owner = state.owner.but(gone=True)
    above = [hold for hold in state.holds.values() if hold.inherited]
    for hold in above:
        state.holds[hold.id] = hold.but(inherited=False, session_id=state.id)
    if above:
        ownership.pass_down(tx)
