"""Reading across the tail, which a Session's state has, and the store: a caller cannot tell which.

What a query (or the last record) answers is completed here with what has left the state.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from turnhold.session import ids, limits, reading, timeline
from turnhold.session.model import SessionState, Turn
from turnhold.session.values import encoded_bytes
from turnhold.session.views import (
    ArchiveView,
    AskPage,
    AsksRequest,
    EventPage,
    Extent,
    PageRequest,
    ReadRequest,
    ReadResult,
    SessionView,
    TurnsRequest,
    TurnView,
)
from turnhold.store.folder import Folder
from turnhold.store.objects import Store

_FOLDERS = 200  # whose names are remembered
_RECORDS = 8


class Archive:
    """What Sessions have in the store, as their readers see it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._folders: OrderedDict[str, Folder] = OrderedDict()
        self._records: OrderedDict[str, SessionState] = OrderedDict()

    async def record(self, prefix: str) -> SessionState | None:
        """The last record of a closed Session, which is only read once it does not change any more.

        Raises:
            StoreFailed.
        """
        known = self._records.pop(prefix, None) or await self._folder(prefix).record()
        if known is not None:
            self._records[prefix] = known
            if len(self._records) > _RECORDS:
                self._records.popitem(last=False)
        return known

    async def complete(self, request: ReadRequest, result: ReadResult) -> ReadResult:
        """`result` of `request` with what only the store has.

        Raises:
            StoreFailed; Missing: the Session has moved on meanwhile, and is asked again.
        """
        view = result.archive
        if view is None:
            return result
        folder = self._folder(view.prefix)
        at_hand = {
            turn_id: turn if turn.input is not None else turn.but(input=await folder.input(turn.sequence))
            for turn_id, turn in result.turns_by_id.items()
        }
        result = result.but(turns_by_id=at_hand)
        if not (view.events or view.turns):
            return result
        reader = _Reader(folder, view, result.session)
        pages = [await reader.page(*pair) for pair in zip(request.pages, result.pages, strict=True)]
        lists = [await reader.turns(*pair) for pair in zip(request.turns, result.turns, strict=True)]
        asks = [await reader.asks(*pair) for pair in zip(request.ask_pages, result.ask_pages, strict=True)]
        turns, extents = await reader.named([t for t in request.turn_ids if t not in result.turns_by_id])
        return result.but(
            pages=tuple(pages),
            turns=tuple(lists),
            ask_pages=tuple(asks),
            turns_by_id=result.turns_by_id | turns,
            extents=result.extents | extents,
        )

    def _folder(self, prefix: str) -> Folder:
        """Names are kept as long as a Session is read: they are only ever added to, or cut off."""
        folder = self._folders.pop(prefix, None) or Folder(self._store, prefix)
        self._folders[prefix] = folder
        if len(self._folders) > _FOLDERS:
            self._folders.popitem(last=False)
        return folder


class _Reader:
    """One answer, and the folder with what it lacks."""

    def __init__(self, folder: Folder, view: ArchiveView, session: SessionView) -> None:
        self._folder = folder
        self._view = view
        self._session_id = session.id
        self._retained_after = session.retained_after

    async def page(self, request: PageRequest, tail: EventPage) -> EventPage:
        """The page of which `tail` is what the state has."""
        if request.after >= self._view.events:
            return tail
        filling = timeline.Filling(request)
        after = max(request.after, tail.retained_after)
        sealed = self._view.events
        through = sealed if request.through is None else min(sealed, request.through)
        async for event in self._folder.events(after, through):
            if filling.wants(event) and not filling.take(timeline.view(self._session_id, event)):
                return filling.page(tail.retained_after)
        for event in tail.records:
            if not filling.take(event):
                return filling.page(tail.retained_after)
        return filling.page(tail.retained_after, more=tail.has_more)

    async def turns(self, request: TurnsRequest, later: tuple[TurnView, ...]) -> tuple[TurnView, ...]:
        """The list of which `later` is what the state has."""
        if request.after >= self._view.turns or request.status in ("queued", "running"):
            return later
        found: list[TurnView] = []
        size = 0
        async for turn in self._turns(request, later):
            size += encoded_bytes(turn)
            if found and (len(found) == request.limit or size > limits.PAGE_BYTES):
                break
            found.append(turn)
        return tuple(found)

    async def _turns(self, request: TurnsRequest, later: tuple[TurnView, ...]) -> AsyncIterator[TurnView]:
        async for record in self._folder.turns(
            max(request.after, self._view.turns_retained_after), self._view.turns
        ):
            if request.status in (None, record.status):
                yield self._shown(record)
        for turn in later:
            yield turn

    async def named(self, turn_ids: Sequence[str]) -> tuple[dict[str, TurnView], dict[str, Extent]]:
        """Sealed Turns with their input, and where in the timeline each of them is."""
        found: dict[str, TurnView] = {}
        extents: dict[str, Extent] = {}
        for turn_id in turn_ids:
            record = await self._turn(turn_id)
            if record is not None:
                output = None if record.output_bytes else ()
                away = record.input_away
                given = await self._folder.input(record.sequence) if away else record.input
                found[turn_id] = self._shown(record).but(input=given, output=output)
                extents[turn_id] = (record.first_event, record.last_event)
        return found, extents

    async def asks(self, request: AsksRequest, later: AskPage) -> AskPage:
        """The page of which `later` is what the state has; what is older stands before the first one.

        The state has every Ask that is pending, or was settled since the tail begins.
        """
        extent = later.extent
        if request.turn_id is not None and extent is None:
            turn = await self._turn(request.turn_id)
            if turn is None:
                return later
            extent = (turn.first_event, turn.last_event)
            later = later.but(turn_known=True)
        if request.after is not None or request.status == "pending":
            return later
        first, last = extent or (1, None)
        settled = reading.SettledAsks()
        after = max(first - 1, self._retained_after)
        sealed = self._view.events
        async for event in self._folder.events(after, sealed if last is None else min(last, sealed)):
            if event.kind in settled.KINDS and request.turn_id in (None, event.turn_id):
                settled.follow(event)
        return later.but(asks=(*settled.found(request), *later.asks))

    async def _turn(self, turn_id: str) -> Turn | None:
        number = ids.number_of("trn", self._view.seed, turn_id) or 0
        if not self._view.turns_retained_after < number <= self._view.turns:
            return None
        async for turn in self._folder.turns(number - 1, number):
            return turn
        return None

    def _shown(self, record: Turn) -> TurnView:
        turn_id = ids.numbered("trn", self._view.seed, record.sequence)
        return reading.turn(self._session_id, turn_id, record)
