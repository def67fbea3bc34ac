"""Sessions: create, list, look up, get, explain."""

import secrets
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from api import problems
from api.auth import Caller
from api.bodies import CreateBody
from api.parameters import IdempotencyKey, LookupQuery, NoQuery, OwnedQuery, SessionsQuery
from api.problems import described
from api.services import ReadableSession, Wired, permitted
from turnhold.session.creation import Config, NewSession
from turnhold.session.values import Record, milliseconds
from turnhold.session.views import Explanation, SessionView, TurnView
from turnhold.temporal import creation
from turnhold.temporal.failures import Failure
from turnhold.temporal.listing import Filter, OwnedSessions, SessionPage

router = APIRouter(prefix="/v1/sessions", tags=["sessions"])

Creator = Annotated[Caller, Depends(permitted("sessions.create"))]
Reader = Annotated[Caller, Depends(permitted("sessions.read"))]


class CreatedSession(Record):
    """A Session as it was created, and its first Turn if it was created with input."""

    session: SessionView
    turn: TurnView | None = None


@router.post(
    "",
    status_code=201,
    responses={
        200: {"model": CreatedSession, "description": "An exact retry: the first answer again."},
        **described(
            *(
                code
                for code in problems.COMMANDING
                if code not in ("session_not_found", "worker_unavailable")
            ),
            "empty_input",
            "agent_not_found",
            "session_key_conflict",
        ),
    },
)
async def create_session(
    body: CreateBody,
    caller: Creator,
    wired: Wired,
    request: Request,
    response: Response,
    query: Annotated[NoQuery, Query()],
    idempotency_key: IdempotencyKey = None,
) -> CreatedSession:
    """Create a Session, with its first Turn if there is input. Needs no worker."""
    agent = wired.agents.get(body.agent)
    if agent is None:
        raise Failure("agent_not_found", f"There is no Agent {body.agent}.")
    config = Config.resolve(agent.settings, *([body.config] if body.config else []))
    made = await wired.gateway.create(
        NewSession(
            agent=body.agent,
            environment=caller.environment,
            seed=secrets.token_hex(8),
            config=config,
            key=body.key,
            metadata=body.metadata,
            input=body.input or (),
            caller=caller.origin,
            request_id=problems.request_id_of(request),
            created_at=milliseconds(datetime.now(UTC)),
        ),
        creation.session_id(caller.environment, body.agent, body.key, _scope(caller, idempotency_key)),
        idempotency_key=idempotency_key,
        fingerprint=body.fingerprint(config),
        fingerprint_as_given=body.fingerprint_as_given(),
    )
    if made.replay:
        response.status_code = 200
        response.headers["Idempotent-Replay"] = "true"
    return CreatedSession(session=made.session, turn=made.turn)


def _scope(caller: Caller, idempotency_key: str | None) -> tuple[str, ...] | None:
    """What an idempotency key without a Session key is unique within."""
    if idempotency_key is None:
        return None
    return (caller.origin.kind, caller.origin.id or "", idempotency_key)


@router.get("", responses=described(*problems.ALWAYS, "temporal_unavailable"))
async def list_sessions(
    caller: Reader, wired: Wired, query: Annotated[SessionsQuery, Query()]
) -> SessionPage:
    """Sessions, the newest created first. May lag by seconds; getting one never does."""
    wanted = Filter(**query.model_dump(exclude={"limit", "cursor"}))
    return await wired.gateway.list_sessions(
        caller.environment, wanted, limit=query.limit, cursor=query.cursor
    )


@router.get("/lookup", responses=described(*problems.READING))
async def lookup_session(caller: Reader, wired: Wired, query: Annotated[LookupQuery, Query()]) -> SessionView:
    """The Session of an Agent's key, strongly consistent."""
    session_id = creation.session_id(caller.environment, query.agent, query.key, None)
    try:
        return await wired.gateway.session(session_id, headroom=True)
    except Failure as failure:
        if failure.code != "session_not_found":
            raise
        raise Failure("session_not_found", "No Session of this Agent has this key.") from failure


@router.get("/{session_id}", responses=described(*problems.READING))
async def get_session(
    session_id: ReadableSession, wired: Wired, query: Annotated[NoQuery, Query()]
) -> SessionView:
    """A Session with its holds, counts, running Turn and Process."""
    return await wired.gateway.session(session_id, headroom=True)


@router.get(
    "/{session_id}/explain",
    responses=described(*problems.ALWAYS, "session_not_found", "worker_unavailable"),
)
async def explain_session(
    session_id: ReadableSession, wired: Wired, query: Annotated[NoQuery, Query()]
) -> Explanation:
    """Why a Session does not move: every cause, the most decisive first, and the call that clears it.

    Answers also when no worker does, and when Temporal cannot be reached.
    """
    return await wired.gateway.explain(session_id)


@router.get(
    "/{session_id}/owned",
    responses=described(*problems.ALWAYS, "session_not_found", "temporal_unavailable"),
)
async def list_owned(
    session_id: ReadableSession, wired: Wired, query: Annotated[OwnedQuery, Query()]
) -> OwnedSessions:
    """The Sessions that this one owns, the newest 1,000. May lag by seconds, like every list."""
    return await wired.gateway.owned_sessions(session_id, recursive=query.recursive)
