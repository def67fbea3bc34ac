"""What an owned Session takes from its owner: holds, and the way it ends (S-71, S-75)."""

from turnhold.session import commands, controls, events, ownership, turns
from turnhold.session.model import Hold
from turnhold.session.transaction import Transaction
from turnhold.session.values import Origin


def inherit(tx: Transaction, said: commands.OwnerState) -> None:
    """Apply the owner's snapshot, unless a newer one is applied already."""
    state = tx.state
    owner = state.owner
    if owner is None or owner.session_id != said.owner_id:
        return
    if said.gone:
        state.owner = owner.but(gone=True)
        return
    if said.version > owner.version:
        state.owner = owner.but(version=said.version)
        if state.status != "closed":
            _apply(tx, said)
    ownership.tell_owner(tx)


def _apply(tx: Transaction, said: commands.OwnerState) -> None:
    state = tx.state
    inherited = [hold.id for hold in state.holds.values() if hold.inherited]
    above = {hold.id: hold for hold in said.holds}
    for hold_id in [h for h in inherited if h not in above]:
        ownership.release(tx, hold_id, Origin(kind="session", id=said.owner_id))
    for hold in above.values():
        if hold.id not in inherited:
            _inherit_hold(tx, hold)
    if said.mode == "cancel":
        controls.cancel_at_once(tx, said.how or "cancel")
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
    )
    tx.write(events.SessionInterrupted(hold_id=hold.id, placed_by=hold.placed_by, session_id=hold.session_id))
    turns.stop(tx, "session_interrupt")
    if tx.state.status == "closing":
        turns.cancel_queued(tx, "hold_blocked")
