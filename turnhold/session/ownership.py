"""Owned Sessions, as their owner sees them: spawned by a running Turn, told what holds (S-70 to S-75).

An owner passes down its whole state as versioned snapshots, never single controls: the newest
one wins, so that order, doubling and races at creation do not matter. `inheritance` is the owned
side.
"""

from collections.abc import Iterator
from typing import Literal

from turnhold.session import commands, events, ids, limits, peers, receipts, steps, turns
from turnhold.session.creation import NewSession
from turnhold.session.errors import Refused, Rejection
from turnhold.session.model import Hold, Owned, SessionState
from turnhold.session.transaction import Effect, Transaction
from turnhold.session.values import Origin, encoded_bytes

_FINGERPRINT_CHARS = 12  # of a body under its spawn key: it tells mistakes, and is kept for life

# --- spawning (S-70, S-71) --------------------------------------------------------------------------


def spawn(tx: Transaction, command: commands.Spawn) -> Effect:
    """Start a Session for the running Turn, once for each spawn key.

    Accepted once the Session is there, which a step sees to.
    """
    state = tx.state
    if not command.idempotency_key:
        raise Refused("invalid_request", "A spawn needs a key.")
    key = ids.digest("spawn", command.idempotency_key, length=16)
    new = _tied(state, command)
    session_id = spawned_id(state, new, key)
    known = state.spawned.get(key)
    if known is not None:
        return _again(tx, command, key, known)
    turn = _spawning_turn(state, command)
    if not command.independent:
        if state.depth >= limits.MAX_DEPTH:
            raise Refused("depth_limit", f"A Session at depth {limits.MAX_DEPTH} owns no others.")
        if open_owned(state) >= limits.OPEN_OWNED:
            raise Refused("owned_limit", f"{limits.OPEN_OWNED} owned Sessions are open.")
    _refuse_without_room(state, new)
    state.spawned[key] = _remembered(command, session_id if new.key is not None else None)
    state.owned[key] = Owned(
        session_id=session_id,
        agent=new.agent,
        independent=command.independent,
        turn=turn,
        requests=(command.request_id,) if command.request_id else (),
    )
    tx.issue(steps.StartOwned, session_id=session_id, key=key, session=new, independent=command.independent)
    return Effect(deferred=True)


def _spawning_turn(state: SessionState, command: commands.Spawn) -> int:
    """The Turn that may start Sessions: the one that runs, and is not being stopped (S-71)."""
    turns.refuse_unless_open(state)
    turn = state.running_turn
    current = turn is not None and state.turn_id(turn.sequence) == command.turn_id
    if turn is None or not current or state.process.epoch != command.epoch:
        raise Refused("turn_not_running", "Only a running Turn starts Sessions.")
    if turn.stop is not None:
        raise Refused("turn_stopping", "This Turn is being stopped.")
    return turn.sequence


def _tied(state: SessionState, command: commands.Spawn) -> NewSession:
    """The new Session as this one's: only this Session knows what ties them."""
    return command.session.but(
        environment=state.environment,
        caller=Origin(kind="session", id=state.id),
        owner_id=None if command.independent else state.id,
        root_id=None if command.independent else state.root_id,
        depth=1 if command.independent else state.depth + 1,
    )


def spawned_id(state: SessionState, new: NewSession, key: str) -> str:
    """The ID of a spawned Session: of its own Session key (S-2), else of the spawner and the spawn key."""
    if new.key is not None:
        return ids.session_id(state.environment, "key", new.agent, new.key)
    return ids.session_id(state.environment, "spawn", state.id, key)


def _remembered(command: commands.Spawn, session_id: str | None) -> str:
    """What is kept of a spawn for life: the body's digest and, where no rule makes it, the Session ID."""
    body = ids.digest("body", command.fingerprint or "", length=_FINGERPRINT_CHARS)
    return body if session_id is None else f"{body} {session_id}"


