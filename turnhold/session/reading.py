"""The public objects, made of the state: what the one query answers."""

from turnhold.session import clock, explaining, ids, limits, owner, ownership, sealing, timeline
from turnhold.session.model import Ask, Event, Receipt, SessionState, Turn
from turnhold.session.values import OUTPUT, Output, encoded_bytes, merged
from turnhold.session.views import (
    ArchiveView,
    AskPage,
    AsksRequest,
    AskView,
    ProcessView,
    ReadRequest,
    ReadResult,
    ReceiptView,
    SessionView,
    TurnsRequest,
    TurnView,
)


def read(state: SessionState, request: ReadRequest) -> ReadResult:
    """Everything asked for, as of now (S-63: reading changes nothing)."""
    receipts = {r: view for r in request.request_ids if (view := receipt(state, r)) is not None}
    found = {t: record for t in request.turn_ids if (record := _turn_by_id(state, t)) is not None}
    return ReadResult(
        session=session(state),
        archive=ArchiveView(
            prefix=state.prefix,
            seed=state.seed,
            events=state.tail_after,
            turns=state.turns_after,
            turns_retained_after=state.turns_retained_after,
        ),
        receipts=receipts,
        turns_by_id={turn_id: _whole_turn(state, record) for turn_id, record in found.items()},
        extents={t: (record.first_event, record.last_event) for t, record in found.items()},
        pages=tuple(timeline.page(state, wanted) for wanted in request.pages),
        turns=tuple(_turns(state, wanted) for wanted in request.turns),
        ask_pages=tuple(_asks(state, wanted) for wanted in request.ask_pages),
        explanation=explaining.explain(state) if request.explain else None,
        working=not clock.is_idle(state) and state.status != "closed",
    )


def session(state: SessionState) -> SessionView:
    process = state.process
    return SessionView(
        id=state.id,
        agent=state.agent,
        key=state.key,
        status=state.status,
        closed_how=state.closed_how,
        deployment=state.deployment,
        parent_id=None if state.owner is None else state.owner.session_id,
        root_id=state.root_id,
        metadata=state.metadata,
        config=state.config,
        created_at=state.created_at,
        closed_at=state.closed_at,
        last_activity_at=state.last_activity_at,
        holds=explaining.holds(state),
        running_turn_id=None if state.running is None else state.turn_id(state.running),
        queued_turns=len(state.queue),
        turns_admitted=state.turns_admitted,
        admission_tokens=state.admission_tokens,
        process=ProcessView(
            epoch=process.epoch, status=process.status, consecutive_failures=process.failures
        ),
        last_event_sequence=state.last_sequence,
        retained_after=state.retained_after,
    )


def turn(session_id: str, turn_id: str, record: Turn) -> TurnView:
    """A Turn without its input and output, as lists show it."""
    return TurnView(
        id=turn_id,
        session_id=session_id,
        sequence=record.sequence,
        status=record.status,
        origin=record.origin,
        output_bytes=record.output_bytes,
        response=record.response,
        result=record.result,
        error=record.error,
        reason=record.reason,
        accepts_messages=record.accepts_messages,
        stopping_since=record.stop.accepted_at if record.stop and not record.settled else None,
        created_at=record.created_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
    )


def _turn_by_id(state: SessionState, turn_id: str) -> Turn | None:
    number = ids.number_of("trn", state.seed, turn_id)
    return None if number is None else state.turns.get(number)


def _whole_turn(state: SessionState, record: Turn) -> TurnView:
    """A Turn with input, unless the store has it, and with output if all here and no larger than a page."""
    output: Output | None = None if record.output_bytes else ()
    if 0 < record.output_bytes <= limits.PAGE_BYTES and record.first_event > state.tail_after:
        output = _output(state, record)
        if encoded_bytes(output) > limits.PAGE_BYTES:
            output = None
    return turn(state.id, state.turn_id(record.sequence), record).but(
        input=None if record.input_away else record.input, output=output
    )


def _output(state: SessionState, record: Turn) -> Output:
    """What the Turn has written, normalised (S-15); all of it is in the tail."""
    turn_id = state.turn_id(record.sequence)
    first = record.first_event - state.tail_after - 1
    last = (record.last_event or state.last_sequence) - state.tail_after
    parts = [
        part
        for event in state.timeline[first:last]
        if event.kind == "turn.output" and event.turn_id == turn_id
        for part in OUTPUT.validate_python(event.data["content"])
    ]
    return merged(tuple(parts))


