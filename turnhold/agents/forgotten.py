"""Calls whose `await` was forgotten: Python makes their coroutine, and silently does nothing."""

import asyncio
import inspect
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ForgottenAwait(Exception):
    """A call of a Turn was made without `await`, so it has not happened."""

    def __init__(self, call: str) -> None:
        super().__init__(f"{call} was called without await")


class Calls:
    """The coroutines that a Turn has handed out and that have not begun."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._unbegun: dict[int, tuple[str, Coroutine[Any, Any, Any]]] = {}

    def made(
        self, name: str, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]:
        """The coroutine of this call, watched until it begins."""
        number = next(self._numbers)

        async def begun() -> T:
            del self._unbegun[number]
            return await function(*args, **kwargs)

        coroutine = begun()
        self._unbegun[number] = (name, coroutine)
        return coroutine

    async def have_begun(self) -> None:
        """Raises ForgottenAwait for the first call that nobody awaits. A cancelled one is none."""
        if self._unbegun:
            await asyncio.sleep(0)  # a task just made of one begins now
        for name, coroutine in self._unbegun.values():
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                self._close()
                raise ForgottenAwait(name)

    def _close(self) -> None:
        """They will not be awaited any more, and Python need not warn of each."""
        for _, coroutine in self._unbegun.values():
            coroutine.close()
