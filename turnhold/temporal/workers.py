"""Which workers ask for work on the Sessions' task queue, and of which version they are (S-4)."""

import time
from collections.abc import Collection
from datetime import timedelta

from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.enums.v1 import TaskQueueType, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    ListWorkersRequest,
)
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from turnhold.temporal.failures import Failure

QUEUE_TYPES = {
    "workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    "host": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
}
"""What a worker's role asks the Sessions' task queue for."""

BEAT_SECONDS = 5.0
"""How often our workers tell Temporal that they are there: it does not notice when one is killed."""

_SILENT_SECONDS = 3 * BEAT_SECONDS
_POLLER_SECONDS = 60.0  # a poller seen longer ago than one long poll is gone
_PAGE = 1_000
_KEEPS_NONE = (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.INVALID_ARGUMENT)


async def queue(
    client: Client, task_queue: str, role: str = "workflow", *, seconds: float
) -> DescribeTaskQueueResponse:
    """The task queue as workers of this role see it.

    Raises:
        RPCError: Temporal does not answer within `seconds`, or refuses.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=QUEUE_TYPES[role],
    )
    return await client.workflow_service.describe_task_queue(request, timeout=timedelta(seconds=seconds))


async def silent(client: Client, task_queue: str, *, seconds: float) -> set[str]:
    """The workers of this task queue, by identity, whose heartbeats have stopped: killed, or cut off.

    None where Temporal keeps no heartbeats.

    Raises:
        RPCError: Temporal does not answer within `seconds`.
    """
    quoted = task_queue.replace("'", "''")
    request = ListWorkersRequest(namespace=client.namespace, page_size=_PAGE, query=f"TaskQueue = '{quoted}'")
    last: dict[str, int] = {}
    try:
        answer = await client.workflow_service.list_workers(request, timeout=timedelta(seconds=seconds))
    except RPCError as error:
        if error.status in _KEEPS_NONE:
            return set()
        raise
    for heartbeat in (info.worker_heartbeat for info in answer.workers_info):
        at = heartbeat.heartbeat_time.ToSeconds()
        last[heartbeat.worker_identity] = max(at, last.get(heartbeat.worker_identity, 0))
    now = time.time()
    return {identity for identity, at in last.items() if now - at > _SILENT_SECONDS}


def refuse_unless_served(found: DescribeTaskQueueResponse, silent: Collection[str] = ()) -> None:
    """Raises `worker_unavailable` where no Session could run: nobody polls, or nobody gets work."""
    pollers = [poller for poller in polling(found) if poller.identity not in silent]
    if not pollers:
        raise Failure("worker_unavailable", "No worker polls the task queue of Sessions.")
    if awaits_promotion(found):
        versions = ", ".join(sorted({_version(poller) or "" for poller in pollers}))
        raise Failure("worker_unavailable", f"No version of the workers is current; there are: {versions}.")


def awaits_promotion(found: DescribeTaskQueueResponse) -> bool:
    """Every worker is of a version, and none is current: no new Session begins."""
    pollers = polling(found)
    return current(found) is None and bool(pollers) and all(_version(poller) for poller in pollers)


def polling(found: DescribeTaskQueueResponse, deployment: str | None = None) -> list[PollerInfo]:
    """Who has polled lately; of this deployment (`NAME:BUILD`), if one is named."""
    now = time.time()
    return [
        poller
        for poller in found.pollers
        if now - poller.last_access_time.ToSeconds() < _POLLER_SECONDS
        and (deployment is None or _version(poller) == deployment)
    ]


def current(found: DescribeTaskQueueResponse) -> str | None:
    """The version that new Sessions of this task queue begin on; None: on unversioned workers."""
    return label(found.versioning_info.current_deployment_version)


def pinned(description: WorkflowExecutionDescription) -> str | None:
    """The version that a Session is on; None before its first workflow task, and without versioning."""
    return label(description.raw_description.workflow_execution_info.versioning_info.deployment_version)


def label(version: WorkerDeploymentVersion) -> str | None:
    """`NAME:BUILD`, or None for no version."""
    return f"{version.deployment_name}:{version.build_id}" if version.deployment_name else None


def _version(poller: PollerInfo) -> str | None:
    options = poller.deployment_options
    if options.worker_versioning_mode != WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED:
        return None
    return f"{options.deployment_name}:{options.build_id}"
