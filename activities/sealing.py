"""The store's activities: what Sessions have settled is written, and inputs that wait, and these are read."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from turnhold.session.handover import FetchCall, Fetched, SealCall, SetAsideCall
from turnhold.store.folder import Folder
from turnhold.store.objects import Store, StoreError
from turnhold.temporal import names


class SealActivities:
    """For the store's own queue; `all` of them. Each is tried again until it is done, and may be repeated."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def all(self) -> list[Callable[..., Any]]:
        return [self.seal, self.set_aside, self.fetch]

    @activity.defn(name=names.SEAL)
    async def seal(self, call: SealCall) -> None:
        with _failing():
            await Folder(self._store, call.prefix).seal(call)

    @activity.defn(name=names.SET_ASIDE)
    async def set_aside(self, call: SetAsideCall) -> None:
        with _failing():
            await Folder(self._store, call.prefix).set_aside(call)

    @activity.defn(name=names.FETCH)
    async def fetch(self, call: FetchCall) -> Fetched:
        with _failing():
            return Fetched(content=await Folder(self._store, call.prefix).input(call.sequence))


@contextmanager
def _failing() -> Generator[None]:
    """A store that does not do it is no bug of ours."""
    try:
        yield
    except StoreError as error:
        # Alone: with all its causes Temporal finds it too large, and keeps nothing of what it says.
        raise ApplicationError(
            str(error), type=names.STORE_FAILED, category=ApplicationErrorCategory.BENIGN
        ) from None
