"""A Session whose workflow was ended from outside: what it last knew, shown as ended (S-90).

Its own state cannot say so, and no event of its timeline does; every reader is told the same.
"""

from datetime import datetime

from turnhold.session import explaining
from turnhold.session.views import AskView, ProcessView, ReadResult, ReceiptView, SessionView, TurnView
from turnhold.temporal import late

REASON = "terminated"


def overlay(result: ReadResult, at: datetime | None) -> ReadResult:
    """`result` of a workflow that was terminated at `at`."""
    session = _session(result.session, at)
    return result.but(
        session=session,
        receipts={
            request_id: late.rejected(request_id, session.id) if receipt.status == "pending" else receipt
            for request_id, receipt in result.receipts.items()
        },
        turns_by_id={turn_id: _turn(turn, at) for turn_id, turn in result.turns_by_id.items()},
        turns=tuple(tuple(_turn(turn, at) for turn in page) for page in result.turns),
        ask_pages=tuple(
            page.but(asks=tuple(_ask(ask, at) for ask in page.asks)) for page in result.ask_pages
        ),
        judged=None if result.judged is None else _judged(result.judged, result.session),
        explanation=result.explanation
        and explaining.ended(session.id, session.closed_how, session.closed_at),
        working=False,
        wake_at=None,
    )


def is_terminated(session: SessionView) -> bool:
    return session.closed_how == "terminated"


def _session(session: SessionView, at: datetime | None) -> SessionView:
    if session.status == "closed":
        return session
    return session.but(
        status="closed",
        closed_how="terminated",
        closed_at=at,
        holds=(),
        running_turn_id=None,
        queued_turns=0,
        process=ProcessView(epoch=session.process.epoch),
    )


def _turn(turn: TurnView, at: datetime | None) -> TurnView:
    if turn.status not in ("queued", "running"):
        return turn
    return turn.but(
        status="interrupted", reason=REASON, accepts_messages=False, stopping_since=None, ended_at=at
    )


def _ask(ask: AskView, at: datetime | None) -> AskView:
    return ask if ask.status != "pending" else ask.but(status="cancelled", settled_at=at)


def _judged(receipt: ReceiptView, session: SessionView) -> ReceiptView:
    """What the state would still accept is too late: a replay stays, unknown IDs stay unknown."""
    if receipt.replay or (receipt.rejection and receipt.rejection.code.endswith("_not_found")):
        return receipt
    return late.ended(receipt.operation or "", receipt.request_id, session)
