"""Turns: enqueue, list, get, wait, interrupt."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api import problems
from api.bodies import EmptyBody, EnqueueBody
from api.parameters import IdempotencyKey, NoQuery, TurnQuery, TurnsQuery
from api.problems import described
from api.receipts import PENDING, Receipt, carry_out
from api.services import ControllableSession, ReadableSession, SendableSession, TurnInPath, Wired
from turnhold.session.commands import Enqueue, Interrupt
from turnhold.session.values import Record
from turnhold.session.views import TurnsRequest, TurnView

router = APIRouter(prefix="/v1/sessions/{session_id}/turns", tags=["turns"])


class TurnPage(Record):
    """Turns by sequence; `next_after` is the last one's, or `after` when there is none."""

    turns: tuple[TurnView, ...]
    next_after: int


@router.post(
    "",
    status_code=201,
    responses={
        **PENDING,
        **described(*problems.COMMANDING, "empty_input", "session_closing", "session_closed", "queue_full"),
    },
)
async def enqueue(
    body: EnqueueBody,
    session_id: SendableSession,
    wired: Wired,
    request: Request,
    response: Response,
    query: Annotated[NoQuery, Query()],
    idempotency_key: IdempotencyKey = None,
) -> Receipt:
    """Admit a Turn: it runs when those before it have ended and nothing holds the Session."""
    return await carry_out(
        Enqueue(input=body.input),
        body,
        session_id=session_id,
        idempotency_key=idempotency_key,
        services=wired,
        request=request,
        response=response,
    )


@router.get("", responses=described(*problems.READING))
async def list_turns(
    session_id: ReadableSession, wired: Wired, query: Annotated[TurnsQuery, Query()]
) -> TurnPage:
    """Retained Turns by sequence, without their input and output."""
    wanted = TurnsRequest(after=query.after, limit=query.limit, status=query.status)
    turns = await wired.gateway.turns(session_id, wanted)
    return TurnPage(turns=turns, next_after=turns[-1].sequence if turns else query.after)


@router.get("/{turn_id}", responses=described(*problems.READING, "turn_not_found"))
async def get_turn(
    session_id: ReadableSession, turn_id: TurnInPath, wired: Wired, query: Annotated[TurnQuery, Query()]
) -> TurnView:
    """A Turn with input and output; with `wait`, as soon as it has ended, or as it is by then."""
    if query.wait == 0:
        return await wired.gateway.turn(session_id, turn_id)
    return await wired.watcher.wait_turn(session_id, turn_id, query.wait)


@router.post(
    "/{turn_id}/interrupt",
    responses={
        **PENDING,
        **described(*problems.COMMANDING, "turn_not_found", "turn_not_running", "session_closed"),
    },
)
async def interrupt_turn(
    session_id: ControllableSession,
    turn_id: TurnInPath,
    wired: Wired,
    request: Request,
    response: Response,
    query: Annotated[NoQuery, Query()],
    body: EmptyBody | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Receipt:
    """Stop that Turn, while it runs. Nothing is held: the next one starts once it has stopped."""
    return await carry_out(
        Interrupt(turn_id=turn_id),
        body or EmptyBody(),
        session_id=session_id,
        idempotency_key=idempotency_key,
        services=wired,
        request=request,
        response=response,
    )
