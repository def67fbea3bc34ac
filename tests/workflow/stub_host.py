"""A host that needs no worker process: the activities' names and models, and a script for them.

Workflow tests are about the shell and Temporal; the real host has tests of its own.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from obstore.store import MemoryStore
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import Worker

from activities.sealing import SealActivities
from activities.sessions import SessionActivities
from tests.harness import poll
from turnhold.session import hosting, ids
from turnhold.session.carried import SessionInput
from turnhold.session.creation import Config, NewSession
from turnhold.session.questions import TextControl
from turnhold.session.values import TextPart, text_of
from turnhold.session.views import EventView, PageRequest, ReadRequest, ReadResult
from turnhold.store.objects import Store
from turnhold.temporal import names
from turnhold.temporal.failures import Failure
from turnhold.temporal.gateway import Gateway
from workflows.session import Session

STORE = Store(MemoryStore())
"""Of all Sessions of this process."""

WAITS = "wait"
"""The input of a Turn that runs until it is stopped."""

STREAMS = "stream"
"""The input of a Turn that reports in parts: five fragments, a report each."""

LISTENS = "listen"
"""The input of a Turn that takes messages, asks a question, and ends with the answer."""

Ended = Callable[[hosting.RunTurnCall], dict[str, Any]]


def completes(call: hosting.RunTurnCall) -> dict[str, Any]:
    """The Turn says its own input, and completes."""
    return {"how": "completed", "facts": [{"kind": "output", "content": call.input}]}


class StubHost:
    """Answers every call at once; `init_fails` counts down, `turn` says how a Turn ends.

    `faults` are what becomes of the first calls of `run_turn`: `refused`, or `unheard` of.
    """

    def __init__(self, turn: Ended = completes) -> None:
        self.turn = turn
        self.init_fails = 0
        self.faults: list[str] = []
        self.epochs: list[int] = []
        self.stopped: list[str] = []
        self.numbers: dict[tuple[str, int], int] = {}
        self.outcomes: dict[str, hosting.TurnOutcome] = {}
        self.queue = f"host-{uuid.uuid4()}"
        self._stops: dict[str, asyncio.Event] = {}
        self._answers = asyncio.Event()

    @activity.defn(name=names.START_PROCESS)
    async def start_process(self, call: hosting.StartProcessCall) -> hosting.StartProcessResult:
        self.epochs.append(call.epoch)
        if self.init_fails:
            self.init_fails -= 1
            return hosting.StartProcessResult(status="init_failed", detail="it raised")
        return hosting.StartProcessResult(status="started", queue=self.queue, deployment="unversioned")

    @activity.defn(name=names.RUN_TURN)
    async def run_turn(self, call: hosting.RunTurnCall) -> hosting.TurnOutcome:
        """A Turn that a later run asks for again is attached to: the same outcome (S-24)."""
        fault = self.faults.pop(0) if self.faults else None
        if fault == "refused":
            raise ApplicationError(
                "no such Process",
                type=hosting.PROCESS_GONE,
                non_retryable=True,
                category=ApplicationErrorCategory.BENIGN,
            )
        if fault == "unheard":
            await asyncio.Event().wait()
        known = self.outcomes.get(call.turn_id)
        if known is not None and known.epoch == call.epoch:
            return known
        if text_of(call.input).strip() == WAITS:
            await self._stop_of(call.turn_id).wait()
            said = {"state": call.state, "how": "stopped"}
        elif text_of(call.input) == STREAMS:
            await self._stream(call)
            said = {"state": call.state, "how": "completed"}
        elif text_of(call.input) == LISTENS:
            said = {"state": call.state, "how": await self._listen(call)}
        else:
            said = {"state": call.state, **self.turn(call)}
        first = self._numbered(call, len(said.get("facts", ())))
        outcome = hosting.TurnOutcome.model_validate(
            {"epoch": call.epoch, "turn_id": call.turn_id, "first": first, **said}
        )
        self.outcomes[call.turn_id] = outcome
        return outcome

    async def _stream(self, call: hosting.RunTurnCall) -> None:
        for number in range(5):
            await self._report(call, hosting.OutputWritten(content=(TextPart(text=f"{number} "),)))

    async def _listen(self, call: hosting.RunTurnCall) -> str:
        question = hosting.AskCreated(
            ask_id=ids.numbered("ask", call.turn_id, 1), prompt="Well?", control=TextControl()
        )
        await self._report(call, hosting.HandlerRegistered(), question)
        ends = {asyncio.ensure_future(self._answers.wait()): "completed"}
        ends[asyncio.ensure_future(self._stop_of(call.turn_id).wait())] = "stopped"
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        self._answers.clear()
        return ends[done.pop()]

    async def _report(self, call: Any, *facts: hosting.Fact) -> None:
        session = activity.client().get_workflow_handle(call.session_id)
        first = self._numbered(call, len(facts))
        report = hosting.Report(epoch=call.epoch, first=first, turn_id=call.turn_id, facts=facts)
        await session.signal(names.SIGNAL_REPORT, report)

    @activity.defn(name=names.DELIVER_MESSAGE)
    async def deliver_message(self, call: hosting.DeliverMessageCall) -> None:
        started = hosting.MessageStarted(message_id=call.message_id)
        await self._report(call, started, hosting.MessageSettled(message_id=call.message_id))

    @activity.defn(name=names.ANSWER_ASK)
    async def answer_ask(self, call: hosting.AnswerAskCall) -> None:
        self._answers.set()

    @activity.defn(name=names.FIND_TURN)
    async def find_turn(self, call: hosting.FindTurnCall) -> None:
        """Every Turn that is asked for is here."""

    def _numbered(self, call: Any, facts: int) -> int:
        """The number of the first of so many facts in the epoch's outbox."""
        key = (call.session_id, call.epoch)
        first = self.numbers.get(key, 1)
        self.numbers[key] = first + facts
        return first

    @activity.defn(name=names.STOP_TURN)
    async def stop_turn(self, call: hosting.StopTurnCall) -> None:
        self.stopped.append(call.turn_id)
        self._stop_of(call.turn_id).set()

    def _stop_of(self, turn_id: str) -> asyncio.Event:
        return self._stops.setdefault(turn_id, asyncio.Event())

    @activity.defn(name=names.STOP_PROCESS)
    async def stop_process(self, call: hosting.StopProcessCall) -> None:
        self.stopped.append(call.reason)

    @asynccontextmanager
    async def serve(
        self, client: Client, task_queue: str, *, unversioned: bool = True, **options: Any
    ) -> AsyncIterator[None]:
        """What a worker process runs, until the block ends; the `unversioned` queue once in a process."""
        sessions = Worker(
            client,
            task_queue=task_queue,
            workflows=[Session],
            activities=[self.start_process],
            **options,
        )
        host = Worker(
            client,
            task_queue=self.queue,
            activities=[
                *(self.run_turn, self.stop_turn, self.stop_process),
                *(self.deliver_message, self.answer_ask, self.find_turn),
            ],
        )
        async with AsyncExitStack() as running:
            await running.enter_async_context(sessions)
            await running.enter_async_context(host)
            if unversioned:
                worker = Worker(
                    client,
                    task_queue=names.unversioned_queue(task_queue),
                    activities=[
                        *SessionActivities(Gateway(client, task_queue)).all,
                        *SealActivities(STORE).all,
                    ],
                )
                await running.enter_async_context(worker)
            yield


