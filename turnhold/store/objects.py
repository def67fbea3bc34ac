"""Objects by name: a directory or a bucket, bounded in time, with two errors that mean something.

::

    StoreError
      + StoreFailed     it does not answer, or refuses: may be tried again
      + Missing         it answers, and there is no such object
    StoreUnusable       at the start: it is configured wrongly, and one line says how
"""

import asyncio
import errno
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from obstore import exceptions
from obstore.store import LocalStore, ObjectStore, from_url

if TYPE_CHECKING:
    from obstore.store import RetryConfig

CALL_SECONDS = 10.0
_MARKER = ".turnhold-store"
_CACHED_SHARE = 8  # one object takes at most this part of the cache
_SYNCED = os.O_RDONLY
_HOPELESS = (
    "builder error",  # what is said of an `http://` endpoint without `AWS_ALLOW_HTTP=true`
    f"(os error {errno.EACCES})",
    f"(os error {errno.EPERM})",
)
_LINE_CHARS = 500
_FAILED = (exceptions.BaseError, OSError, ValueError, TimeoutError)
_MISCONFIGURED = (
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    exceptions.UnknownConfigurationKeyError,
    FileNotFoundError,
    PermissionError,
)


class StoreError(Exception):
    """The store did not do what was asked. One line for people."""


class StoreFailed(StoreError):
    """It does not answer, or refuses. Nothing is known to be lost; may be tried again."""


class Missing(StoreError):
    """The store answers, and has no such object."""


class StoreUnusable(Exception):
    """The store cannot be used as it is configured. One line for people."""


class Found(NamedTuple):
    """An object as a listing shows it."""

    path: str
    modified: datetime


class Store:
    """Objects by name. Every object but the last record of a Session is written once and never changed.

    Args:
        objects: the directory or bucket.
        root: the directory, if it is one.
        cache_bytes: how much of what was read is kept in memory.
    """

    def __init__(self, objects: ObjectStore, root: Path | None = None, *, cache_bytes: int = 0) -> None:
        self._objects = objects
        self._root = root
        self._cache = _Cache(cache_bytes)

    @classmethod
    def at(cls, url: str, *, cache_bytes: int = 0) -> "Store":
        """The store at `url`: a path, `file://…`, or whatever obstore knows (`s3://`, `gs://`, `az://`).

        A directory is made if it is not there.

        Raises:
            StoreUnusable: there can be none.
        """
        try:
            root = _directory(url)
            if root is not None:
                root.mkdir(parents=True, exist_ok=True)
                if not (root / _MARKER).exists():  # a volume that is read-only now has it
                    (root / _MARKER).touch()
                return cls(LocalStore(root), root, cache_bytes=cache_bytes)
            # No options for its client: with any, it would not read those in the environment.
            retries: RetryConfig = {
                "max_retries": 2,
                "retry_timeout": timedelta(seconds=CALL_SECONDS / 2),
            }
            objects = from_url(url, retry_config=retries)
        except _FAILED as error:
            raise StoreUnusable(f"TURNHOLD_STORE: {url!r} cannot be used: {_line(error)}") from error
        return cls(objects, cache_bytes=cache_bytes)

    async def check(self) -> str | None:
        """Write, read and remove an object: None, or why it failed though it may work later.

        Raises:
            StoreUnusable: it will not work until somebody changes something.
        """
        name = f"check-{os.urandom(8).hex()}"
        try:
            await self.put(name, b"turnhold")
            await self.get(name)
            await self.delete([name])
        except StoreError as error:
            said = any(words in str(error) for words in _HOPELESS)
            if said or isinstance(error.__cause__, _MISCONFIGURED):
                raise StoreUnusable(f"TURNHOLD_STORE cannot be used: {error}") from error
            return str(error)
        return None

    async def put(self, path: str, data: bytes) -> None:
        """Write an object: whole, or not at all.

        Raises:
            StoreFailed: it is not certain whether it was written.
        """
        async with self._call(path):
            await self._objects.put_async(path, data, use_multipart=False)
            if self._root is not None:
                await asyncio.to_thread(_to_disk, self._root / path)

    async def get(self, path: str) -> bytes:
        """An object's bytes.

        Raises:
            Missing, StoreFailed.
        """
        known = self._cache.get(path)
        if known is not None:
            return known
        async with self._call(path):
            data = bytes(await (await self._objects.get_async(path)).bytes_async())
        self._cache.put(path, data)
        return data

    async def listing(self, folder: str, after: str = "") -> list[Found]:
        """What lies anywhere under `folder`, by name, from the first name in it that is beyond `after`.

        Raises:
            StoreFailed.
        """
        async with self._call(folder):
            found = await self._objects.list_async(
                folder, offset=f"{folder}/{after}" if after else None
            ).collect_async()
            return sorted(Found(meta["path"], meta["last_modified"]) for meta in found)

    async def folders(self, folder: str = "") -> list[str]:
        """The paths of what lies directly under `folder` and holds objects.

        Raises:
            StoreFailed.
        """
        async with self._call(folder):
            found = await self._objects.list_with_delimiter_async(folder or None)
            return sorted(found["common_prefixes"])

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove objects; those that are not there are no error.

        Raises:
            StoreFailed.
        """
        for path in paths:
            try:
                async with self._call(path):
                    await self._objects.delete_async(path)
            except Missing:
                continue

    @asynccontextmanager
    async def _call(self, path: str) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                if self._root is not None and not (self._root / _MARKER).exists():
                    raise StoreFailed(f"the folder {self._root} is gone, or is another one")
                yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise StoreFailed(_line(error)) from error
            raise Missing(f"there is no object {path}") from error
        except TimeoutError as error:
            raise StoreFailed(f"no answer within {CALL_SECONDS:g} s") from error
        except _FAILED as error:
            raise StoreFailed(_line(error)) from error


class _Cache:
    """The objects that were read last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def get(self, path: str) -> bytes | None:
        data = self._kept.get(path)
        if data is not None:
            self._kept.move_to_end(path)
        return data

    def put(self, path: str, data: bytes) -> None:
        if path in self._kept or len(data) > self._most // _CACHED_SHARE:
            return
        self._kept[path] = data
        self._bytes += len(data)
        while self._bytes > self._most:
            self._bytes -= len(self._kept.popitem(last=False)[1])


def _directory(url: str) -> Path | None:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path)).absolute()
    return None if "://" in url else Path(url).expanduser().absolute()


def _to_disk(path: Path) -> None:
    """A Session forgets what it has sealed: it must have survived the machine by then."""
    for kept in (path, path.parent):
        descriptor = os.open(kept, _SYNCED)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _line(error: Exception) -> str:
    """What went wrong, without obstore's debug output; a server may have answered with a whole page."""
    said = " ".join(str(error).partition("Debug source:")[0].split()) or type(error).__name__
    return said if len(said) <= _LINE_CHARS else f"{said[: _LINE_CHARS - 1]}…"
