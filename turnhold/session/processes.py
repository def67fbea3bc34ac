"""Processes: started for a waiting Turn, counted when they fail, given up when they are gone."""

from datetime import timedelta

from turnhold.session import events, hosting, ids, limits, steps, turns
from turnhold.session.model import Hold, HoldKind, SessionState
from turnhold.session.transaction import Transaction
from turnhold.session.values import Origin

SYSTEM = Origin(kind="system")


def start(tx: Transaction) -> None:
    process = tx.change_process(
        epoch=tx.state.process.epoch + 1,
        status="starting",
        queue=None,
        next_fact=1,
        turns=0,
        since=tx.now,
        retry_at=None,
    )
    tx.issue(steps.StartProcess, epoch=process.epoch)


def recovery(state: SessionState) -> hosting.Recovery:
    """Why the Process that is starting is made (S-20)."""
    reason = state.process.recovery_reason
    return hosting.Recovery(kind="reconstructed" if reason else "initial", reason=reason)


def started(tx: Transaction, step: steps.StartProcess, result: hosting.StartProcessResult) -> None:
    process = tx.state.process
    if process.epoch != step.epoch or process.status != "starting":
        _throw_away(tx, step.epoch, result.queue, "superseded")
        return
    tx.change_process(status="live", queue=result.queue, since=tx.now)
    tx.write(
        events.ProcessStarted(
            process_epoch=step.epoch, recovery=recovery(tx.state), deployment=result.deployment
        )
    )


def not_started(tx: Transaction, step: steps.StartProcess, detail: str, *, at_once: bool = False) -> None:
    """`init` raised or timed out: a counted failure; `at_once` holds whatever the count (S-6, S-22)."""
    process = tx.state.process
    if process.epoch == step.epoch and process.status == "starting":
        fail(tx, "process_failed", detail, at_once=at_once)


def lost_while_starting(tx: Transaction, step: steps.StartProcess) -> None:
    """The host went away during `init`: not counted, tried again after the first back-off (S-22)."""
    process = tx.state.process
    if process.epoch == step.epoch and process.status == "starting":
        gone(tx, "host_gone", event=False)
        tx.change_process(retry_at=tx.now + timedelta(seconds=limits.BACKOFF_SECONDS[0]))


def start_refused(tx: Transaction, step: steps.StartProcess) -> None:
    """A host that is leaving had asked for a start: nothing has begun, and another takes it (S-25)."""
    process = tx.state.process
    if process.epoch == step.epoch and process.status == "starting":
        tx.change_process(status="none", since=tx.now)


def fail(tx: Transaction, reason: str, detail: str, *, at_once: bool = False) -> None:
    """A counted failure (S-21): a back-off, and with the third in a row a hold (S-23)."""
    state = tx.state
    epoch = state.process.epoch
    failures = state.process.failures + 1
    hold_id = None
    if at_once or failures >= limits.FAILURES_BEFORE_HOLD:
        hold_id = place_hold(tx, "process_failed", SYSTEM)
    wait = None
    if hold_id is None:
        wait = tx.now + timedelta(seconds=limits.BACKOFF_SECONDS[failures - 1])
    tx.change_process(
        status="none", queue=None, failures=failures, retry_at=wait, recovery_reason=reason, since=tx.now
    )
    tx.write(
        events.ProcessFailed.model_validate(
            {"process_epoch": epoch, "reason": reason, "detail": detail, "hold_id": hold_id}
        )
    )
    if hold_id is not None and state.status == "closing":
        turns.cancel_queued(tx, "hold_blocked")


def gone(tx: Transaction, reason: str, *, event: bool = True) -> None:
    """The Process is no more, and that is no failure."""
    process = tx.state.process
    if event:
        tx.write(events.ProcessStopped(process_epoch=process.epoch, reason=reason))
    tx.change_process(status="none", queue=None, recovery_reason=reason, stop_reason=None, since=tx.now)


def stop(tx: Transaction, reason: str) -> None:
    """Ask the host to stop the live Process; the next one waits until it is gone (S-62)."""
    process = tx.change_process(status="stopping", stop_reason=reason, since=tx.now)
    tx.issue(steps.StopProcess, epoch=process.epoch, queue=process.queue, reason=reason)


def stopped(tx: Transaction, step: steps.StopProcess) -> None:
    process = tx.state.process
    if process.epoch == step.epoch and process.status == "stopping":
        gone(tx, process.stop_reason or step.reason)


def abandon(tx: Transaction, reason: str) -> None:
    """Let the host throw the Process away, without waiting for it: the Session is done with it."""
    process = tx.state.process
    if process.status in ("live", "stopping") and process.queue is not None:
        _throw_away(tx, process.epoch, process.queue, reason)


def _throw_away(tx: Transaction, epoch: int, queue: str, reason: str) -> None:
    tx.issue(steps.StopProcess, epoch=epoch, queue=queue, reason=reason, abandon=True)


def place_hold(tx: Transaction, kind: HoldKind, placed_by: Origin) -> str:
    state = tx.state
    state.holds_placed += 1
    hold_id = ids.numbered("hld", state.seed, state.holds_placed)
    state.holds[hold_id] = Hold(
        id=hold_id,
        kind=kind,
        session_id=state.id,
        placed_by=placed_by,
        created_at=tx.now,
        version=state.owner_version + 1,
    )
    return hold_id