async def start(
    client: Client, task_queue: str, text: str = "", *, events_per_run: int | None = None, **config: Any
) -> WorkflowHandle[Any, Any]:
    """A new Session, started as the API does."""
    new = NewSession(
        agent="script",
        environment="default",
        seed=str(uuid.uuid4()),
        config=Config.resolve(config),
        input=(TextPart(text=text),) if text else (),
        request_id=f"req_{uuid.uuid4().hex}",
        created_at=datetime.now(UTC),
    )
    return await client.start_workflow(
        names.WORKFLOW,
        SessionInput(new=new, events_per_run=events_per_run),
        id=f"ses_{uuid.uuid4().hex}",
        task_queue=task_queue,
    )


async def read(handle: WorkflowHandle[Any, Any], **wanted: Any) -> ReadResult:
    """What a caller is answered: by the Session, by its last record, and by the store.

    A worker that is too busy to answer in time is asked again: that is no matter of these tests.
    """
    client = handle._client  # pyright: ignore[reportPrivateUsage]
    gateway = Gateway(client, "unused", STORE)
    tries = 5
    while True:
        try:
            return await gateway.read(handle.id, ReadRequest(**wanted), 10)
        except Failure as failure:
            tries -= 1
            if failure.code != "worker_unavailable" or not tries:
                raise


async def events(handle: WorkflowHandle[Any, Any]) -> list[EventView]:
    result = await read(handle, pages=(PageRequest(limit=1000),))
    return list(result.pages[0].records)


async def until_idle(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait, in the time of this machine, until no Turn runs or is about to."""

    async def idle() -> bool:
        return not (await read(handle)).working

    await poll(idle)
