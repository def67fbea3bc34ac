"""What a host says: facts of the running Turn, and its end or loss."""

from turnhold.session import events, hosting, people, processes, steps, turns
from turnhold.session.model import SessionState, Turn
from turnhold.session.transaction import Transaction
from turnhold.session.values import part_bytes


def turn_ended(tx: Transaction, step: steps.RunTurn, outcome: hosting.TurnOutcome) -> None:
    """The host's final word on the running Turn. An accepted stop has decided already (S-56)."""
    state = tx.state
    turn = state.running_turn
    if turn is None or turn.sequence != step.turn or state.process.epoch != step.epoch:
        return
    report(
        tx,
        hosting.Report(
            epoch=outcome.epoch, first=outcome.first, turn_id=outcome.turn_id, facts=outcome.facts
        ),
    )
    stop_kind = turn.stop.kind if turn.stop else None
    if stop_kind is None and outcome.how in ("completed", "failed"):
        turns.complete(tx, outcome)
    elif outcome.how == "died":
        turns.interrupt(tx, "process_failed")
    else:
        turns.interrupt(tx, outcome.reason or "worker_shutdown")

    if outcome.how == "died" or outcome.process == "process_failed":
        processes.fail(tx, "process_failed", outcome.detail)
    elif outcome.process == "worker_shutdown":
        processes.gone(tx, "worker_shutdown")
    elif stop_kind == "turn_deadline_elapsed":
        processes.stop(tx, "turn_deadline_elapsed")


def turn_not_dispatched(tx: Transaction, step: steps.RunTurn, *, refused: bool) -> None:
    """The host did not take the Turn, or refused it. On the first dispatch nothing has begun (S-13).

    One that was only away finds out from the call to throw its Process away (S-26).
    """
    if not _is_running(tx.state, step):
        return
    turn = tx.state.running_turn
    assert turn is not None
    if not step.first or _has_spoken(tx.state, turn):
        turn_lost(tx, step)
        return
    if turn.stop is None:
        tx.drop(steps.RunTurn)
        turns.put_back(tx)
    else:
        turns.interrupt(tx, turn.stop.kind)
    if not refused:
        processes.abandon(tx, "host_gone")
    processes.gone(tx, "host_gone")


def _has_spoken(state: SessionState, turn: Turn) -> bool:
    """Whether it has said something, and so has begun, whatever became of its dispatch."""
    asked = any(ask.turn == turn.sequence for ask in state.asks.values())
    return turn.handler_registered or turn.output_bytes > 0 or asked


def turn_suspected(tx: Transaction, step: steps.RunTurn) -> None:
    """A heartbeat was missed: ask the same host once more before giving the Turn up (S-24).

    A host that was heard since the last time lives: every outage is a suspicion of its own.
    """
    if _is_running(tx.state, step):
        tx.issue(steps.RunTurn, turn=step.turn, epoch=step.epoch, queue=step.queue, first=False, attach=True)


def turn_lost(tx: Transaction, step: steps.RunTurn) -> None:
    """The host is gone, and the Turn with it; it is not replayed (S-24)."""
    if _is_running(tx.state, step):
        turns.interrupt(tx, "execution_lost")
        processes.fail(tx, "execution_lost", "The host of this Process was lost while a Turn was running.")


def _is_running(state: SessionState, step: steps.RunTurn) -> bool:
    return state.running == step.turn and state.process.epoch == step.epoch


def report(tx: Transaction, said: hosting.Report) -> None:
    """Take the facts of one epoch's outbox, each number once and in order (S-16)."""
    state = tx.state
    if state.process.epoch != said.epoch or state.process.status not in ("live", "stopping"):
        return
    turn = state.running_turn
    of_running = turn is not None and state.turn_id(turn.sequence) == said.turn_id
    for number, fact in enumerate(said.facts, said.first):
        if number != state.process.next_fact:
            continue
        tx.change_process(next_fact=number + 1)
        if isinstance(fact, hosting.ProcessGone):
            _process_gone(tx, fact)
        elif of_running and turn is not None:
            _turn_fact(tx, turn.sequence, fact)


def _process_gone(tx: Transaction, fact: hosting.ProcessGone) -> None:
    if tx.state.running is not None or tx.state.process.status != "live":
        return  # the Turn's own outcome, or the stop's end, says it
    if fact.reason == "process_failed":
        processes.fail(tx, fact.reason, fact.detail)
    else:
        processes.gone(tx, fact.reason)


def _turn_fact(tx: Transaction, sequence: int, fact: hosting.Fact) -> None:
    match fact:
        case hosting.OutputWritten():
            _output(tx, sequence, fact)
        case hosting.HandlerRegistered():
            tx.change_turn(sequence, handler_registered=True)
        case hosting.MessageStarted():
            people.message_started(tx, fact)
        case hosting.MessageSettled():
            people.message_settled(tx, fact)
        case hosting.AskCreated():
            people.create_ask(tx, sequence, fact)
        case hosting.AskWithdrawn():
            people.ask_withdrawn(tx, fact)
        case hosting.FunctionReturned():
            _returned(tx, sequence)
        case hosting.ProcessGone():
            pass


def _output(tx: Transaction, sequence: int, fact: hosting.OutputWritten) -> None:
    tx.write(events.TurnOutput(content=fact.content), sequence)
    written = sum(part_bytes(part) for part in fact.content)
    tx.change_turn(sequence, output_bytes=tx.state.turns[sequence].output_bytes + written)


def _returned(tx: Transaction, sequence: int) -> None:
    """The Turn's function has returned: what has not started will not (S-33)."""
    tx.change_turn(sequence, returned=True)
    people.withdraw_messages(tx, "turn_settling", started=False)
