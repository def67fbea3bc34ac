"""Worker deployments as an operator sees them: versions, the Sessions on each, promoting, moving (S-4).

How many Sessions are on a version is counted here, in the visibility store: Temporal's own
drainage is looked at every three minutes only.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Literal, cast

from temporalio.api.deployment.v1 import WorkerDeploymentInfo
from temporalio.api.enums.v1 import RoutingConfigUpdateState, VersionDrainageStatus
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueResponse,
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode

from turnhold.session.values import Record, Timestamp
from turnhold.temporal import failures, names, workers
from turnhold.temporal.connection import CannotConnect
from turnhold.temporal.failures import Failure
from turnhold.temporal.gateway import Gateway
from turnhold.temporal.listing import DEPLOYMENT, quoted

SETTLED_SECONDS = 10.0
"""So long after another version has become current, one may still get a Session, or not show it yet."""

_CALL = timedelta(seconds=10)
_RECEIPT_SECONDS = 10.0
_MOVE_SECONDS = 60.0  # the Process is stopped, the other version's worker takes over
_AT_ONCE = 20
_IN_PROGRESS = RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_IN_PROGRESS


class DeploymentError(Exception):
    """The deployment is not there, or does not do what was asked. One clear line."""


class Version(Record):
    """One version of the workers. `drainage` is Temporal's word, up to three minutes old."""

    deployment: str
    build_id: str
    current: bool
    open_sessions: int
    workers: int
    drainage: Literal["draining", "drained"] | None = None
    inactive_since: Timestamp | None = None


class Overview(Record):
    """A deployment: `current` is where new Sessions begin, `NAME:BUILD`, or null."""

    name: str
    current: str | None = None
    versions: tuple[Version, ...] = ()
    unversioned_sessions: int = 0


class Drainage(Record):
    """Whether a version's workers can go. `reason` says why not."""

    deployment: str
    open_sessions: int
    current: bool
    safe_to_retire: bool
    reason: str | None = None


class Move(Record):
    """What became of the wish to move one Session."""

    session_id: str
    outcome: Literal["moved", "there", "busy", "closed", "pending", "not_found"]
    was_on: str | None = None
    detail: str | None = None


