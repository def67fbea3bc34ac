"""A Turn as the host keeps it: who waits for it, and its outcome until that has arrived."""

import asyncio

from turnhold.session.hosting import RunTurnCall, TurnOutcome


class ProcessUnknown(Exception):
    """This host has no such Process, or it takes no such Turn: nothing of the call has begun."""


class GivenUp(Exception):
    """The Process is gone, and with it a Turn that had begun: its fate cannot be told any more."""


class Superseded(Exception):
    """A newer call waits for this Turn."""


class HostedTurn:
    """Lives on the host's loop. The end of a waiting call is never a stop of the Turn."""

    def __init__(self, call: RunTurnCall) -> None:
        self.call = call
        self.id = call.turn_id
        self.sequence = call.sequence
        self._ended = asyncio.Event()
        self._collected = asyncio.Event()
        self._given_up = False
        self.outcome: TurnOutcome | None = None
        self._waiter: asyncio.Future[TurnOutcome] | None = None

    @property
    def running(self) -> bool:
        """Its handler has not ended."""
        return not self._ended.is_set()

    @property
    def collected(self) -> bool:
        """A call has its outcome."""
        return self._collected.is_set()

    @property
    def awaited(self) -> bool:
        """Somebody waits for it, or has its outcome."""
        return self._waiter is not None or self.collected

    async def wait(self) -> TurnOutcome:
        """Its outcome. A newer call takes an older one's place, which raises Superseded.

        Raises:
            GivenUp: its Process is gone, and the outcome with it.
        """
        if self._given_up and self.outcome is None:
            raise GivenUp
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(Superseded())
        waiter: asyncio.Future[TurnOutcome] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        if self.outcome is not None:
            waiter.set_result(self.outcome)
        try:
            outcome = await waiter
        finally:
            if self._waiter is waiter:
                self._waiter = None
        self._collected.set()
        return outcome

    def end(self) -> bool:
        """Its handler has ended; False when that was known."""
        first = self.running
        self._ended.set()
        return first

    def settle(self, outcome: TurnOutcome) -> None:
        self.outcome = outcome
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(outcome)

    def give_up(self) -> None:
        """Its Process is gone: nobody need wait any more. An outcome that is there stays."""
        self._ended.set()
        self._given_up = True
        if self.outcome is None and self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(GivenUp())

    async def ended_within(self, seconds: float, hurry: asyncio.Event | None = None) -> None:
        """Wait for the handler's end, at most so long, or until `hurry`."""
        events = [self._ended] if hurry is None else [self._ended, hurry]
        tasks = [asyncio.ensure_future(event.wait()) for event in events]
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    async def collected_within(self, seconds: float) -> None:
        """Wait until a call has the outcome, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._collected.wait()
        except TimeoutError:
            pass
