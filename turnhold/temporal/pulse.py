"""Whether workers answer at all: a read gives up in silence, not while others are being answered.

A worker that is busy is not one that is away. Whoever gave up on it and asked again would only
stand at the end of its queue once more, and leave it a question that nobody waits for.
"""

import asyncio

BUSY_SECONDS = 10.0  # the longest wait for a worker that answers others


class Pulse:
    """When a worker last answered anybody in this process."""

    def __init__(self) -> None:
        self._answered = float("-inf")

    def beat(self) -> None:
        """A worker has answered."""
        self._answered = asyncio.get_running_loop().time()

    def silence(self, begun: float) -> float:
        """Seconds since `begun`, or since the last answer if that was later."""
        return asyncio.get_running_loop().time() - max(begun, self._answered)

    def left(self, begun: float, silence: float, longest: float) -> float:
        """Seconds left now of a wait since `begun`: `silence` after the last answer, `longest` in all."""
        now = asyncio.get_running_loop().time()
        return min(max(begun, self._answered) + silence, begun + max(silence, longest)) - now
