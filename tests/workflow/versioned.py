"""A worker deployment for workflow tests: workers of two versions, and which of them is current."""

import uuid
from contextlib import AbstractAsyncContextManager

from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import WorkerDeploymentConfig

from tests.harness import poll
from tests.workflow.stub_host import StubHost
from turnhold.temporal import workers


class Shop:
    """A worker deployment of its own, whose workers live as long as their block.

    `served`: another worker of this process serves the unversioned queue already; it may have one.
    """

    def __init__(self, client: Client, task_queue: str, *, served: bool = False) -> None:
        self.name = f"shop-{uuid.uuid4().hex[:8]}"
        self._client = client
        self._task_queue = task_queue
        self._served = served

    def worker(self, build: str, host: StubHost) -> AbstractAsyncContextManager[None]:
        config = WorkerDeploymentConfig(
            version=WorkerDeploymentVersion(self.name, build),
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.PINNED,
        )
        first, self._served = not self._served, True
        return host.serve(self._client, self._task_queue, unversioned=first, deployment_config=config)

    async def promote(self, build: str) -> None:
        """Make it current, as soon as its worker is known, and wait until the task queue knows."""
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=self._client.namespace, deployment_name=self.name, build_id=build
        )

        async def promoted() -> bool:
            try:
                await self._client.workflow_service.set_worker_deployment_current_version(request)
            except RPCError:
                return False
            found = await workers.queue(self._client, self._task_queue, seconds=5)
            return workers.current(found) == f"{self.name}:{build}"

        await poll(promoted, what=f"{build} to be current")

    async def runs_of(self, session_id: str) -> list[str | None]:
        """The version of each run of a Session, the newest first."""
        rows = [row async for row in self._client.list_workflows(f"WorkflowId = '{session_id}'")]
        handles = [self._client.get_workflow_handle(row.id, run_id=row.run_id) for row in rows]
        return [workers.pinned(await handle.describe()) for handle in handles]
