"""Commands and their receipts: sending one, and looking one up later."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api import problems
from api.parameters import NoQuery
from api.problems import Problem, described
from api.services import ReadableSession, Services, Wired
from turnhold.session import ids
from turnhold.session.commands import Command, fingerprint
from turnhold.session.model import SessionStatus
from turnhold.session.values import Record
from turnhold.session.views import ReceiptView
from turnhold.temporal.failures import Failure

router = APIRouter(tags=["receipts"])


class Receipt(Record):
    """The outcome of one command: what was made or touched, and where in the timeline it took effect.

    `pending`: it is durable, and no worker has judged it yet.
    """

    request_id: str
    status: Literal["accepted", "rejected", "pending"]
    session_id: str
    session_status: SessionStatus | None = None
    event_sequence: int | None = None
    turn_id: str | None = None
    sequence: int | None = None
    message_id: str | None = None
    hold_id: str | None = None
    ask_id: str | None = None
    problem: Problem | None = None

    @classmethod
    def of(cls, view: ReceiptView) -> "Receipt":
        rejected = view.rejection
        why = rejected and problems.of_rejection(rejected, view.session_id, view.request_id)
        return cls(problem=why, **view.model_dump(include=_SHARED))


_SHARED = set(Receipt.model_fields) - {"problem"}

PENDING: dict[int | str, dict[str, object]] = {
    202: {
        "model": Receipt,
        "description": "Pending: durable, but no worker has answered yet. `Location` is its receipt.",
        "headers": {"Location": {"description": "the receipt's path", "schema": {"type": "string"}}},
    }
}


async def carry_out(
    command: Command,
    payload: Record,
    *,
    session_id: str,
    idempotency_key: str | None,
    services: Services,
    request: Request,
    response: Response,
) -> Receipt:
    """Send the command of this request, and answer with its receipt.

    Raises:
        Failure: the command was rejected, or it is not known whether it was recorded.
    """
    view = await services.gateway.command(
        session_id,
        command.but(
            request_id=problems.request_id_of(request),
            idempotency_key=idempotency_key,
            fingerprint=fingerprint(payload) if idempotency_key else None,
            caller=request.state.caller.origin,
        ),
        services.receipt_seconds,
    )
    if view.rejection is not None:
        raise Failure(
            view.rejection.code,
            view.rejection.detail,
            session_id=view.rejection.session_id or session_id,
            request_id=view.request_id,
        )
    if view.status == "pending":
        response.status_code = 202
        response.headers["Location"] = f"/v1/sessions/{session_id}/receipts/{view.request_id}"
    if view.replay:
        response.headers["Idempotent-Replay"] = "true"
    return Receipt.of(view)


@router.get(
    "/v1/sessions/{session_id}/receipts/{request_id}",
    responses=described(*problems.READING, "receipt_not_found"),
)
async def get_receipt(
    session_id: ReadableSession, request_id: str, wired: Wired, query: Annotated[NoQuery, Query()]
) -> Receipt:
    """The outcome of an uncertain command, for at least 15 minutes: accepted, rejected or pending."""
    if not ids.well_formed("req", request_id):
        raise Failure("receipt_not_found", f"There is no receipt of {request_id}.", session_id=session_id)
    return Receipt.of(await wired.gateway.receipt(session_id, request_id))