def _turns(state: SessionState, request: TurnsRequest) -> tuple[TurnView, ...]:
    """Up to the limit or 1 MiB, whichever comes first; more follow after the last one's sequence."""
    found = (
        record
        for sequence, record in state.turns.items()
        if sequence > request.after and request.status in (None, record.status)
    )
    page: list[TurnView] = []
    size = 0
    for record in sorted(found, key=lambda record: record.sequence)[: request.limit]:
        shown = turn(state.id, state.turn_id(record.sequence), record)
        size += encoded_bytes(shown)
        if page and size > limits.PAGE_BYTES:
            break
        page.append(shown)
    return tuple(page)


def _asks(state: SessionState, request: AsksRequest) -> AskPage:
    """Up to 1 MiB of Asks, in the order in which they were asked."""
    page: list[AskView] = []
    size = 0
    has_more = False
    passed = request.after is None
    for ask_id, ask in state.asks.items():
        if not passed:
            passed = ask_id == request.after
            continue
        turn_id = state.turn_id(ask.turn)
        wanted = (request.turn_id in (None, turn_id), request.ask_id in (None, ask_id))
        if not all(wanted) or request.status not in (None, ask.status) or sealing.has_left(state, ask):
            continue
        shown = _ask(ask_id, turn_id, ask)
        size += encoded_bytes(shown)
        if page and size > limits.PAGE_BYTES:
            has_more = True
            break
        page.append(shown)
    turn = None if request.turn_id is None else _turn_by_id(state, request.turn_id)
    return AskPage(
        asks=tuple(page),
        has_more=has_more,
        turn_known=request.turn_id is None or turn is not None,
        extent=None if turn is None else (turn.first_event, turn.last_event),
    )


class SettledAsks:
    """The Asks that a stretch of the timeline tells all of, followed event by event."""

    KINDS = ("ask.created", "ask.answered", "ask.cancelled")

    def __init__(self) -> None:
        self._asked: dict[str, AskView] = {}

    def follow(self, event: Event) -> None:
        said = event.data
        ask_id = str(said["ask_id"])
        if event.kind == "ask.created":
            self._asked[ask_id] = AskView.model_validate(
                {
                    **{"id": ask_id, "turn_id": event.turn_id, "status": "pending"},
                    **{"prompt": said["prompt"], "control": said["control"], "created_at": event.created_at},
                }
            )
        elif (ask := self._asked.get(ask_id)) is not None:
            settled = {**ask.model_dump(), "status": event.kind.removeprefix("ask."), **said}
            self._asked[ask_id] = AskView.model_validate(settled | {"settled_at": event.created_at})

    def found(self, request: AsksRequest) -> list[AskView]:
        """Those that were settled in it, and are asked for."""
        return [
            ask
            for ask in self._asked.values()
            if ask.status != "pending"
            and request.ask_id in (None, ask.id)
            and request.status in (None, ask.status)
        ]


def _ask(ask_id: str, turn_id: str, ask: Ask) -> AskView:
    return AskView(
        id=ask_id,
        turn_id=turn_id,
        status=ask.status,
        prompt=ask.prompt,
        control=ask.control,
        answer=ask.answer,
        answered_by=ask.answered_by,
        created_at=ask.created_at,
        settled_at=ask.settled_at,
    )


def waits(state: SessionState, request_id: str) -> bool:
    """Whether the command is judged only once something else is known: a start, an owner, a host."""
    return (
        request_id in state.late or ownership.pending(state, request_id) or owner.pending(state, request_id)
    )


def receipt(state: SessionState, request_id: str) -> ReceiptView | None:
    """The outcome of a request: its own receipt, the first one of an exact retry, or a rejection."""
    own = state.receipts.get(request_id)
    if own is not None:
        return _accepted(state, own)
    if waits(state, request_id):
        return ReceiptView(request_id=request_id, status="pending", session_id=state.id)
    outcome = state.outcomes.get(request_id)
    if outcome is None:
        return None
    if outcome.rejection is not None:
        return ReceiptView(
            request_id=request_id, status="rejected", session_id=state.id, rejection=outcome.rejection
        )
    first = receipt(state, outcome.replay_of or "")
    if first is None or first.status != "accepted":
        return first and first.but(request_id=request_id)
    return first.but(replay=True)


def _accepted(state: SessionState, own: Receipt) -> ReceiptView:
    return ReceiptView(
        request_id=own.request_id,
        status="accepted",
        session_id=state.id,
        session_status=own.session_status,
        event_sequence=own.event_sequence,
        operation=own.operation,
        turn_id=None if own.turn is None else state.turn_id(own.turn),
        sequence=own.turn if _admitted_a_turn(own) else None,
        message_id=None if own.message is None else state.message_id(own.message),
        hold_id=own.hold_id,
        ask_id=own.ask_id,
        spawned_id=own.spawned,
    )


def _admitted_a_turn(own: Receipt) -> bool:
    """Also a send does, whose fallback made it an enqueue (S-30)."""
    return own.operation in ("create", "enqueue") or (own.operation == "send" and own.message is None)
