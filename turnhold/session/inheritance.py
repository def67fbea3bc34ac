"""What an owned Session takes from its owner: holds, and the way it ends (S-71, S-75)."""

from turnhold.session import commands, controls, events, owner, ownership, turns
from turnhold.session.model import Hold
from turnhold.session.transaction import Transaction
from turnhold.session.values import Origin


def begin(tx: Transaction, said: commands.OwnerState) -> None:
    """Apply the snapshot that this Session was started with."""
    mine = tx.state.owner
    if mine is not None and mine.session_id == said.owner_id:
        tx.state.owner = mine.but(version=said.version)
        _apply(tx, said, said.version)


def inherit(tx: Transaction, said: commands.OwnerState) -> None:
    """Apply the owner's snapshot, unless a newer one is applied already."""
    state, mine = tx.state, tx.state.owner
    if mine is None or mine.session_id != said.owner_id or mine.gone:
        return
    if said.version > mine.version and state.status != "closed":
        state.owner = mine.but(version=said.version)
        _apply(tx, said, mine.version)


def _apply(tx: Transaction, said: commands.OwnerState, seen: int) -> None:
    """`seen` is the version up to which this Session knows everything."""
    state = tx.state
    for hold in said.released:
        if hold.version > seen and hold.id not in state.holds:
            _inherit_hold(tx, hold)
    above = {hold.id: hold for hold in said.holds}
    for hold_id in [h.id for h in state.holds.values() if h.inherited and h.id not in above]:
        owner.release(tx, hold_id, Origin(kind="session", id=said.owner_id))
    for hold in above.values():
        known = state.holds.get(hold.id)
        if known is None:
            _inherit_hold(tx, hold)
        else:
            state.holds[hold.id] = known.but(session_id=hold.session_id)
    if said.mode == "cancel":
        controls.cancel_at_once(tx, said.how or "cancel", by_owner=True)
    elif said.mode == "close" and state.status == "open":
        controls.begin_closing(tx, said.how or "close")
    else:
        ownership.pass_down(tx)


def _inherit_hold(tx: Transaction, hold: commands.InheritedHold) -> None:
    tx.state.holds[hold.id] = Hold(
        id=hold.id,
        kind="interrupt",
        session_id=hold.session_id,
        placed_by=hold.placed_by,
        created_at=tx.now,
        inherited=True,
        version=tx.state.owner_version + 1,
    )
    tx.write(events.SessionInterrupted(hold_id=hold.id, placed_by=hold.placed_by, session_id=hold.session_id))
    turns.stop(tx, "session_interrupt")
    if tx.state.status == "closing":
        turns.cancel_queued(tx, "hold_blocked")
