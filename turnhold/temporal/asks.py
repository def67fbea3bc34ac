"""Reading what Turns ask: lists of any length, gathered page by page."""

from collections.abc import Awaitable, Callable

from turnhold.session.model import AskStatus
from turnhold.session.views import AskPage, AsksRequest, AskView, ReadRequest, ReadResult
from turnhold.temporal import failures, terminated
from turnhold.temporal.failures import Failure

Read = Callable[[str, ReadRequest], Awaitable[ReadResult]]


class Asks:
    """The Asks of Sessions.

    Args:
        read: of the gateway.
    """

    def __init__(self, read: Read) -> None:
        self._read = read

    async def list(
        self, session_id: str, *, turn_id: str | None = None, status: AskStatus | None = None
    ) -> tuple[AskView, ...]:
        """Retained Asks in the order in which they were asked; of this Turn, in this status, if named.

        Raises:
            Failure: as a read, or `turn_not_found`.
        """
        found: list[AskView] = []
        request = AsksRequest(turn_id=turn_id, status=status)
        while True:
            result, page = await self._page(session_id, request)
            if request.status is not None and terminated.is_terminated(result.session):
                request, found = AsksRequest(turn_id=turn_id), []  # its own pending ones are so no more
                continue
            found += page.asks
            if not page.has_more:
                return tuple(ask for ask in found if status in (None, ask.status))
            request = request.but(after=page.asks[-1].id)

    async def get(self, session_id: str, turn_id: str, ask_id: str) -> AskView:
        """One Ask.

        Raises:
            Failure: as a read, `turn_not_found` or `ask_not_found`.
        """
        _, page = await self._page(session_id, AsksRequest(turn_id=turn_id, ask_id=ask_id))
        if not page.asks:
            raise Failure("ask_not_found", f"This Turn has no Ask {ask_id}.", session_id=session_id)
        return page.asks[0]

    async def _page(self, session_id: str, request: AsksRequest) -> tuple[ReadResult, AskPage]:
        result = await self._read(session_id, ReadRequest(ask_pages=(request,)))
        page = result.ask_pages[0]
        if not page.turn_known:
            raise failures.turn_not_found(session_id, request.turn_id or "")
        return result, page