def _again(tx: Transaction, command: commands.Spawn, key: str, known: str) -> Effect:
    """The same spawn key: the same Session, whatever has happened since (S-3, S-70)."""
    state = tx.state
    body, _, session_id = known.partition(" ")
    if body != _remembered(command, None):
        raise Refused("idempotency_conflict", "This spawn key was used for another Session.")
    owned = state.owned.get(key)
    if owned is not None and owned.status == "starting":
        if command.request_id:
            state.owned[key] = owned.but(requests=(*owned.requests, command.request_id))
        return Effect(deferred=True)
    return Effect(spawned=session_id or ids.session_id(state.environment, "spawn", state.id, key))


def _refuse_without_room(state: SessionState, new: NewSession) -> None:
    if len(state.spawned) >= limits.SPAWNS:
        raise Refused("session_busy", f"A Session starts at most {limits.SPAWNS} others in its life.")
    starting = sum(
        encoded_bytes(step.session.input)
        for step in state.outstanding.values()
        if isinstance(step, steps.StartOwned)
    )
    if starting and starting + encoded_bytes(new.input) > limits.STARTING_BYTES:
        raise Refused("session_busy", "The inputs of Sessions that are starting are as large as they may be.")


def pending(state: SessionState, request_id: str) -> bool:
    """Whether this request waits for the start of a Session."""
    return any(request_id in owned.requests for owned in state.owned.values())


def start_ended(tx: Transaction, step: steps.StartOwned, start: peers.OwnedStart) -> None:
    """The Session is there, or its Session key is taken by another (S-2)."""
    owned = tx.state.owned.get(step.key)
    if start.how == "taken":
        if owned is not None and owned.status == "starting":
            _taken(tx, step, owned)
        return
    _confirm(tx, step.key)
    owned = tx.state.owned.get(step.key)
    if owned is None:
        return
    if start.version is not None:  # what it was started with is the first thing that it applies
        owned = owned.but(watched=True, version=max(owned.version, start.version))
        tx.state.owned[step.key] = owned
        _forget_released(tx.state)
    if owned.version < tx.state.owner_version:
        _send_state(tx, owned.session_id)


def _taken(tx: Transaction, step: steps.StartOwned, owned: Owned) -> None:
    """Nothing has happened: the spawn key may be used again (S-3)."""
    del tx.state.owned[step.key]
    del tx.state.spawned[step.key]
    taken = Rejection(
        code="session_key_conflict",
        detail=f"The key is taken by Session {owned.session_id}.",
        session_id=owned.session_id,
    )
    for request_id in owned.requests:
        receipts.record_outcome(tx.state, request_id, tx.now, rejection=taken)


def _confirm(tx: Transaction, key: str) -> None:
    """The Session has been started: it says so itself, or its start does, whichever comes first."""
    state = tx.state
    owned = state.owned.get(key)
    if owned is None or owned.status != "starting":
        return
    if owned.independent:
        del state.owned[key]
    else:
        if open_owned(state, started=True) == 0:
            state.owned_looked_at = tx.now
        state.owned[key] = owned.but(status="open", requests=())
        if state.status != "closed":
            tx.write(events.OwnedStarted(session_id=owned.session_id, agent=owned.agent))
    for request_id in owned.requests:
        receipts.record_spawn(tx, request_id, owned.turn, owned.session_id)


# --- what owned Sessions say, or are seen to be -----------------------------------------------------


def owned_reported(tx: Transaction, report: commands.OwnedReport) -> None:
    """An owned Session says that it has closed, and how."""
    key = _key_of(tx.state, report.session_id)
    if key is not None:
        _confirm(tx, key)
        _closed(tx, key, report.closed_how)


def reached(tx: Transaction, step: steps.SendOwnerState, told: peers.Told) -> None:
    """A snapshot is in the owned Session's history: it will be applied there. Or there is none any more."""
    if not told.reached:
        gone(tx, (step.session_id,))
        return
    key = _key_of(tx.state, step.session_id)
    if key is not None and told.version is not None:
        owned = tx.state.owned[key]
        tx.state.owned[key] = owned.but(version=max(owned.version, told.version))
        _forget_released(tx.state)


