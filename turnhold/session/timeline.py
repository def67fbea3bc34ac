"""The timeline: pages of what the state has of it."""

from turnhold.session import limits
from turnhold.session.model import Event, SessionState
from turnhold.session.values import encoded_bytes
from turnhold.session.views import EventPage, EventView, PageRequest


class Filling:
    """A page while it is filled: up to the limit or 1 MiB, never empty while there are more (S-81)."""

    def __init__(self, request: PageRequest) -> None:
        self._request = request
        self._records: list[EventView] = []
        self._size = 0
        self._full = False

    def wants(self, event: Event) -> bool:
        request = self._request
        of_turn = request.turn_id in (None, event.turn_id)
        return of_turn and (not request.kinds or event.kind in request.kinds)

    def take(self, event: EventView) -> bool:
        """Add an event that is wanted; False once there is one that the page has no room for."""
        self._size += encoded_bytes(event)
        over = len(self._records) >= self._request.limit or self._size > limits.PAGE_BYTES
        self._full = bool(self._records) and over
        if not self._full:
            self._records.append(event)
        return not self._full

    def page(self, retained_after: int, *, more: bool = False) -> EventPage:
        return EventPage(
            records=tuple(self._records),
            next_after=self._records[-1].sequence if self._records else self._request.after,
            has_more=self._full or more,
            retained_after=retained_after,
        )


def page(state: SessionState, request: PageRequest) -> EventPage:
    """What the tail has of a page."""
    filling = Filling(request)
    start = max(request.after - state.tail_after, 0)
    end = None if request.through is None else max(request.through - state.tail_after, 0)
    for event in state.timeline[start:end]:
        if filling.wants(event) and not filling.take(view(state.id, event)):
            break
    return filling.page(state.retained_after)


def view(session_id: str, event: Event) -> EventView:
    return EventView(
        session_id=session_id,
        turn_id=event.turn_id,
        sequence=event.sequence,
        created_at=event.created_at,
        kind=event.kind,
        data=event.data,
    )
