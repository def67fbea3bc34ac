"""Standard input, line by line, beside an event loop."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator

_AHEAD = 100  # lines that are read before somebody wants them


class Lines:
    """The lines of a file descriptor, without their ends.

    The thread that reads may block for ever. It is a daemon and holds no lock, so that it keeps
    nobody from ending.
    """

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)
        threading.Thread(target=self._read, name="input", daemon=True).start()

    async def next(self) -> bytes | None:
        """The next line; None at the end, again and again."""
        line = await self._queue.get()
        if line is None:
            self._queue.put_nowait(None)
        return line

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        while (line := await self.next()) is not None:
            yield line

    def _read(self) -> None:
        rest = b""
        try:
            while chunk := os.read(self._descriptor, 65_536):
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    self._put(line)
            if rest:
                self._put(rest)
            self._put(None)
        except (OSError, RuntimeError):
            return  # the input, or the loop, is gone

    def _put(self, line: bytes | None) -> None:
        asyncio.run_coroutine_threadsafe(self._queue.put(line), self._loop).result()