class Deployments:
    """One worker deployment, by name.

    Args:
        client: with the shared plugin.
        name: what the workers have as `TURNHOLD_DEPLOYMENT`.
        task_queue: where its Sessions live.
    """

    def __init__(self, client: Client, name: str, task_queue: str) -> None:
        self._client = client
        self._gateway = Gateway(client, task_queue)
        self._name = name
        self._task_queue = task_queue

    async def overview(self) -> Overview:
        """Its versions, the newest first.

        Raises:
            DeploymentError: no worker of it was ever seen, or Temporal refuses.
            CannotConnect: Temporal does not answer.
        """
        async with _told():
            found = await self._describe()
            current = workers.label(found.routing_config.current_deployment_version)
            queues = await self._queues()
            versions = [await self._version(s, current, queues) for s in found.version_summaries]
            loose = f"{DEPLOYMENT} IS NULL AND TaskQueue = {quoted(self._task_queue)}"
            return Overview(
                name=self._name,
                current=current,
                versions=tuple(sorted(versions, key=lambda v: _created(found, v.build_id), reverse=True)),
                unversioned_sessions=await self._count(loose),
            )

    async def promote(self, build_id: str, *, force: bool = False) -> str | None:
        """Make a version current: new Sessions begin on it from now on, the others stay (S-4).

        Returns once that is in effect.

        Args:
            force: also where workers of it are missing.

        Returns:
            What was current before, or None.

        Raises:
            DeploymentError: nobody knows this version, its workers are not all there, or Temporal refuses.
            CannotConnect: Temporal does not answer.
        """
        async with _told():
            await self._known(build_id)
            if not force:
                await self._refuse_without_workers(build_id)
            answer = await self._client.workflow_service.set_worker_deployment_current_version(
                SetWorkerDeploymentCurrentVersionRequest(
                    namespace=self._client.namespace,
                    deployment_name=self._name,
                    build_id=build_id,
                    identity=self._client.identity,
                    ignore_missing_task_queues=force,
                    allow_no_pollers=force,
                ),
                timeout=_CALL,
            )
            await self._until_in_effect()
            return workers.label(answer.previous_deployment_version)

    async def drain(self, build_id: str) -> Drainage:
        """How many open Sessions are still on a version, and whether its workers can go.

        Raises:
            DeploymentError: nobody knows this version, or Temporal refuses.
            CannotConnect: Temporal does not answer.
        """
        version = await self._known(build_id)
        waited = version.inactive_since and datetime.now(UTC) - version.inactive_since
        reason = None
        if version.current:
            reason = "it is current: new Sessions begin on it"
        elif version.open_sessions:
            reason = f"{version.open_sessions} open Sessions are on it"
        elif waited is not None and waited < timedelta(seconds=SETTLED_SECONDS):
            reason = f"it was current {waited.total_seconds():.0f} s ago: look again in a moment"
        return Drainage(
            deployment=version.deployment,
            open_sessions=version.open_sessions,
            current=version.current,
            safe_to_retire=reason is None,
            reason=reason,
        )

    async def target(self) -> str:
        """The current version, whose workers are there: where Sessions are moved to.

        Raises:
            DeploymentError: none is current, or no worker of it polls.
            CannotConnect: Temporal does not answer.
        """
        async with _told():
            version = (await self._describe()).routing_config.current_deployment_version
            current = workers.label(version)
            if current is None:
                raise DeploymentError(f"no version of {self._name} is current: promote one first")
            await self._refuse_without_workers(version.build_id)
            return current

    async def elsewhere(self, target: str) -> list[str]:
        """The open Sessions of this deployment that are on other versions than `target`."""
        async with _told():
            query = (
                f"{_OPEN} AND TemporalWorkerDeployment = {quoted(self._name)}"
                f" AND {DEPLOYMENT} != {quoted(target)}"
            )
            return [row.id async for row in self._client.list_workflows(query, rpc_timeout=_CALL)]

    async def move(self, session_ids: Sequence[str], target: str) -> list[Move]:
        """Move these Sessions to the current version `target`, those of them that are idle (S-4).

        Raises:
            CannotConnect: Temporal does not answer.
        """
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(session_id: str) -> Move:
            async with room:
                return await self._move(session_id, target)

        async with _told():
            return list(await asyncio.gather(*(one(session_id) for session_id in session_ids)))

    async def _move(self, session_id: str, target: str) -> Move:
        try:
            was_on = await self._deployment_of(session_id)
            if was_on == target:
                return Move(session_id=session_id, outcome="there", was_on=was_on)
            receipt = await self._gateway.move(session_id, target, _RECEIPT_SECONDS)
        except Failure as failure:
            outcomes = {"session_not_found": "not_found", "session_closed": "closed"}
            if failure.code not in outcomes:
                raise
            return Move.model_validate({"session_id": session_id, "outcome": outcomes[failure.code]})
        move = Move(session_id=session_id, outcome="moved", was_on=was_on)
        if receipt.rejection is not None:
            outcome = "closed" if receipt.rejection.code == "session_closed" else "busy"
            return move.but(outcome=outcome, detail=receipt.rejection.detail)
        if receipt.status == "pending":
            return move.but(outcome="pending", detail=f"no worker of {was_on or 'its version'} answers")
        clock = asyncio.get_running_loop().time
        deadline = clock() + _MOVE_SECONDS
        while await self._deployment_of(session_id) != target:
            if clock() > deadline:
                return move.but(outcome="pending", detail=f"it is on its way to {target} still")
            await asyncio.sleep(0.1)
        return move

    async def _deployment_of(self, session_id: str) -> str | None:
        description = await self._gateway.describe(session_id)
        return workers.pinned(description)

    # --- what Temporal knows ----------------------------------------------------------------------

    async def _describe(self) -> WorkerDeploymentInfo:
        request = DescribeWorkerDeploymentRequest(
            namespace=self._client.namespace, deployment_name=self._name
        )
        try:
            answer = await self._client.workflow_service.describe_worker_deployment(request, timeout=_CALL)
        except RPCError as error:
            if not failures.is_missing(error):
                raise
            raise DeploymentError(
                f"no worker of a deployment {self._name} was ever seen in namespace {self._client.namespace}"
            ) from error
        return answer.worker_deployment_info

    async def _known(self, build_id: str) -> Version:
        overview = await self.overview()
        for version in overview.versions:
            if version.build_id == build_id:
                return version
        known = ", ".join(version.build_id for version in overview.versions) or "none"
        raise DeploymentError(
            f"no worker of {self._called(build_id)} was ever seen; the builds of {self._name}: {known}"
        )

    async def _version(
        self,
        summary: WorkerDeploymentInfo.WorkerDeploymentVersionSummary,
        current: str | None,
        queues: dict[str, DescribeTaskQueueResponse],
    ) -> Version:
        build_id = summary.deployment_version.build_id
        label = self._called(build_id)
        drainage = VersionDrainageStatus.Name(summary.drainage_info.status).rpartition("_")[2].lower()
        left = summary.HasField("last_deactivation_time") and label != current
        return Version(
            deployment=label,
            build_id=build_id,
            current=label == current,
            open_sessions=await self._count(f"{DEPLOYMENT} = {quoted(label)}"),
            workers=max(len(workers.polling(answer, label)) for answer in queues.values()),
            drainage=cast("Literal['draining', 'drained'] | None", drainage)
            if drainage in ("draining", "drained")
            else None,
            inactive_since=summary.last_deactivation_time.ToDatetime(UTC) if left else None,
        )

    async def _count(self, which: str) -> int:
        return (await self._client.count_workflows(f"{_OPEN} AND {which}", rpc_timeout=_CALL)).count

    async def _queues(self) -> dict[str, DescribeTaskQueueResponse]:
        """The Sessions' task queue, for each role of workers."""
        return {role: await self._queue(role) for role in workers.QUEUE_TYPES}

    async def _queue(self, role: str) -> DescribeTaskQueueResponse:
        return await workers.queue(self._client, self._task_queue, role, seconds=_CALL.total_seconds())

    async def _refuse_without_workers(self, build_id: str) -> None:
        for role, answer in (await self._queues()).items():
            if not workers.polling(answer, self._called(build_id)):
                raise DeploymentError(
                    f"no worker of {self._called(build_id)} with the role `{role}` polls the task queue "
                    f"{self._task_queue}: start one first"
                )

    async def _until_in_effect(self) -> None:
        """The server answers before its task queues know: until then new Sessions begin as before."""
        async with asyncio.timeout(_CALL.total_seconds()):
            while True:
                if (await self._describe()).routing_config_update_state != _IN_PROGRESS:
                    return
                await asyncio.sleep(0.1)

    def _called(self, build_id: str) -> str:
        return f"{self._name}:{build_id}"


