"""What the routes work with, and the caller's reach: one object for the process, one for a request.

All dependencies are `async`: a plain function would take a trip through the thread pool each time.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path, Request

from api.auth import Caller
from api.metrics import Metrics
from turnhold.agents.definition import AgentDefinition
from turnhold.keys import Permission
from turnhold.session import ids
from turnhold.temporal import failures
from turnhold.temporal.failures import Failure
from turnhold.temporal.gateway import Gateway
from turnhold.temporal.watch import Watcher


@dataclass(frozen=True)
class Services:
    """Made once, when the application starts."""

    gateway: Gateway
    watcher: Watcher
    agents: dict[str, AgentDefinition]
    metrics: Metrics
    receipt_seconds: float


async def services(request: Request) -> Services:
    return request.app.state.services


Wired = Annotated[Services, Depends(services)]


def permitted(permission: Permission) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency: the caller, who has this permission (403 otherwise)."""

    async def caller(request: Request) -> Caller:
        found: Caller = request.state.caller
        found.must(permission)
        return found

    return caller


async def authenticated(request: Request) -> Caller:
    return request.state.caller


def reachable(permission: Permission) -> Callable[..., Awaitable[str]]:
    """A dependency: the Session's ID in the path, which the caller may use in this way.

    An ID of the wrong form, or of another environment, is a Session that does not exist.
    """

    async def session_id(
        caller: Annotated[Caller, Depends(permitted(permission))],
        session_id: Annotated[str, Path(description="the Session's ID, `ses_…`")],
    ) -> str:
        if not ids.well_formed("ses", session_id) or not ids.in_environment(session_id, caller.environment):
            raise failures.session_not_found(session_id)
        return session_id

    return session_id


async def turn_in_path(
    session_id: str, turn_id: Annotated[str, Path(description="the Turn's ID, `trn_…`")]
) -> str:
    if not ids.well_formed("trn", turn_id):
        raise failures.turn_not_found(session_id, turn_id)
    return turn_id


def ask_in_path(session_id: str, ask_id: Annotated[str, Path(description="the Ask's ID, `ask_…`")]) -> str:
    if not ids.well_formed("ask", ask_id):
        raise Failure("ask_not_found", f"There is no Ask {ask_id}.", session_id=session_id)
    return ask_id


ReadableSession = Annotated[str, Depends(reachable("sessions.read"))]
SendableSession = Annotated[str, Depends(reachable("sessions.send"))]
ControllableSession = Annotated[str, Depends(reachable("sessions.control"))]
AnswerableSession = Annotated[str, Depends(reachable("asks.answer"))]
ResumableSession = Annotated[str, Depends(reachable("sessions.resume"))]
TurnInPath = Annotated[str, Depends(turn_in_path)]
AskInPath = Annotated[str, Depends(ask_in_path)]
