"""Receipts: every command answered once, exact retries answered alike, keys never forgotten early."""

from datetime import datetime, timedelta

from turnhold.session import ids, limits
from turnhold.session.commands import Command
from turnhold.session.errors import Refused, Rejection
from turnhold.session.model import Outcome, Receipt, SessionState
from turnhold.session.transaction import Effect, Transaction

MAY_WAIT = frozenset({"enqueue", "send", "spawn"})  # refused when busy; a control never is (S-95)


def key_of(command: Command) -> str | None:
    """What an idempotency key is bound to: caller, operation, target and the key itself (S-3)."""
    if command.idempotency_key is None:
        return None
    caller = f"{command.caller.kind}:{command.caller.id or ''}"
    return ids.digest(caller, command.operation, command.target, command.idempotency_key, length=16)


def first_request(state: SessionState, command: Command) -> str | None:
    """The request of the accepted command of which this one is an exact retry (S-3).

    Raises:
        Refused: `idempotency_conflict`, the same key with another body.
    """
    key = key_of(command)
    request_id = None if key is None else state.keys.get(key)
    receipt = None if request_id is None else state.receipts.get(request_id)
    if receipt is None:
        return None
    if receipt.fingerprint != command.fingerprint:
        raise Refused(
            "idempotency_conflict",
            "This idempotency key was used for another body; use a fresh key for another command.",
        )
    return request_id


def admit(state: SessionState, command: Command, now: datetime) -> None:
    """Make room for one more receipt.

    Raises:
        Refused: `session_busy`, where only a receipt that may not be forgotten yet could go.
    """
    forget(state, now)
    if len(state.receipts) >= limits.RECEIPTS_MAX and command.operation in MAY_WAIT:
        raise Refused(
            "session_busy",
            "This Session remembers as many recent commands as it can hold; try again later.",
        )


def record(tx: Transaction, command: Command, request_id: str, effect: Effect, sequence: int) -> None:
    """Bind an accepted command to its receipt, and its key to both."""
    key = key_of(command)
    tx.state.receipts[request_id] = Receipt(
        request_id=request_id,
        operation=command.operation,
        at=tx.now,
        event_sequence=sequence,
        session_status=tx.state.status,
        turn=effect.turn,
        message=effect.message,
        hold_id=effect.hold_id,
        ask_id=effect.ask_id,
        spawned=effect.spawned,
        key=key,
        fingerprint=None if key is None else command.fingerprint,
    )
    if key is not None:
        tx.state.keys[key] = request_id


def record_outcome(
    state: SessionState,
    request_id: str,
    now: datetime,
    *,
    rejection: Rejection | None = None,
    replay_of: str | None = None,
) -> None:
    """Remember what else became of a request: rejected, or the retry of an accepted one."""
    state.outcomes[request_id] = Outcome(at=now, rejection=rejection, replay_of=replay_of)


def forget(state: SessionState, now: datetime) -> None:
    """Drop what need not be remembered any longer (both containers are in order of time).

    An accepted command stays a day and among the last 2,000; one without a key may go after a
    quarter of an hour when room is needed.
    """
    quarter = now - timedelta(seconds=limits.OUTCOME_SECONDS)
    while state.outcomes and state.outcomes[oldest := next(iter(state.outcomes))].at < quarter:
        del state.outcomes[oldest]

    surplus = len(state.receipts) - limits.RECEIPTS_KEPT
    day = now - timedelta(seconds=limits.RECEIPT_SECONDS)
    for receipt in list(state.receipts.values())[: max(surplus, 0)]:
        if receipt.at >= day:
            break
        _forget(state, receipt)

    excess = len(state.receipts) - limits.RECEIPTS_MAX + 1
    for receipt in list(state.receipts.values()) if excess > 0 else ():
        if receipt.at >= quarter or excess <= 0:
            break
        if receipt.key is None:
            _forget(state, receipt)
            excess -= 1


def _forget(state: SessionState, receipt: Receipt) -> None:
    del state.receipts[receipt.request_id]
    if receipt.key is not None and state.keys.get(receipt.key) == receipt.request_id:
        del state.keys[receipt.key]