_OPEN = f"WorkflowType = {quoted(names.WORKFLOW)} AND ExecutionStatus = 'Running'"


def _created(found: WorkerDeploymentInfo, build_id: str) -> int:
    return next(
        s.create_time.ToNanoseconds()
        for s in found.version_summaries
        if s.deployment_version.build_id == build_id
    )


async def standing(client: Client, version: WorkerDeploymentVersion) -> str | None:
    """Whether new Sessions begin on a worker's version, in a sentence; None while that is not known."""
    request = DescribeWorkerDeploymentRequest(
        namespace=client.namespace, deployment_name=version.deployment_name
    )
    try:
        answer = await client.workflow_service.describe_worker_deployment(request, timeout=_CALL)
    except (RPCError, RuntimeError):
        return None
    mine = f"{version.deployment_name}:{version.build_id}"
    current = workers.label(answer.worker_deployment_info.routing_config.current_deployment_version)
    if current is None:
        return (
            f"no version of {version.deployment_name} is current: nothing new runs on {mine} "
            f"before `turnhold deployment promote {version.build_id}`"
        )
    if current == mine:
        return f"version {mine} is current: new Sessions begin on it"
    return f"version {mine} is not current: new Sessions begin on {current}"


@asynccontextmanager
async def _told() -> AsyncGenerator[None]:
    """Temporal's own words, in one line."""
    try:
        yield
    except TimeoutError as error:
        raise DeploymentError("Temporal took it, but its task queues do not show it yet") from error
    except Failure as failure:
        raise CannotConnect(failure.detail) from failure
    except RPCError as error:
        if error.status in _AWAY:
            raise CannotConnect(f"Temporal cannot be reached now: {error.message}") from error
        raise DeploymentError(f"Temporal refuses: {error.message}") from error


_AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)
