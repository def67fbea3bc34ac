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

    async def enqueue(self, session: str) -> None:
        """Give it one more input; return with the receipt."""
        ...

    async def finished(self, session: str, turns: int) -> None:
        """Wait until it has done so many Turns."""
        ...

    async def conversation(self, turns: int) -> str:
        """Make one, give it so many inputs one after another, and return it when all are done."""
        ...

    async def end(self, session: str) -> None:
        """Free whatever it occupies; not measured."""
        ...
