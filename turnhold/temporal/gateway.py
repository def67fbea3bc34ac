"""The gateway: Sessions as the API and hosts see them. Commands in, receipts and views out."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from turnhold.session import limits
from turnhold.session.carried import SessionInput
from turnhold.session.commands import Command, Move, Spawn
from turnhold.session.creation import NewSession
from turnhold.session.hosting import Report
from turnhold.session.receipts import MAY_WAIT
from turnhold.session.values import OUTPUT, Origin, Output, merged
from turnhold.session.views import (
    Explanation,
    Extent,
    Judge,
    PageRequest,
    ReadRequest,
    ReadResult,
    ReceiptView,
    SessionView,
    TurnsRequest,
    TurnView,
)
from turnhold.store.objects import Store
from turnhold.temporal import explaining, failures, late, listing, names, presence, terminated, workers
from turnhold.temporal.answers import Answers
from turnhold.temporal.asks import Asks
from turnhold.temporal.calls import CALL_SECONDS, Calls, Mark, bounded
from turnhold.temporal.creation import TASK_SECONDS, Creation
from turnhold.temporal.failures import Ended, Failure
from turnhold.temporal.pulse import BUSY_SECONDS
from turnhold.temporal.room import Rooms

log = logging.getLogger(__name__)

READ_SECONDS = 2.0  # S-92: a read answers within it, or says that no worker does
_QUEUE_SECONDS = 0.15
EXPLAIN_SECONDS = 1.8  # what Temporal knows and, with what is left, what the Session does
_EVENT_PAGE = limits.PAGE_RECORDS


@dataclass(frozen=True)
class Created:
    """A Session as it was created; `replay`: by an earlier, equal request."""

    session: SessionView
    turn: TurnView | None
    replay: bool = False


class Gateway:
    """All that is asked of Sessions, over one Temporal client.

    Args:
        client: with the shared plugin.
        task_queue: where Sessions live.
        store: where they keep what they no longer carry; without it that is not to be seen.
    """

    def __init__(self, client: Client, task_queue: str, store: Store | None = None) -> None:
        self.client = client
        self.task_queue = task_queue
        self.on_command: Callable[[str], None] = lambda session_id: None
        self._calls = Calls(client)
        self._rooms = Rooms(self._calls.mark)
        self._answers = Answers(self._calls, store, on_answer=self._rooms.answered)
        self.asks = Asks(self.read)

    # --- creation -------------------------------------------------------------------------------

    async def create(
        self,
        new: NewSession,
        session_id: str,
        *,
        idempotency_key: str | None = None,
        fingerprint: str | None = None,
        fingerprint_as_given: str | None = None,
    ) -> Created:
        """Start a Session: one call, which needs no worker (S-1, S-2, S-3).

        `session_id` is what `creation.session_id` says.

        Raises:
            Failure: `session_key_conflict`, `idempotency_conflict` or `temporal_unavailable`, with the
                Session's and the request's ID where it is not known whether it was created.
        """
        made = Creation.of(
            new,
            session_id,
            idempotency_key=idempotency_key,
            fingerprint=fingerprint,
            fingerprint_as_given=fingerprint_as_given,
        )
        try:
            async with bounded(CALL_SECONDS, request_id=new.request_id):
                await self.client.start_workflow(
                    names.WORKFLOW,
                    SessionInput(new=new),
                    id=session_id,
                    task_queue=self.task_queue,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    task_timeout=timedelta(seconds=TASK_SECONDS),
                    memo={names.MEMO_SESSION: made},
                    search_attributes=made.attributes(),
                    static_summary=made.summary(),
                )
        except WorkflowAlreadyStartedError:
            return await self._occupied(made, session_id, new)
        except Failure as failure:
            if failure.request_id is not None:
                failure.session_id = session_id
            raise
        except RPCError as error:
            if error.status == RPCStatusCode.INVALID_ARGUMENT and "search attribute" in error.message:
                raise Failure(
                    "temporal_unavailable",
                    "The Temporal namespace lacks the search attributes: `turnhold setup` registers them.",
                ) from error
            raise
        self._rooms.answered(session_id)
        return Created(made.session(session_id), made.turn(session_id, new.input))

    async def _occupied(self, wanted: Creation, session_id: str, new: NewSession) -> Created:
        """The ID is taken: by an equal request, by the same key with another body, or by another."""
        first = await self._creation(session_id)
        if first is None:
            raise Failure("session_key_conflict", "This Session ID is taken.", session_id=session_id)
        if wanted.uses_key_of(first):
            if wanted.repeats(first):
                return Created(first.session(session_id), first.turn(session_id, new.input), replay=True)
            raise Failure(
                "idempotency_conflict",
                "This idempotency key was used for another body; use a fresh key for another Session.",
                session_id=session_id,
            )
        raise Failure(
            "session_key_conflict",
            f"The key is taken by Session {session_id}.",
            session_id=session_id,
        )

    async def made_by(self, session_id: str, caller: Origin, idempotency_key: str) -> bool:
        """Whether this caller has created the Session with this key.

        Raises:
            Failure: it is not known now.
        """
        try:
            first = await self._creation(session_id)
        except Failure as failure:
            if failure.code == "session_not_found":
                return False
            raise
        return first is not None and (first.caller, first.idempotency_key) == (caller, idempotency_key)

    async def _creation(self, session_id: str) -> Creation | None:
        description = await self._calls.describe(session_id)
        return await description.memo_value(names.MEMO_SESSION, None, type_hint=Creation)

    # --- commands -------------------------------------------------------------------------------

    async def command(self, session_id: str, command: Command, seconds: float) -> ReceiptView:
        """Send a command and wait for its receipt, for at most `seconds` once it is durable.

        The receipt is `pending` when no worker has answered by then (S-92).

        Raises:
            Failure: `session_not_found`, `session_busy`, `temporal_unavailable`; for a Session that
                has ended also `worker_unavailable`, when nobody can tell whether it is a retry.
        """
        request_id = command.request_id or new_request_id()
        command = command.but(request_id=request_id)
        if command.operation in MAY_WAIT:
            await self._rooms.check(session_id)
        try:
            await self._calls.signal(session_id, command.operation, command, request_id)
        except Ended:
            return await self._late(session_id, command)
        self.on_command(session_id)
        return await self.awaited(session_id, request_id, seconds)

    async def spawn(self, session_id: str, command: Spawn, seconds: float) -> ReceiptView:
        """Ask a Session to start another one, for its running Turn; as `command`, of which it is one.

        Raises:
            Failure: as `command`; `session_closed` when the Session has ended.
        """
        request_id = command.request_id or new_request_id()
        return await self._internal(session_id, command.but(request_id=request_id), request_id, seconds)

    async def move(self, session_id: str, to: str, seconds: float) -> ReceiptView:
        """For an operator: move an idle Session to the current version, which is `to` (S-4).

        Raises:
            Failure: `session_not_found`, `session_closed`, `session_busy`, `temporal_unavailable`.
        """
        request_id = new_request_id()
        return await self._internal(session_id, Move(request_id=request_id, to=to), request_id, seconds)

    async def _internal(
        self, session_id: str, command: Command, request_id: str, seconds: float
    ) -> ReceiptView:
        """A command that no caller of the API gives: to a Session that has ended it comes too late."""
        if command.operation in MAY_WAIT:
            await self._rooms.check(session_id)
        try:
            await self._calls.signal(session_id, command.operation, command, request_id)
        except Ended as error:
            raise Failure("session_closed", "This Session is closed.", session_id=session_id) from error
        return await self.awaited(session_id, request_id, seconds)

    async def awaited(self, session_id: str, request_id: str, seconds: float) -> ReceiptView:
        """The receipt of a durable command, `pending` if it does not come within `seconds`."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        request = ReadRequest(request_ids=(request_id,))
        pause = 0.02
        while (left := deadline - clock()) > 0:
            try:
                found = (await self._answers.read(session_id, request, left, left)).receipts.get(request_id)
                if found is None:
                    found = await self._unjudged(session_id, request_id)
            except Exception as error:  # the command is durable: whatever went wrong, it is pending
                if not isinstance(error, Failure):
                    log.exception("the receipt of %s cannot be read", request_id)
                found = None
            if found is not None and found.status != "pending":
                return found
            await asyncio.sleep(min(pause, max(deadline - clock(), 0)))
            pause = min(pause * 2, 0.5)
        return ReceiptView(request_id=request_id, status="pending", session_id=session_id)

    async def _unjudged(self, session_id: str, request_id: str) -> ReceiptView | None:
        """The receipt of a command that was acknowledged, but that its Session will never judge."""
        if (await self._calls.describe(session_id)).status in presence.ALIVE:
            return None
        result = await self._answers.read(session_id, ReadRequest(request_ids=(request_id,)), READ_SECONDS)
        return result.receipts.get(request_id) or late.rejected(request_id, session_id)

    async def _late(self, session_id: str, command: Command) -> ReceiptView:
        """A command to a Session that has ended: a retry gets its receipt, all else the one outcome."""
        judge = Judge(operation=command.operation, command=command.model_dump(mode="json"))
        judged = (await self._answers.read(session_id, ReadRequest(judge=judge), READ_SECONDS)).judged
        if judged is None or judged.replay:
            return judged or late.rejected(command.request_id or "", session_id)
        return late.labelled(judged, command.operation, session_id)

    async def receipt(self, session_id: str, request_id: str) -> ReceiptView:
        """The outcome of a command, by the ID of its request.

        Raises:
            Failure: `receipt_not_found`, `session_not_found`, `worker_unavailable`, `temporal_unavailable`.
        """
        label = late.label_of(request_id, session_id)
        result = await self.read(session_id, ReadRequest(request_ids=(request_id,)))
        if label is not None:
            return late.stated(label, request_id, result.session)
        found = result.receipts.get(request_id)
        if found is None and terminated.is_terminated(result.session):
            found = await self._signalled(session_id, request_id)
        if found is None:
            raise Failure("receipt_not_found", f"There is no receipt of {request_id}.", session_id=session_id)
        return found

    async def _signalled(self, session_id: str, request_id: str) -> ReceiptView | None:
        """Whether a terminated Session had this command in its history, though it never judged it."""
        needle = f'"{request_id}"'.encode()
        async with bounded(CALL_SECONDS, session_id):
            async for event in self.client.get_workflow_handle(session_id).fetch_history_events():
                signal = event.workflow_execution_signaled_event_attributes
                if any(needle in payload.data for payload in signal.input.payloads):
                    return late.rejected(request_id, session_id)
        return None

    async def report(self, session_id: str, report: Report) -> bool:
        """A host's facts for a Session; False when the Session is no more (S-26).

        Raises:
            Failure: it is not known whether the report was recorded: send it again.
        """
        try:
            await self._calls.signal(session_id, names.SIGNAL_REPORT, report)
        except Ended:
            return False
        except Failure as failure:
            if failure.code == "session_not_found":
                return False
            raise
        return True

    async def ended(self, session_ids: Sequence[str], *, unsaid: bool = False) -> set[str]:
        """Which of these Sessions are no more (S-26); with `unsaid` but for those that completed (S-75).

        Raises:
            Failure: it is not known now.
        """
        return await presence.ended(self.client, session_ids, unsaid=unsaid)

    async def expects(self, session_id: str, epoch: int) -> bool:
        """For a host: whether this Session counts on its Process of that epoch (S-26).

        Raises:
            Failure: it is not known now.
        """
        try:
            session = await self.session(session_id)
        except Failure as failure:
            if failure.code == "session_not_found":
                return False
            raise
        process = session.process
        return session.status != "closed" and process.epoch == epoch and process.status != "none"

    # --- reads ----------------------------------------------------------------------------------

    async def read(
        self,
        session_id: str,
        request: ReadRequest,
        seconds: float = READ_SECONDS,
        longest: float = BUSY_SECONDS,
    ) -> ReadResult:
        """Everything asked for, as of now; coalesced with what others ask of the same Session.

        Gives up after `seconds` without an answer to anybody; while workers answer, after `longest`.

        Raises:
            Failure: `session_not_found`, `worker_unavailable`, `temporal_unavailable`,
                `storage_unavailable`.
        """
        return await self._answers.read(session_id, request, seconds, longest)

    async def session(self, session_id: str, *, headroom: bool = False) -> SessionView:
        return (await self.read(session_id, ReadRequest(headroom=headroom))).session

    async def explain(self, session_id: str) -> Explanation:
        """Why the Session does not move. Answers within two seconds also when no worker does (S-94).

        Raises:
            Failure: `session_not_found`, `rate_limited`; `worker_unavailable` where only a worker
                answers that is too old to be asked this.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + EXPLAIN_SECONDS
        description = None
        try:
            description = await self._calls.describe(session_id, seconds=EXPLAIN_SECONDS / 2)
            if description.status not in presence.ALIVE:
                return await explaining.of_ended(description)
            left = deadline - clock()
            result = await self.read(session_id, ReadRequest(explain=True), left, left)
        except Failure as failure:
            if failure.code == "temporal_unavailable":
                return explaining.temporal_away(session_id, failure.detail)
            if failure.code == "worker_unavailable" and description is not None:
                return await explaining.without_worker(description, await self._task_queue_now())
            raise
        if result.explanation is None:  # an older worker's answer
            raise failures.worker_unavailable(session_id)
        now = datetime.now(UTC)
        explanation = explaining.with_slots(result.explanation, description, now)
        return explaining.with_store(explanation, description, now)

    async def _task_queue_now(self) -> DescribeTaskQueueResponse | None:
        """The Sessions' task queue, or None where that takes too long."""
        try:
            async with bounded(_QUEUE_SECONDS):
                return await workers.queue(self.client, self.task_queue, seconds=_QUEUE_SECONDS)
        except Failure:
            return None

    async def turn(self, session_id: str, turn_id: str) -> TurnView:
        """One Turn with its input and all of its retained output.

        Raises:
            Failure: as `read`, or `turn_not_found`.
        """
        result = await self.read(session_id, ReadRequest(turn_ids=(turn_id,)))
        turn = result.turns_by_id.get(turn_id)
        if turn is None:
            raise failures.turn_not_found(session_id, turn_id)
        if turn.output is None:
            extent = result.extents.get(turn_id, (1, None))
            turn = turn.but(output=await self._output(session_id, turn_id, extent))
        return turn

    async def _output(self, session_id: str, turn_id: str, extent: Extent) -> Output:
        """Output that is large, or partly in the store, gathered from the Turn's events (S-15)."""
        parts: list[Output] = []
        after, more = extent[0] - 1, True
        while more:
            request = PageRequest(
                after=after, through=extent[1], limit=_EVENT_PAGE, kinds=("turn.output",), turn_id=turn_id
            )
            page = (await self.read(session_id, ReadRequest(pages=(request,)))).pages[0]
            parts += [OUTPUT.validate_python(event.data["content"]) for event in page.records]
            after, more = page.next_after, page.has_more and bool(page.records)
        return merged(tuple(part for content in parts for part in content))

    async def turns(self, session_id: str, wanted: TurnsRequest) -> tuple[TurnView, ...]:
        """Retained Turns by sequence, without input and output."""
        result = await self.read(session_id, ReadRequest(turns=(wanted,)))
        if wanted.status is None or not terminated.is_terminated(result.session):
            return result.turns[0]
        # The workflow still knows its unfinished Turns as such: what they read as now is ours to tell.
        found: list[TurnView] = []
        after = wanted.after
        while len(found) < wanted.limit:
            request = TurnsRequest(after=after, limit=limits.TURN_PAGE)
            page = (await self.read(session_id, ReadRequest(turns=(request,)))).turns[0]
            if not page:
                break
            after = page[-1].sequence
            found += [turn for turn in page if turn.status == wanted.status]
        return tuple(found[: wanted.limit])

    async def history(self, session_id: str, limit: int) -> list[TurnView]:
        """The last `limit` settled Turns, oldest first, with input and output."""
        session = await self.session(session_id)
        waiting = session.queued_turns + (session.running_turn_id is not None)
        after = max(session.turns_admitted - waiting - limit, 0)
        request = TurnsRequest(after=after, limit=min(limit, limits.TURN_PAGE))
        turns = await self.turns(session_id, request)
        settled = [turn.id for turn in turns if turn.status not in ("queued", "running")]
        return [await self.turn(session_id, turn_id) for turn_id in settled]

    async def describe(self, session_id: str) -> WorkflowExecutionDescription:
        """What Temporal itself knows: status, run, length of history. Needs no worker.

        Raises:
            Failure: `session_not_found` or `temporal_unavailable`.
        """
        return await self._calls.describe(session_id)

    async def mark(self, session_id: str) -> Mark:
        """Where the Session's run stands, for `Watcher`."""
        return await self._calls.mark(session_id)

    async def list_sessions(
        self, environment: str, wanted: listing.Filter, *, limit: int = 20, cursor: str | None = None
    ) -> listing.SessionPage:
        """A page of an environment's Sessions, the newest created first; it may lag by seconds.

        Raises:
            Failure: `invalid_request` for a bad cursor; `temporal_unavailable`.
        """
        return await listing.list_sessions(self.client, environment, wanted, limit, cursor)

    async def owned_sessions(self, session_id: str, *, recursive: bool) -> listing.OwnedSessions:
        """The Sessions that this one owns; with `recursive` those below them, too. Needs no worker.

        Raises:
            Failure: `session_not_found` or `temporal_unavailable`.
        """
        made = await self._creation(session_id)
        if made is None:
            raise failures.session_not_found(session_id)
        return await listing.owned_sessions(self.client, made, session_id, recursive=recursive)

    async def check_workers(self) -> None:
        """Whether workers run Sessions here.

        Raises:
            Failure: `worker_unavailable`, `temporal_unavailable`, `rate_limited`.
        """
        async with bounded(CALL_SECONDS):
            found, silent = await asyncio.gather(
                workers.queue(self.client, self.task_queue, seconds=CALL_SECONDS),
                workers.silent(self.client, self.task_queue, seconds=CALL_SECONDS),
            )
        workers.refuse_unless_served(found, silent)


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"
