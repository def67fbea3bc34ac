"""The timeline: pages as JSON, and the same path as a live stream."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.responses import StreamingResponse
from starlette.routing import Match
from starlette.types import Scope

from api import problems
from api.parameters import EventsQuery, LastEventID
from api.problems import described
from api.services import ReadableSession, Wired
from turnhold.session.views import EventPage, PageRequest, ReadRequest, ReadResult
from turnhold.temporal.watch import PAGE_EVENTS, QUIET_SECONDS, End, Gap, Quiet, Watched, Watcher

EVENT_STREAM = "text/event-stream"
_QUIET = b": nothing new\n\n"
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class StreamRoute(APIRoute):
    """Answers only those who ask for an event stream; the page at the same path answers the others."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and EVENT_STREAM not in Headers(scope=scope).get("accept", ""):
            return Match.NONE, {}
        return super().matches(scope)


stream_router = APIRouter(prefix="/v1/sessions/{session_id}", route_class=StreamRoute)
router = APIRouter(prefix="/v1/sessions/{session_id}", tags=["events"])


@dataclass(frozen=True)
class Beginning:
    """Where a stream begins: the cursor, the kinds that pass, and how the Session stands."""

    session_id: str
    after: int
    kinds: frozenset[str]
    first: ReadResult


async def beginning(
    session_id: ReadableSession,
    wired: Wired,
    query: Annotated[EventsQuery, Query()],
    last_event_id: LastEventID = None,
) -> Beginning:
    """A stream that cannot begin is a problem, not a stream cut short: so this is a dependency."""
    after = query.after if last_event_id is None else last_event_id
    page = PageRequest(after=after, limit=PAGE_EVENTS)
    first = await wired.gateway.read(session_id, ReadRequest(pages=(page,)))
    return Beginning(session_id, after, frozenset(query.kind), first)


@stream_router.get("/events", response_class=StreamingResponse, include_in_schema=False)
async def stream_events(begin: Annotated[Beginning, Depends(beginning)], wired: Wired) -> StreamingResponse:
    """Every retained event after the cursor, as it happens, until the Session has ended."""
    return StreamingResponse(_frames(begin, wired.watcher), media_type=EVENT_STREAM, headers=_UNBUFFERED)


async def _frames(begin: Beginning, watcher: Watcher) -> AsyncIterator[bytes]:
    """Each item as Server-Sent Events have it. A reader that does not read holds up this alone."""
    clock = asyncio.get_running_loop().time
    yield f": {begin.session_id} after {begin.after}\n\n".encode()
    said = clock()
    events = watcher.events(begin.session_id, begin.after, begin.first)
    async with contextlib.aclosing(events):
        async for item in events:
            frame = _frame(item, begin.kinds)
            if frame is None and clock() - said > QUIET_SECONDS:
                frame = _QUIET
            if frame is not None:
                yield frame
                said = clock()


def _frame(item: Watched | Gap | Quiet | End, kinds: frozenset[str]) -> bytes | None:
    match item:
        case Watched(event=event, frame=frame):
            return frame if not kinds or event.kind in kinds else None
        case Quiet():
            return _QUIET
        case Gap(retained_after=boundary):
            return b'event: gap\ndata: {"retained_after":%d}\n\n' % boundary
        case End(terminated=terminated):
            return b": the Session was terminated\n\n" if terminated else None


_STREAM_DOCUMENTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A page; or, with `Accept: text/event-stream`, a live stream: `id` is the sequence, "
        "`event` the kind, `data` the record; `gap` says that older events are gone.",
        "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
    }
}


@router.get("/events", responses={**_STREAM_DOCUMENTED, **described(*problems.READING)})
async def get_events(
    session_id: ReadableSession,
    wired: Wired,
    query: Annotated[EventsQuery, Query()],
    last_event_id: LastEventID = None,
) -> EventPage:
    """A page of retained events after a sequence; a live stream for `Accept: text/event-stream`.

    A stream goes on after `Last-Event-ID`, and does not know `limit`.
    """
    wanted = PageRequest(after=query.after, limit=query.limit, kinds=tuple(query.kind))
    return (await wired.gateway.read(session_id, ReadRequest(pages=(wanted,)))).pages[0]
