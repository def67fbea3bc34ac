"""How a host reaches Sessions."""

from typing import Protocol

from turnhold.session.hosting import Report
from turnhold.session.views import TurnView


class SessionLink(Protocol):
    """The two things that a host asks for by itself."""

    async def report(self, session_id: str, report: Report) -> bool:
        """Hand facts to the Session; False when it is no more. Any exception: unknown, send again."""
        ...

    async def history(self, session_id: str, limit: int) -> list[TurnView]:
        """The newest `limit` settled Turns, oldest first, with input and output."""
        ...
