"""Commands to Sessions that have ended: nobody is left to record them, and each has one outcome (S-55).

The outcome never changes, so a request ID can state it: whoever looks it up is told the same.
"""

from turnhold.session import ids
from turnhold.session.commands import PUBLIC
from turnhold.session.errors import Rejection
from turnhold.session.views import ReceiptView, SessionView

_NO_EFFECT = ("close", "cancel")
_LABELS = {
    **dict.fromkeys(PUBLIC, "session_closed"),
    **{code.replace("_", ""): code for code in ("turn_not_found", "ask_not_found", "hold_not_found")},
}
"""What the label in a self-describing request ID stands for: the rejection's code."""


def rejected(request_id: str, session_id: str) -> ReceiptView:
    """The receipt of a command that came too late."""
    return ReceiptView(
        request_id=request_id,
        status="rejected",
        session_id=session_id,
        rejection=Rejection(code="session_closed", detail="This Session is closed."),
    )


def ended(operation: str, request_id: str, session: SessionView) -> ReceiptView:
    """What comes of a command now: a close and a cancel have nothing left to do, all else is too late."""
    if operation not in _NO_EFFECT:
        return rejected(request_id, session.id)
    return ReceiptView(
        request_id=request_id,
        status="accepted",
        session_id=session.id,
        session_status="closed",
        event_sequence=session.last_event_sequence,
        operation=operation,
    )


def labelled(judged: ReceiptView, operation: str, session_id: str) -> ReceiptView:
    """The same outcome, under a request ID that states it."""
    code = judged.rejection.code if judged.rejection else None
    if code == "idempotency_conflict":
        return judged
    label = operation if code in (None, "session_closed") else code.replace("_", "")
    return judged.but(request_id=ids.closed_request(label, session_id))


def label_of(request_id: str, session_id: str) -> str | None:
    """The label in an ID that `labelled` made for this Session, else None."""
    return ids.closed_request_command(request_id, session_id, list(_LABELS))


def stated(label: str, request_id: str, session: SessionView) -> ReceiptView:
    """The receipt that a request ID with this label states."""
    receipt = ended(label, request_id, session)
    code = _LABELS[label]
    if code == "session_closed" or receipt.rejection is None:
        return receipt
    return receipt.but(
        rejection=receipt.rejection.model_copy(update={"code": code, "detail": "There is no such thing."})
    )
