"""The sweeper: what the store has of Sessions that Temporal no longer knows is removed.

A folder goes only on Temporal's own word that there is no such workflow, and never on an error. A
store that several namespaces use is not swept: each would take the others' Sessions for gone.
"""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from turnhold.store.objects import Store, StoreError
from turnhold.temporal import failures

log = logging.getLogger(__name__)

EVERY_SECONDS = 3600.0
YOUNGEST = timedelta(hours=1)  # what was written since is left alone
_CLAIMS = "namespaces"
_SESSION = "ses_"
_CALL = timedelta(seconds=10)


class Shared(Exception):
    """Other namespaces use this store too. One line for people."""


class Swept(NamedTuple):
    """What a sweep has found: folders looked at, and those that were removed (or would be)."""

    looked_at: int
    removed: tuple[str, ...]


class Sweeper:
    """Sweeps one store for one namespace."""

    def __init__(self, client: Client, store: Store) -> None:
        self._client = client
        self._store = store

    async def run(self) -> None:
        """Claim the store for the namespace at once, then sweep hourly."""
        claimed = False
        while True:
            try:
                if claimed:
                    swept = await self.sweep()
                    log.info("swept the store: %d of %d folders removed", len(swept.removed), swept.looked_at)
                else:
                    await self.claim()
                    claimed = True
            except (StoreError, RPCError, Shared, RuntimeError) as error:
                log.warning("the store was not swept: %s", failures.plain(error))
            await asyncio.sleep(EVERY_SECONDS if claimed else 60)

    async def claim(self) -> str:
        """Leave word that this namespace uses the store; answers the word's path."""
        request = DescribeNamespaceRequest(namespace=self._client.namespace)
        answer = await self._client.workflow_service.describe_namespace(request, timeout=_CALL)
        path = f"{_CLAIMS}/{answer.namespace_info.id}"
        await self._store.put(path, self._client.namespace.encode())
        return path

    async def sweep(self, *, dry_run: bool = False, now: datetime | None = None) -> Swept:
        """Remove the folders of Sessions that are gone; with `dry_run` only name them.

        Raises:
            Shared, StoreError, RPCError: nothing more is removed.
        """
        own = await self.claim()
        if others := [found.path for found in await self._store.listing(_CLAIMS) if found.path != own]:
            raise Shared(f"other namespaces use this store too ({', '.join(others)}): it is not swept")
        before = (now or datetime.now(UTC)) - YOUNGEST
        looked_at, removed = 0, list[str]()
        for session in await self._store.folders():
            if not session.startswith(_SESSION):
                continue
            for folder in await self._store.folders(session):
                looked_at += 1
                found = await self._store.listing(folder)
                old = all(item.modified < before for item in found)
                if old and await self._is_gone(*folder.split("/", 1)):
                    if not dry_run:
                        await self._store.delete([item.path for item in found])
                    removed.append(folder)
        return Swept(looked_at, tuple(removed))

    async def _is_gone(self, session_id: str, first_run: str) -> bool:
        """Whether Temporal knows neither the Session nor, of an ID used anew, its first run.

        A Session that lives for long outlives its first run, so that alone says nothing.
        """
        try:
            latest = await self._client.get_workflow_handle(session_id).describe(rpc_timeout=_CALL)
        except RPCError as error:
            if failures.is_missing(error):
                return True
            raise
        if latest.raw_description.workflow_execution_info.first_run_id == first_run:
            return False
        try:
            await self._client.get_workflow_handle(session_id, run_id=first_run).describe(rpc_timeout=_CALL)
        except RPCError as error:
            if failures.is_missing(error):
                return True
            raise
        return False
