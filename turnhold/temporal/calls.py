"""The calls to Temporal themselves: each bounded as a whole, retried by us, its errors told apart.

The SDK's own retry backs off a second when a query meets another one at the same workflow; here a
collision costs 10 to 50 ms. Its `rpc_timeout` is one attempt's, so every call has a deadline too.
"""

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import QueryRejectCondition, WorkflowExecutionStatus
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    QueryWorkflowRequest,
    QueryWorkflowResponse,
    ResetStickyTaskQueueRequest,
    SignalWorkflowExecutionRequest,
)
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from turnhold.session.views import ReadRequest, ReadResult
from turnhold.temporal import failures, names
from turnhold.temporal.pulse import BUSY_SECONDS, Pulse

QUERY_SECONDS = 1.7  # one query, its collisions included; with `PROBE_SECONDS`, reads end within 2 s
PROBE_SECONDS = 0.25
_CONTINUED = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
GONE_SECONDS = 0.6  # of silence, after which the worker that has a Session in memory may be gone
AWAY_SECONDS = 0.6  # how long a connection that fails is tried again
SIGNAL_SECONDS = 5.0
CALL_SECONDS = 3.0  # start, describe, list
_LEAVING_SECONDS = 0.01  # until a run that is about to end has ended, or has been told to go on


_COMPLETED = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED
_NOT_OPEN = QueryRejectCondition.QUERY_REJECT_CONDITION_NOT_OPEN
_NOT_CLEANLY = QueryRejectCondition.QUERY_REJECT_CONDITION_NOT_COMPLETED_CLEANLY


@dataclass(frozen=True)
class Queried:
    """A query's answer; None when the workflow has completed, and was not to be asked then.

    `unclean`: it was terminated or failed, so its state is its last.
    """

    result: ReadResult | None
    unclean: bool = False


@dataclass(frozen=True)
class Mark:
    """Where a run of a Session stands in Temporal: if it has not changed, nothing has happened."""

    run_id: str
    history_length: int


