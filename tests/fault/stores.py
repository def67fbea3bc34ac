"""Stores that really fail: what the kernel, or a server that is gone, makes of them."""

import ctypes
import os
import signal
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import ClassVar, Self

import pytest

from tests.bucket import Bucket

_HERE, _RENAME_EXCHANGE = -100, 2  # of Linux


class FailingStore:
    """A store that works until it is told to fail, and again once it is mended.

    `words` are in what it says then; `readable` is whether it can be read all the same.
    """

    words: ClassVar[str]
    readable: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "store"
        self.folder.mkdir()
        self.settings = {"TURNHOLD_STORE": str(self.folder)}
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def fail(self, *session_ids: str) -> None:
        """From now on it takes nothing of these Sessions; perhaps of none."""
        raise NotImplementedError

    def mend(self) -> None:
        raise NotImplementedError

    def paths(self, session_id: str) -> list[str]:
        """The objects of a Session, while it works."""
        return [str(path) for path in self.folder.glob(f"{session_id}/*/**/*") if path.is_file()]


class _Volume(FailingStore):
    """A file system of its own, in memory."""

    size = "64m"
    readable = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        said = _mount("-t", "tmpfs", "-o", f"size={self.size}", "turnhold-test", str(self.folder))
        if said is not None:
            pytest.skip(f"this kernel lets nobody here mount a file system: {said}")
        self._undo.callback(subprocess.run, ["umount", "-l", str(self.folder)], check=True)

    def remount(self, option: str) -> None:
        assert _mount("-o", f"remount,{option}", str(self.folder)) is None


class ReadOnly(_Volume):
    """A volume that turns read-only, as one does whose disk fails."""

    words = "Read-only file system"

    def fail(self, *session_ids: str) -> None:
        self.remount("ro")

    def mend(self) -> None:
        self.remount("rw")


class Full(_Volume):
    """A volume on which Sessions use up the last of the space, until it is made larger."""

    size = "1m"
    words = "No space left on device"

    def fail(self, *session_ids: str) -> None:
        """It fills by itself."""

    def fill_up(self) -> None:
        """Take all the space that is left."""
        with suppress(OSError):
            (self.folder / "ballast").write_bytes(bytes(1024 * 1024))

    def mend(self) -> None:
        self.remount("size=64m")


class InTheWay(FailingStore):
    """A folder in which a plain file stands where each Session's own folder was."""

    words = "Not a directory"

    def fail(self, *session_ids: str) -> None:
        self._moved = [(self.folder / each, self.folder / f"aside-{each}") for each in session_ids]
        for place, aside in self._moved:
            aside.write_text("in the way")
            _exchange(place, aside)

    def mend(self) -> None:
        for place, aside in self._moved:
            _exchange(place, aside)


class _Server(FailingStore):
    """A bucket on a server of our own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.bucket = Bucket(folder)
        self.settings = self.bucket.settings
        self.server = self.bucket.make()
        self._undo.callback(self.server.kill)

    def paths(self, session_id: str) -> list[str]:
        return self.bucket.paths(session_id)


class Killed(_Server):
    """Its server is gone: nobody listens."""

    words = "error sending request"

    def fail(self, *session_ids: str) -> None:
        self.server.kill()

    def mend(self) -> None:
        self.bucket.start_again()


class Hanging(_Server):
    """Its server takes connections, and never answers."""

    words = "no answer within 10 s"

    def fail(self, *session_ids: str) -> None:
        self.server.send(signal.SIGSTOP)

    def mend(self) -> None:
        self.server.send(signal.SIGCONT)


def _mount(*arguments: str) -> str | None:
    """None, or why it was not done."""
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.partition("\n")[0] or f"exit code {done.returncode}"


def _exchange(one: Path, other: Path) -> None:
    """Each takes the other's name, at once: nobody finds neither."""
    done = ctypes.CDLL(None, use_errno=True).renameat2(
        _HERE, os.fsencode(one), _HERE, os.fsencode(other), _RENAME_EXCHANGE
    )
    if done:
        raise OSError(ctypes.get_errno(), f"cannot exchange {one} and {other}")
