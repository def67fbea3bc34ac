"""Deployments: a Session stays on the one it began on, until an operator moves it (S-4).

A move waits for nothing and interrupts nothing: it is accepted by an idle Session alone, which
gives up its Process and then leaves its run for one on the current version.
"""

from turnhold.session import clock, commands, events, turns
from turnhold.session.errors import Refused
from turnhold.session.model import SessionState
from turnhold.session.transaction import Effect, Transaction


def move(tx: Transaction, command: commands.Move) -> Effect:
    """Leave for `command.to`, while idle; where the Session is already, nothing changes.

    Raises:
        Refused: `session_closed`, `session_not_idle`.
    """
    state = tx.state
    turns.refuse_if_closed(state)
    if command.to == state.deployment:
        return Effect()
    if state.moving_to is None and not clock.is_idle(state):
        raise Refused("session_not_idle", "A Turn runs or waits to; a Session is moved while it is idle.")
    state.moving_to = command.to
    return Effect()


def leaving(state: SessionState) -> bool:
    """Nothing holds the Session in this run any more. Once true, it stays so until the run ends."""
    return state.moving_to is not None and state.process.status == "none"


def runs_on(tx: Transaction, deployment: str) -> None:
    """A worker of this deployment runs the Session now; another than before is on record."""
    before = tx.state.deployment
    tx.state.deployment = deployment
    if before is not None and before != deployment and tx.state.status != "closed":
        tx.write(events.SessionMoved(from_=before, to=deployment))
