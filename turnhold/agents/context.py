"""What a handler knows beside its Turn: the Session, its memory and its past."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn, Protocol

from pydantic import JsonValue

from turnhold.session.errors import Refused
from turnhold.session.hosting import Recovery, SessionInfo
from turnhold.session.model import TurnError, TurnStatus
from turnhold.session.values import Content, Output, text_of
from turnhold.session.views import TurnView


@dataclass(frozen=True)
class PastTurn:
    """An earlier Turn of this Session. `text` is its input's text, `output` what it wrote as text."""

    id: str
    sequence: int
    status: TurnStatus
    input: Content
    output: str
    response: Output | None
    result: JsonValue
    error: TurnError | None
    reason: str | None
    created_at: datetime
    ended_at: datetime | None

    @property
    def text(self) -> str:
        return text_of(self.input)

    @staticmethod
    def of(view: TurnView) -> "PastTurn":
        return PastTurn(
            id=view.id,
            sequence=view.sequence,
            status=view.status,
            input=view.input or (),
            output=text_of(view.output or ()),
            response=view.response,
            result=view.result,
            error=view.error,
            reason=view.reason,
            created_at=view.created_at,
            ended_at=view.ended_at,
        )


class ContextPort(Protocol):
    """What a Context needs of whoever runs the handler."""

    async def history(self, limit: int) -> list[TurnView]:
        """The newest `limit` Turns before this one, oldest first."""
        ...


class Sessions:
    """Other Sessions, with the authority of this one. Every call is refused: not available yet."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[NoReturn]]:
        if name not in _SESSION_CALLS:
            raise AttributeError(name)

        async def refuse(*_: Any, **__: Any) -> NoReturn:
            raise Refused("not_implemented", f"ctx.sessions.{name} is not available yet")

        return refuse


_SESSION_CALLS = frozenset(
    ("spawn", "start", "get", "enqueue", "interrupt", "resume", "close", "cancel", "wait_turn")
)


class Context:
    """What lives longer than a Turn.

    `state` is a copy of the conversation's committed JSON value: assign or change it, and it is
    committed when the Turn completes or fails (S-18). `process` is what `init` returned, in
    memory as long as the Process lives (S-20).
    """

    def __init__(
        self,
        port: ContextPort,
        *,
        session: SessionInfo,
        state: Any,
        process: Any,
        process_epoch: int,
        recovery: Recovery,
        deployment: str,
    ) -> None:
        self._port = port
        self.session = session
        self.state = state
        self.process = process
        self.process_epoch = process_epoch
        self.recovery = recovery
        self.deployment = deployment
        self.sessions = Sessions()

    async def history(self, limit: int = 20) -> list[PastTurn]:
        """The newest `limit` earlier Turns, oldest first."""
        if limit < 1:
            raise ValueError("limit is at least 1")
        return [PastTurn.of(view) for view in await self._port.history(limit)]