def gone(tx: Transaction, session_ids: tuple[str, ...]) -> None:
    """These ended without saying so: an operator's hand (S-75)."""
    for session_id in session_ids:
        key = _key_of(tx.state, session_id)
        if key is not None and tx.state.owned[key].status == "open":
            _closed(tx, key, "terminated")


def _closed(tx: Transaction, key: str, how: str) -> None:
    owned = tx.state.owned.pop(key)
    _forget_released(tx.state)
    for step in _sends(tx.state, owned.session_id):
        tx.finish(step.id)
    if tx.state.status != "closed":
        tx.write(events.OwnedClosed(session_id=owned.session_id, how=how))


def _key_of(state: SessionState, session_id: str) -> str | None:
    return next((k for k, o in state.owned.items() if o.session_id == session_id and not o.independent), None)


def open_owned(state: SessionState, *, started: bool = False) -> int:
    """How many owned Sessions are not closed; with `started`, of those that are there."""
    return sum(
        not owned.independent and (owned.status == "open" or not started) for owned in state.owned.values()
    )


def unwatched(state: SessionState) -> tuple[str, ...]:
    """Open owned Sessions of whose end Temporal would not tell this run."""
    return tuple(o.session_id for o in state.owned.values() if o.status == "open" and not o.watched)


def unwatch(state: SessionState) -> None:
    """Another run takes over, and knows of ends only what it looks for."""
    for key, owned in state.owned.items():
        state.owned[key] = owned.but(watched=False)


def look_for_owned(tx: Transaction) -> None:
    """See whether those that this run does not watch are still there."""
    tx.state.owned_looked_at = tx.now
    if not any(isinstance(step, steps.LookForOwned) for step in tx.state.outstanding.values()):
        tx.issue(steps.LookForOwned)


def doubt(tx: Transaction, session_id: str) -> None:
    """Temporal says that this run of an owned Session has ended: it may not have said so itself."""
    key = _key_of(tx.state, session_id)
    if key is not None:
        tx.state.owned[key] = tx.state.owned[key].but(watched=False)
        look_for_owned(tx)


def settled(state: SessionState) -> bool:
    """Every start is resolved, and every owned Session has the last word."""
    return all(o.status == "open" and o.version >= state.owner_version for o in state.owned.values())


# --- the snapshot -----------------------------------------------------------------------------------


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
            "holds": [_passed(hold) for hold in state.holds.values() if hold.kind == "interrupt"],
            "released": [_passed(hold) for hold in state.released.values()],
            "mode": mode,
            "how": state.closed_how or state.closing_how,
        }
    )


def _passed(hold: Hold) -> commands.InheritedHold:
    return commands.InheritedHold(
        id=hold.id, session_id=hold.session_id, placed_by=hold.placed_by, version=hold.version
    )


def remember_released(state: SessionState, hold: Hold) -> None:
    """A hold that some owned Session has not seen yet stops its Turn nevertheless (S-51)."""
    state.released[hold.id] = hold
    _forget_released(state)


def _forget_released(state: SessionState) -> None:
    """Only what somebody has not seen, and the newest of it: there is no end to what may be placed."""
    seen = [owned.version for owned in state.owned.values() if not owned.independent]
    unseen = [hold for hold in state.released.values() if seen and hold.version > min(seen)]
    state.released = {hold.id: hold for hold in unseen[-limits.HOLDS :]}


def pass_down(tx: Transaction) -> None:
    """Tell every open owned Session what this one has become."""
    tx.state.owner_version += 1
    for owned in tx.state.owned.values():
        if owned.status == "open":
            _send_state(tx, owned.session_id)


def _send_state(tx: Transaction, session_id: str) -> None:
    for step in _sends(tx.state, session_id):
        tx.finish(step.id)
    tx.issue(steps.SendOwnerState, session_id=session_id)


def _sends(state: SessionState, session_id: str) -> list[steps.SendOwnerState]:
    return [s for s in _outstanding_sends(state) if s.session_id == session_id]


def _outstanding_sends(state: SessionState) -> Iterator[steps.SendOwnerState]:
    return (s for s in state.outstanding.values() if isinstance(s, steps.SendOwnerState))
