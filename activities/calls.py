"""The host's calls as Temporal activities. Here alone the host meets Temporal."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.host import Host
from activities.waiting import GivenUp, ProcessUnknown, Superseded
from turnhold.session import limits
from turnhold.session.hosting import (
    PROCESS_GONE,
    AnswerAskCall,
    DeliverMessageCall,
    FindTurnCall,
    RunTurnCall,
    StartProcessCall,
    StartProcessResult,
    StopProcessCall,
    StopTurnCall,
    TurnOutcome,
)
from turnhold.temporal import names


class HostActivities:
    """`starting` is for the queue that Sessions and hosts share, `hosting` for the host's own."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def starting(self) -> list[Callable[..., Any]]:
        return [self.start_process]

    @property
    def hosting(self) -> list[Callable[..., Any]]:
        return [
            self.run_turn,
            self.stop_turn,
            self.stop_process,
            self.deliver_message,
            self.answer_ask,
            self.find_turn,
        ]

    @activity.defn(name=names.START_PROCESS)
    async def start_process(self, call: StartProcessCall) -> StartProcessResult:
        async with _heartbeating():
            return await self._host.start_process(call, late=_late())

    @activity.defn(name=names.RUN_TURN)
    async def run_turn(self, call: RunTurnCall) -> TurnOutcome:
        async with _heartbeating():
            return await self._host.run_turn(call, late=_late())

    @activity.defn(name=names.STOP_TURN)
    async def stop_turn(self, call: StopTurnCall) -> None:
        self._host.stop_turn(call)

    @activity.defn(name=names.STOP_PROCESS)
    async def stop_process(self, call: StopProcessCall) -> None:
        async with _heartbeating():
            await self._host.stop_process(call)

    @activity.defn(name=names.DELIVER_MESSAGE)
    async def deliver_message(self, call: DeliverMessageCall) -> None:
        self._host.deliver_message(call)

    @activity.defn(name=names.ANSWER_ASK)
    async def answer_ask(self, call: AnswerAskCall) -> None:
        self._host.answer_ask(call)

    @activity.defn(name=names.FIND_TURN)
    async def find_turn(self, call: FindTurnCall) -> None:
        try:
            self._host.find_turn(call)
        except ProcessUnknown:
            raise _gone() from None


def _late() -> bool:
    """Whether Temporal may have given this call up already: this host was paused, or cut off."""
    underway = datetime.now(UTC) - activity.info().started_time
    return underway.total_seconds() > limits.HEARTBEAT_TIMEOUT_SECONDS


@asynccontextmanager
async def _heartbeating() -> AsyncGenerator[None]:
    """Heartbeats from the host's loop, and the host's exceptions as Temporal knows them.

    They carry something, so that a Session can tell whether this call was ever heard of.
    """

    async def beat() -> None:
        while True:
            await asyncio.sleep(limits.HEARTBEAT_SECONDS)
            activity.heartbeat(True)

    beating = asyncio.create_task(beat())
    try:
        yield
    except ProcessUnknown:
        raise _gone() from None
    except GivenUp:
        raise _expected("the Turn's Process is gone", "turn_given_up") from None
    except Superseded:
        raise _expected("a newer call waits for this Turn", "superseded") from None
    except asyncio.CancelledError:
        cancelled = activity.cancellation_details()
        if cancelled is None or cancelled.cancel_requested or cancelled.worker_shutdown:
            raise
        raise _expected("nobody waits for this call any more", "unawaited") from None
    finally:
        beating.cancel()


def _gone() -> ApplicationError:
    return _expected("this host has no such Process", PROCESS_GONE)


def _expected(message: str, kind: str) -> ApplicationError:
    return ApplicationError(message, type=kind, non_retryable=True, category=ApplicationErrorCategory.BENIGN)
