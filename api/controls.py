"""Controls of a Session: interrupt, resume, close, cancel. Each is one command."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api import problems
from api.bodies import EmptyBody, ResumeBody
from api.parameters import IdempotencyKey, NoQuery
from api.problems import described
from api.receipts import PENDING, Receipt, carry_out
from api.services import ControllableSession, ResumableSession, Wired
from turnhold.session.commands import Cancel, Close, Interrupt, Resume

router = APIRouter(prefix="/v1/sessions/{session_id}", tags=["controls"])


@router.post(
    "/interrupt",
    responses={
        **PENDING,
        **described(*problems.COMMANDING, "session_closing", "session_closed", "hold_limit"),
    },
)
async def interrupt(
    session_id: ControllableSession,
    wired: Wired,
    request: Request,
    response: Response,
    query: Annotated[NoQuery, Query()],
    body: EmptyBody | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Receipt:
    """Hold the Session and stop its running Turn; nothing starts until the hold is released."""
    return await carry_out(
        Interrupt(),
        body or EmptyBody(),
        session_id=session_id,
        idempotency_key=idempotency_key,
        services=wired,
        request=request,
        response=response,
    )


@router.post(
    "/resume",
    responses={
        **PENDING,
        **described(
            *problems.COMMANDING,
            "hold_not_found",
            "hold_not_releasable",
            "hold_owned_by_ancestor",
            "session_closed",
        ),
    },
)
async def resume(
    body: ResumeBody,
    session_id: ResumableSession,
    wired: Wired,
    request: Request,
    response: Response,
    query: Annotated[NoQuery, Query()],
    idempotency_key: IdempotencyKey = None,
) -> Receipt:
    """Release exactly one hold."""
    return await carry_out(
        Resume(hold_id=body.hold_id),
        body,
        session_id=session_id,
        idempotency_key=idempotency_key,
        services=wired,
        request=request,
        response=response,
    )


@router.post("/close", responses={**PENDING, **described(*problems.COMMANDING)})
async def close(
    session_id: ControllableSession,
    wired: Wired,
    request: Request,
    response: Response,
    query: Annotated[NoQuery, Query()],
    body: EmptyBody | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Receipt:
    """Take no more Turns, let the rest finish, then close. Closing twice changes nothing."""
    return await carry_out(
        Close(),
        body or EmptyBody(),
        session_id=session_id,
        idempotency_key=idempotency_key,
        services=wired,
        request=request,
        response=response,
    )


@router.post("/cancel", responses={**PENDING, **described(*problems.COMMANDING)})
async def cancel(
    session_id: ControllableSession,
    wired: Wired,
    request: Request,
    response: Response,
    query: Annotated[NoQuery, Query()],
    body: EmptyBody | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Receipt:
    """Close at once: the running Turn and the queued ones end as cancelled."""
    return await carry_out(
        Cancel(),
        body or EmptyBody(),
        session_id=session_id,
        idempotency_key=idempotency_key,
        services=wired,
        request=request,
        response=response,
    )
