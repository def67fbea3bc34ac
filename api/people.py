"""People in the loop: messages to a running Turn, the questions of Turns, and their answers."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api import problems
from api.bodies import AnswerBody, SendBody
from api.parameters import AsksQuery, IdempotencyKey, NoQuery
from api.problems import described
from api.receipts import PENDING, Receipt, carry_out
from api.services import AnswerableSession, AskInPath, ReadableSession, SendableSession, TurnInPath, Wired
from turnhold.session.commands import AnswerAsk, Send
from turnhold.session.values import Record
from turnhold.session.views import AskView

router = APIRouter(prefix="/v1/sessions/{session_id}")


class AskList(Record):
    """Questions, in the order in which they were asked."""

    asks: tuple[AskView, ...]


@router.post(
    "/turns/{turn_id}/messages",
    status_code=201,
    tags=["messages"],
    responses={
        **PENDING,
        **described(
            *problems.COMMANDING,
            "turn_not_found",
            "empty_input",
            "turn_not_running",
            "turn_not_accepting_messages",
            "message_limit",
            "session_closing",
            "session_closed",
            "queue_full",
        ),
    },
)
async def send_message(
    body: SendBody,
    session_id: SendableSession,
    turn_id: TurnInPath,
    wired: Wired,
    request: Request,
    response: Response,
    query: Annotated[NoQuery, Query()],
    idempotency_key: IdempotencyKey = None,
) -> Receipt:
    """Send a message to exactly this running Turn. Accepted means admitted: events tell what became of it.

    With `fallback: "enqueue"` it becomes a Turn if that Turn takes no messages or does not run.
    """
    return await carry_out(
        Send(turn_id=turn_id, content=body.content, fallback=body.fallback),
        body,
        session_id=session_id,
        idempotency_key=idempotency_key,
        services=wired,
        request=request,
        response=response,
    )


@router.get("/asks", tags=["asks"], responses=described(*problems.READING))
async def list_asks(
    session_id: ReadableSession, wired: Wired, query: Annotated[AsksQuery, Query()]
) -> AskList:
    """Every retained question of the Session; those that wait for somebody with `status=pending`."""
    return AskList(asks=await wired.gateway.asks.list(session_id, status=query.status))


@router.get("/turns/{turn_id}/asks", tags=["asks"], responses=described(*problems.READING, "turn_not_found"))
async def list_turn_asks(
    session_id: ReadableSession, turn_id: TurnInPath, wired: Wired, query: Annotated[AsksQuery, Query()]
) -> AskList:
    """Every retained question of one Turn."""
    return AskList(asks=await wired.gateway.asks.list(session_id, turn_id=turn_id, status=query.status))


@router.get(
    "/turns/{turn_id}/asks/{ask_id}",
    tags=["asks"],
    responses=described(*problems.READING, "turn_not_found", "ask_not_found"),
)
async def get_ask(
    session_id: ReadableSession,
    turn_id: TurnInPath,
    ask_id: AskInPath,
    wired: Wired,
    query: Annotated[NoQuery, Query()],
) -> AskView:
    """One question, and its answer once it has one."""
    return await wired.gateway.asks.get(session_id, turn_id, ask_id)


@router.post(
    "/turns/{turn_id}/asks/{ask_id}/answer",
    tags=["asks"],
    responses={
        **PENDING,
        **described(
            *problems.COMMANDING,
            "turn_not_found",
            "ask_not_found",
            "ask_settled",
            "session_closed",
            "invalid_answer",
        ),
    },
)
async def answer_ask(
    body: AnswerBody,
    session_id: AnswerableSession,
    turn_id: TurnInPath,
    ask_id: AskInPath,
    wired: Wired,
    request: Request,
    response: Response,
    query: Annotated[NoQuery, Query()],
    idempotency_key: IdempotencyKey = None,
) -> Receipt:
    """Answer a question; the first valid answer counts. A `response_id` makes a repetition harmless."""
    return await carry_out(
        AnswerAsk(
            turn_id=turn_id,
            ask_id=ask_id,
            answer=body.answer,
            response_id=body.response_id,
            sent_at=datetime.now(UTC),
        ),
        body,
        session_id=session_id,
        idempotency_key=idempotency_key,
        services=wired,
        request=request,
        response=response,
    )