class Calls:
    """Temporal, as far as Sessions need it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.pulse = Pulse()

    async def query(self, session_id: str, request: ReadRequest, *, also_completed: bool = False) -> Queried:
        """Ask a Session, which sees every signal that was acknowledged before.

        That its workflow has completed is known without a worker; `also_completed` asks it anyway.

        Raises:
            Failure: `session_not_found`, `worker_unavailable` or `temporal_unavailable`, within
                two seconds (S-92, S-93); later only where workers answer, and are busy.
        """
        message = QueryWorkflowRequest(
            namespace=self.client.namespace,
            execution=WorkflowExecution(workflow_id=session_id),
            query=WorkflowQuery(query_type=names.QUERY_READ),
            query_reject_condition=_NOT_CLEANLY if also_completed else _NOT_OPEN,
        )
        message.query.query_args.payloads.extend(await self.client.data_converter.encode([request]))
        clock = _Clock(QUERY_SECONDS, self.pulse)
        unclean = False
        while clock.left > 0.02:
            try:
                response = await self._answer(message, clock)
            except TimeoutError:
                break
            except (RPCError, RuntimeError) as error:
                if isinstance(error, RPCError):
                    if failures.is_missing(error):
                        raise failures.session_not_found(session_id) from error
                    if failures.is_late(error):
                        break
                    if error.status == RPCStatusCode.INVALID_ARGUMENT:
                        raise RuntimeError(f"query of {session_id} failed: {error.message}") from error
                clock.note(error, session_id)
                await asyncio.sleep(random.uniform(0.01, 0.05))
                continue
            if response.HasField("query_rejected"):
                if response.query_rejected.status == _COMPLETED:
                    return Queried(None)
                if response.query_rejected.status == _CONTINUED:
                    continue  # the next run is there by now
                unclean = True
                message.query_reject_condition = QueryRejectCondition.QUERY_REJECT_CONDITION_NONE
                continue
            decoded = await self.client.data_converter.decode(
                list(response.query_result.payloads), [ReadResult]
            )
            self.pulse.beat()
            if decoded[0].leaving and not decoded[0].receipts.keys() >= set(request.request_ids):
                await asyncio.sleep(_LEAVING_SECONDS)
                continue
            return Queried(decoded[0], unclean)
        await self.describe(session_id, seconds=PROBE_SECONDS)
        raise failures.worker_unavailable(session_id)

    async def _answer(self, message: QueryWorkflowRequest, clock: "_Clock") -> QueryWorkflowResponse:
        """The answer to one query, waited for as long as the clock allows.

        Raises:
            TimeoutError: the clock has run down.
        """
        asked = asyncio.ensure_future(self._ask(message))
        freed = False
        try:
            while not asked.done():
                left = clock.left
                if left <= 0:
                    raise TimeoutError
                until_gone = GONE_SECONDS - clock.silence
                if not freed and until_gone <= 0:
                    freed = True
                    if await self._free(message.execution):
                        asked.cancel()
                        asked = asyncio.ensure_future(self._ask(message))
                    continue
                await asyncio.wait([asked], timeout=left if freed else min(left, until_gone))
            return asked.result()
        finally:
            asked.cancel()

    async def _ask(self, message: QueryWorkflowRequest) -> QueryWorkflowResponse:
        return await self.client.workflow_service.query_workflow(
            message, retry=False, timeout=timedelta(seconds=BUSY_SECONDS)
        )

    async def _free(self, execution: WorkflowExecution) -> bool:
        """Let any worker answer, not only the one that has it in memory; False where that cannot be."""
        request = ResetStickyTaskQueueRequest(namespace=self.client.namespace, execution=execution)
        try:
            await self.client.workflow_service.reset_sticky_task_queue(
                request, retry=False, timeout=timedelta(seconds=PROBE_SECONDS)
            )
        except (RPCError, RuntimeError):
            return False
        return True

    async def signal(self, session_id: str, name: str, argument: Any, request_id: str | None = None) -> None:
        """Send a signal. With `request_id` the server takes it once, however often it is sent.

        Raises:
            Ended: the workflow has ended.
            Failure: `session_not_found`, `session_busy`, `content_too_large` or
                `temporal_unavailable` (then it is not known whether the signal was recorded).
        """
        message = SignalWorkflowExecutionRequest(
            namespace=self.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=session_id),
            signal_name=name,
            identity=self.client.identity,
            request_id=request_id or str(uuid.uuid4()),
        )
        message.input.payloads.extend(await self.client.data_converter.encode([argument]))
        clock = _Clock(SIGNAL_SECONDS)
        busy = False
        while clock.left > 0.02:
            seconds = min(clock.left, 2.0)
            try:
                async with asyncio.timeout(seconds + 0.05):
                    await self.client.workflow_service.signal_workflow_execution(
                        message, retry=False, timeout=timedelta(seconds=seconds)
                    )
                return
            except TimeoutError:
                continue
            except (RPCError, RuntimeError) as error:
                if isinstance(error, RPCError):
                    if failures.is_ended(error):
                        raise Ended(session_id) from error
                    _raise_for_signal(error, session_id)
                    busy = failures.is_busy(error)
                    if failures.is_late(error):
                        continue
                clock.note(error, session_id, request_id)
                await asyncio.sleep(random.uniform(0.02, 0.1))
        if busy:
            raise failures.Failure(
                "session_busy", "This Session takes no more just now; try again.", session_id=session_id
            )
        raise failures.temporal_unavailable(session_id, request_id)

    async def mark(self, session_id: str) -> Mark:
        """The least of `describe`, at half of what that costs: it is asked for all the time.

        Raises:
            Failure: `session_not_found` or `temporal_unavailable`.
        """
        request = DescribeWorkflowExecutionRequest(
            namespace=self.client.namespace, execution=WorkflowExecution(workflow_id=session_id)
        )
        async with bounded(CALL_SECONDS, session_id):
            answer = await self.client.workflow_service.describe_workflow_execution(
                request, retry=True, timeout=timedelta(seconds=CALL_SECONDS)
            )
        info = answer.workflow_execution_info
        return Mark(info.execution.run_id, info.history_length)

    async def describe(
        self, session_id: str, *, seconds: float = CALL_SECONDS
    ) -> WorkflowExecutionDescription:
        """What Temporal itself knows of a Session; needs no worker.

        Raises:
            Failure: `session_not_found` or `temporal_unavailable`.
        """
        async with bounded(seconds, session_id):
            return await self.client.get_workflow_handle(session_id).describe(
                rpc_timeout=timedelta(seconds=seconds)
            )


Ended = failures.Ended


class _Clock:
    """How long a call may still take, and how long its connection has been failing.

    With a pulse, the seconds are those of silence.
    """

    def __init__(self, seconds: float, pulse: Pulse | None = None) -> None:
        self._time = asyncio.get_running_loop().time
        self._begun = self._time()
        self._seconds = seconds
        self._longest = seconds if pulse is None else BUSY_SECONDS
        self._pulse = pulse or Pulse()
        self._away_since: float | None = None

    @property
    def left(self) -> float:
        return self._pulse.left(self._begun, self._seconds, self._longest)

    @property
    def silence(self) -> float:
        """Seconds since the call began, or a worker answered anybody."""
        return self._pulse.silence(self._begun)

    def note(self, error: Exception, session_id: str, request_id: str | None = None) -> None:
        """Raises once the connection has failed for too long, or for good; else it may be retried."""
        if isinstance(error, RPCError) and error.status in _ANSWERED:
            self._away_since = None
            return
        if isinstance(error, RuntimeError) and not failures.is_no_connection(error):
            raise error
        if isinstance(error, RPCError) and error.status not in _AWAY:
            raise failures.temporal_unavailable(session_id, request_id, error) from error
        since = self._away_since = self._away_since or self._time()
        if self._time() - since > AWAY_SECONDS:
            raise failures.temporal_unavailable(session_id, request_id, error) from error


_ANSWERED = (RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.FAILED_PRECONDITION)
_AWAY = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.UNKNOWN,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.ABORTED,
    RPCStatusCode.CANCELLED,
)


def _raise_for_signal(error: RPCError, session_id: str) -> None:
    if failures.is_missing(error):
        raise failures.session_not_found(session_id) from error
    if error.status == RPCStatusCode.INVALID_ARGUMENT:
        if "limit for signal" in error.message:
            raise failures.Failure(
                "session_busy", "This Session cannot take more just now.", session_id=session_id
            ) from error
        raise failures.Failure(
            "content_too_large", "This is more than one command may carry.", session_id=session_id
        ) from error


@asynccontextmanager
async def bounded(
    seconds: float, session_id: str | None = None, request_id: str | None = None
) -> AsyncGenerator[None]:
    """A call to Temporal that ends in time, with an error that has a stable code.

    Raises:
        Failure: `session_not_found`, `rate_limited` or `temporal_unavailable`.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise failures.temporal_unavailable(session_id, request_id, error) from error
    except RuntimeError as error:
        if failures.is_no_connection(error):
            raise failures.temporal_unavailable(session_id, request_id, error) from error
        raise
    except RPCError as error:
        if session_id and failures.is_missing(error):
            raise failures.session_not_found(session_id) from error
        if failures.is_busy(error):
            raise failures.Failure("rate_limited", "Temporal asks for fewer requests.") from error
        if error.status in (*_AWAY, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.NOT_FOUND):
            raise failures.temporal_unavailable(session_id, request_id, error) from error
        raise
