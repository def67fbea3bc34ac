"""A Session's folder in the store: how its objects are named, written and read.

::

    <session id>/<first run id>/
        events/<last>-<first>    a segment of the timeline: one event a line
        turns/<last>-<first>     settled Turns: one a line
        inputs/<sequence>        the input of one Turn, if it was set aside while the Turn waited
        record                   the last record of a closed Session

The name of a segment or of Turns begins with the last number that is in it, so that the first object
beyond a cursor can be found by listing. They do not overlap, and together they have no gap. An input
stays for as long as its Turn is retained, whatever becomes of that.
"""

import asyncio
import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_json

from turnhold.session.handover import SealCall, SetAsideCall
from turnhold.session.model import Event, SessionState, Turn
from turnhold.session.values import CONTENT, Content
from turnhold.store.objects import Missing, Store

_DIGITS = 16  # JSON's largest whole number has as many
_NAME = re.compile(rf".*/(\d{{{_DIGITS}}})-(\d{{{_DIGITS}}})")
_AT_ONCE = 10
_EVENTS = TypeAdapter(tuple[Event, ...])
_TURNS = TypeAdapter(tuple[Turn, ...])
R = TypeVar("R", Event, Turn)


class Folder:
    """One Session's objects. Every method raises StoreFailed where the store fails."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self.prefix = prefix
        self._names: dict[str, list[tuple[int, int]]] = {}

    # --- writing --------------------------------------------------------------------------------

    async def seal(self, call: SealCall) -> None:
        """Write what a Session has settled, the last record after all that it builds on.

        Before that, remove what retention has dropped: a store that is full has room then.
        """
        await self._remove("events", call.retained_after)
        await self._remove("turns", call.turns_retained_after)
        await self._remove_inputs(call.turns_retained_after)
        await self._write("events", call.events)
        await self._write("turns", call.turns)
        if call.record is not None:
            await self._store.put(f"{self.prefix}/record", to_json(call.record, exclude_none=True))

    async def set_aside(self, call: SetAsideCall) -> None:
        """Write inputs of waiting Turns, some at a time."""
        for at in range(0, len(call.inputs), _AT_ONCE):
            some = call.inputs[at : at + _AT_ONCE]
            await asyncio.gather(
                *(self._store.put(self._input_path(one.sequence), to_json(one.content)) for one in some)
            )

    async def _remove_inputs(self, through: int) -> None:
        if through:
            last = self._input_path(through)
            found = await self._store.listing(f"{self.prefix}/inputs")
            await self._store.delete([item.path for item in found if item.path <= last])

    async def _remove(self, kind: str, through: int) -> None:
        """The objects of which nothing is retained, the oldest first (S-82)."""
        if through:
            names = sorted(await self._list(kind, 0))
            await self._store.delete(
                [self._path(kind, first, last) for last, first in names if last <= through]
            )

    async def _write(self, kind: str, records: Sequence[Event] | Sequence[Turn]) -> None:
        if records:
            path = self._path(kind, records[0].sequence, records[-1].sequence)
            await self._store.put(path, b"".join(to_json(record) + b"\n" for record in records))

    # --- reading --------------------------------------------------------------------------------

    async def record(self) -> SessionState | None:
        """The last record of a closed Session; None if there is none."""
        try:
            data = await self._store.get(f"{self.prefix}/record")
        except Missing:
            return None
        return SessionState.model_validate_json(data)

    async def input(self, sequence: int) -> Content:
        """The input of a Turn that was set aside.

        Raises:
            Missing: it is not there (any more).
        """
        return CONTENT.validate_json(await self._store.get(self._input_path(sequence)))

    async def events(self, after: int, through: int) -> AsyncIterator[Event]:
        """The sealed events after one sequence up to another, in order.

        Raises:
            Missing: some of them are not there (any more).
        """
        async for event in self._records("events", _EVENTS, after, through):
            yield event

    async def turns(self, after: int, through: int) -> AsyncIterator[Turn]:
        """The sealed Turns, in the same way."""
        async for turn in self._records("turns", _TURNS, after, through):
            yield turn

    async def _records(
        self, kind: str, adapter: TypeAdapter[tuple[R, ...]], after: int, through: int
    ) -> AsyncIterator[R]:
        cursor = after
        while cursor < through:
            last, first = await self._holding(kind, cursor + 1)
            data = await self._store.get(self._path(kind, first, last))
            for record in adapter.validate_json(b"[" + b",".join(data.splitlines()) + b"]"):
                if cursor < record.sequence <= through:
                    cursor = record.sequence
                    yield record
            if cursor < min(last, through):
                raise Missing(f"{self.prefix}/{kind} has less than its name says")

    async def _holding(self, kind: str, number: int) -> tuple[int, int]:
        """The last and first number of the object that holds `number`."""
        for listed in (False, True):
            if listed:
                known = set(self._names.get(kind, ()))
                self._names[kind] = sorted(known | set(await self._list(kind, number)))
            names = self._names.get(kind, [])
            at = bisect_right(names, (number - 1, _LARGEST))
            if at < len(names) and names[at][1] <= number:
                return names[at]
        raise Missing(f"{self.prefix}/{kind} does not hold {number}")

    async def _list(self, kind: str, number: int) -> list[tuple[int, int]]:
        found = await self._store.listing(f"{self.prefix}/{kind}", after=f"{number:0{_DIGITS}d}")
        matches = [_NAME.fullmatch(item.path) for item in found]
        return [(int(match[1]), int(match[2])) for match in matches if match]

    def _input_path(self, sequence: int) -> str:
        return f"{self.prefix}/inputs/{sequence:0{_DIGITS}d}"

    def _path(self, kind: str, first: int, last: int) -> str:
        return f"{self.prefix}/{kind}/{last:0{_DIGITS}d}-{first:0{_DIGITS}d}"


_LARGEST: Any = float("inf")
