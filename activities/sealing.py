"""Sealing as an activity: what Sessions have settled, written to the store."""

from collections.abc import Callable
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from turnhold.session.handover import SealCall
from turnhold.store.folder import Folder
from turnhold.store.objects import Store, StoreFailed
from turnhold.temporal import names


class SealActivities:
    """For the store's own queue; `all` of them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def all(self) -> list[Callable[..., Any]]:
        return [self.seal]

    @activity.defn(name=names.SEAL)
    async def seal(self, call: SealCall) -> None:
        """Write; tried again until it is written, and harmless when it was before."""
        try:
            await Folder(self._store, call.prefix).seal(call)
        except StoreFailed as error:
            # Alone: with all its causes Temporal finds it too large, and keeps nothing of what it says.
            raise ApplicationError(
                str(error), type=names.STORE_FAILED, category=ApplicationErrorCategory.BENIGN
            ) from None
