"""Whether a Session's run can take more: without a worker nobody begins a new one (S-95)."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from turnhold.session import limits
from turnhold.temporal.calls import Mark
from turnhold.temporal.failures import Failure

_SECONDS = 1.0  # how long an answer counts
_KEPT = 10_000


class Rooms:
    """Asks Temporal at most once a second for each Session, and not while a worker answers for it.

    Args:
        mark: where the Session's run stands; raises a `Failure`.
    """

    def __init__(self, mark: Callable[[str], Awaitable[Mark]]) -> None:
        self._mark = mark
        self._known: dict[str, tuple[float, bool]] = {}
        self._asking: dict[str, asyncio.Task[bool]] = {}

    async def check(self, session_id: str) -> None:
        """Raises:
        Failure: `session_busy`; whatever `mark` raises.
        """
        at, full = self._known.get(session_id, (0.0, False))
        if time.monotonic() - at > _SECONDS:
            asking = self._asking.get(session_id)
            if asking is None:
                asking = self._asking[session_id] = asyncio.create_task(self._ask(session_id))
                asking.add_done_callback(lambda _: self._asking.pop(session_id))
            full = await asyncio.shield(asking)
        if full:
            raise Failure(
                "session_busy",
                "This Session takes no more before a worker has looked at what is waiting.",
                session_id=session_id,
            )

    async def _ask(self, session_id: str) -> bool:
        full = (await self._mark(session_id)).history_length > limits.BUSY_EVENTS
        self._note(session_id, full)
        return full

    def answered(self, session_id: str) -> None:
        """It is new, or a worker has answered, which begins a new run by itself when this one is long."""
        self._note(session_id, False)

    def _note(self, session_id: str, full: bool) -> None:
        self._known.pop(session_id, None)
        self._known[session_id] = (time.monotonic(), full)
        if len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
