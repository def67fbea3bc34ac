"""What Sessions answer: a living one by query, a closed one from its last record in the store.

Whatever has left a Session's state is read from the store, and nobody is told the difference. So a
closed Session needs no worker to be read (S-83, S-92).
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from turnhold.session.machine import Machine
from turnhold.session.model import SessionState
from turnhold.session.views import ReadRequest, ReadResult
from turnhold.store.archive import Archive
from turnhold.store.objects import Missing, Store, StoreFailed
from turnhold.temporal import names, terminated
from turnhold.temporal.calls import Calls
from turnhold.temporal.failures import storage_unavailable
from turnhold.temporal.pulse import BUSY_SECONDS
from turnhold.temporal.reader import Readers

_RECORD_SECONDS = 1.5  # with the calls before it, within what a reader waits
_TRIES = 3  # retention may overtake a reader: its next answer knows the new boundary


class Answers:
    """Reads of Sessions, coalesced and completed.

    Args:
        on_answer: called with the ID of each Session that a worker has answered for.
    """

    def __init__(
        self, calls: Calls, store: Store | None, *, on_answer: Callable[[str], None] = lambda session_id: None
    ) -> None:
        self._calls = calls
        self._on_answer = on_answer
        self._archive = None if store is None else Archive(store)
        self._readers = Readers(self._query, calls.pulse)

    async def read(
        self, session_id: str, request: ReadRequest, seconds: float, longest: float = BUSY_SECONDS
    ) -> ReadResult:
        """Everything asked for, as of now. The seconds are for the Session; the store has its own.

        Raises:
            Failure: `session_not_found`, `worker_unavailable`, `temporal_unavailable`,
                `storage_unavailable`.
        """
        for tried in range(_TRIES):
            result = await self._readers.read(session_id, request, seconds, longest)
            if self._archive is None:
                return result
            try:
                return await self._archive.complete(request, result)
            except StoreFailed as error:
                raise storage_unavailable(session_id, error) from error
            except Missing as error:
                if tried == _TRIES - 1:
                    raise storage_unavailable(session_id, error) from error
        raise AssertionError

    async def _query(self, session_id: str, request: ReadRequest) -> ReadResult:
        queried = await self._calls.query(session_id, request)
        if queried.result is None:
            record = await self._record(session_id)
            if record is not None:
                return Machine(record).read(request, datetime.now(UTC))
            queried = await self._calls.query(session_id, request, also_completed=True)
            assert queried.result is not None
        self._on_answer(session_id)
        if not queried.unclean:
            return queried.result
        description = await self._calls.describe(session_id)
        return terminated.overlay(queried.result, description.close_time)

    async def _record(self, session_id: str) -> SessionState | None:
        if self._archive is None:
            return None
        prefix = await self.prefix(session_id)
        try:
            async with asyncio.timeout(_RECORD_SECONDS):
                return await self._archive.record(prefix)
        except (StoreFailed, TimeoutError) as error:
            raise storage_unavailable(session_id, error) from error

    async def prefix(self, session_id: str) -> str:
        """The Session's folder in the store.

        Raises:
            Failure: `session_not_found` or `temporal_unavailable`.
        """
        description = await self._calls.describe(session_id)
        first_run = description.raw_description.workflow_execution_info.first_run_id
        return names.folder_of(session_id, first_run)
