"""The calls that hosts and the store receive, made of a step and the state as it is carried out."""

from turnhold.session import hosting, processes, sealing, steps
from turnhold.session.handover import FetchCall, SealCall, SetAsideCall, WaitingInput
from turnhold.session.model import SessionState


def start_process(state: SessionState, step: steps.StartProcess) -> hosting.StartProcessCall:
    owner = state.owner
    return hosting.StartProcessCall(
        session=hosting.SessionInfo(
            id=state.id,
            agent=state.agent,
            environment=state.environment,
            key=state.key,
            parent_id=None if owner is None else owner.session_id,
            root_id=state.root_id,
            depth=state.depth,
            metadata=state.metadata,
        ),
        epoch=step.epoch,
        recovery=processes.recovery(state),
        state=state.committed,
        init_timeout=state.config.init_timeout,
        stop_deadline=state.config.stop_deadline,
    )


def run_turn(state: SessionState, step: steps.RunTurn) -> hosting.RunTurnCall:
    turn = state.turns[step.turn]
    return hosting.RunTurnCall(
        session_id=state.id,
        epoch=step.epoch,
        turn_id=state.turn_id(step.turn),
        sequence=step.turn,
        input=turn.input,
        origin=turn.origin,
        created_at=turn.created_at,
        state=state.committed,
        stop_deadline=state.config.stop_deadline,
        first=step.first,
    )


def stop_turn(state: SessionState, step: steps.StopTurn) -> hosting.StopTurnCall:
    return hosting.StopTurnCall(
        session_id=state.id, epoch=step.epoch, turn_id=state.turn_id(step.turn), reason=step.reason
    )


def stop_process(state: SessionState, step: steps.StopProcess) -> hosting.StopProcessCall:
    return hosting.StopProcessCall(
        session_id=state.id,
        epoch=step.epoch,
        reason=step.reason,
        abandon=step.abandon,
        stop_deadline=state.config.stop_deadline,
    )


def deliver_message(state: SessionState, step: steps.DeliverMessage) -> hosting.DeliverMessageCall | None:
    """None when the message has been settled meanwhile: there is nothing to deliver."""
    message = state.messages.get(step.message_id)
    if message is None:
        return None
    return hosting.DeliverMessageCall(
        session_id=state.id,
        epoch=step.epoch,
        turn_id=state.turn_id(step.turn),
        message_id=step.message_id,
        content=message.content,
    )


def find_turn(state: SessionState, step: steps.FindTurn) -> hosting.FindTurnCall:
    return hosting.FindTurnCall(session_id=state.id, epoch=step.epoch, turn_id=state.turn_id(step.turn))


def answer_ask(state: SessionState, step: steps.AnswerAsk) -> hosting.AnswerAskCall | None:
    ask = state.asks.get(step.ask_id)
    if ask is None:
        return None
    return hosting.AnswerAskCall(
        session_id=state.id,
        epoch=step.epoch,
        turn_id=state.turn_id(step.turn),
        ask_id=step.ask_id,
        answer=ask.answer,
        answered_by=ask.answered_by,
        reason=ask.reason,
    )


def seal(state: SessionState, step: steps.Seal) -> SealCall:
    first, last = (sequence - state.tail_after for sequence in step.events)
    return SealCall(
        prefix=state.prefix,
        events=tuple(state.timeline[max(first, 0) : max(last, 0)]),
        turns=tuple(state.turns[sequence] for sequence in range(step.turns[0] + 1, step.turns[1] + 1)),
        record=None if step.record is None else sealing.record(state, step),
        retained_after=step.retained_after,
        turns_retained_after=step.turns_retained_after,
    )


def set_aside(state: SessionState, step: steps.SetAside) -> SetAsideCall:
    """What has been sealed meanwhile, or was here all the time, needs no second place."""
    found = (state.turns.get(sequence) for sequence in step.turns)
    return SetAsideCall(
        prefix=state.prefix,
        inputs=tuple(
            WaitingInput(sequence=turn.sequence, content=turn.input)
            for turn in found
            if turn is not None and turn.input
        ),
    )


def fetch(state: SessionState, step: steps.Fetch) -> FetchCall:
    return FetchCall(prefix=state.prefix, sequence=step.turn)
