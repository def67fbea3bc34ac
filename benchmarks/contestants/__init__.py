"""Those who do the same job each in its own way."""

from typing import Protocol


class Contestant(Protocol):
    """What a caller of a conversation does. A `session` is whatever names one."""

    name: str

    async def first_turn(self) -> str:
        """Make a conversation with an input, and return it when its result is seen."""
        ...

    async def open(self) -> str:
        """A conversation that has done one Turn and is idle."""
        ...

    async def enqueue(self, session: str) -> str:
        """Give it one more input; return with its receipt, which names the Turn."""
        ...

    async def finished(self, session: str, turn: str) -> None:
        """Wait until that Turn is done."""
        ...

    async def conversation(self, turns: int) -> str:
        """Make one, give it all its inputs at once, and return it when all are done."""
        ...

    async def end(self, session: str) -> None:
        """Free whatever it occupies; not measured."""
        ...
