"""Whether a Session's run can take more: without a worker nobody begins a new one (S-95)."""

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from turnhold.session import limits
from turnhold.temporal.failures import Failure

_SECONDS = 1.0  # how long an answer counts
_KEPT = 10_000


class Run(Protocol):
    """What `room` needs to know of a Session's run."""

    @property
    def history_length(self) -> int: ...


class Rooms:
    """Asks Temporal at most once a second for each Session, and not while a worker answers for it.

    Args:
        describe: the Session's current run; raises a `Failure`.
    """

    def __init__(self, describe: Callable[[str], Awaitable[Run]]) -> None:
        self._describe = describe
        self._known: dict[str, tuple[float, bool]] = {}

    async def check(self, session_id: str) -> None:
        """Raises:
        Failure: `session_busy`; whatever `describe` raises.
        """
        at, full = self._known.get(session_id, (0.0, False))
        if time.monotonic() - at > _SECONDS:
            full = (await self._describe(session_id)).history_length > limits.BUSY_EVENTS
            self._note(session_id, full)
        if full:
            raise Failure(
                "session_busy",
                "This Session takes no more before a worker has looked at what is waiting.",
                session_id=session_id,
            )

    def answered(self, session_id: str) -> None:
        """A worker has answered: it begins a new run by itself when this one is long."""
        self._note(session_id, False)

    def _note(self, session_id: str, full: bool) -> None:
        self._known.pop(session_id, None)
        self._known[session_id] = (time.monotonic(), full)
        if len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
