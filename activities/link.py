"""How a host reaches Sessions."""

from collections.abc import Collection, Sequence
from typing import Protocol

from turnhold.session.hosting import Report
from turnhold.session.views import TurnView


class SessionLink(Protocol):
    """What a host asks for by itself."""

    async def report(self, session_id: str, report: Report) -> bool:
        """Hand facts to the Session; False when it is no more. Any exception: unknown, send again."""
        ...

    async def history(self, session_id: str, limit: int) -> list[TurnView]:
        """The newest `limit` settled Turns, oldest first, with input and output."""
        ...

    async def ended(self, session_ids: Sequence[str]) -> Collection[str]:
        """Which of these Sessions are no more; cheap for many. Any exception: not known now."""
        ...

    async def expects(self, session_id: str, epoch: int) -> bool:
        """Whether this Session counts on its Process of that epoch. Any exception: not known now."""
        ...
