"""What a handler knows beside its Turn: the Session, its memory, its past, and other Sessions."""

from typing import Any, Protocol

from turnhold.agents.past import PastTurn
from turnhold.agents.sessions import Sessions
from turnhold.session.hosting import Recovery, SessionInfo
from turnhold.session.views import TurnView


class ContextPort(Protocol):
    """What a Context needs of whoever runs the handler."""

    async def history(self, limit: int) -> list[TurnView]:
        """The newest `limit` Turns before this one, oldest first."""
        ...


class Context:
    """What lives longer than a Turn.

    `state` is a copy of the conversation's committed JSON value: assign or change it, and it is
    committed when the Turn completes or fails (S-18). `process` is what `init` returned, in
    memory as long as the Process lives (S-20). `sessions` are other Sessions (S-70).
    """

    def __init__(
        self,
        port: ContextPort,
        *,
        sessions: Sessions,
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
        self.sessions = sessions

    async def history(self, limit: int = 20) -> list[PastTurn]:
        """The newest `limit` earlier Turns, oldest first."""
        if limit < 1:
            raise ValueError("limit is at least 1")
        return [PastTurn.of(view) for view in await self._port.history(limit)]
