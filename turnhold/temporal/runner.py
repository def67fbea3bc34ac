"""The sandbox for Sessions, without what our converter does not ask of it.

For every payload on its way in or out the SDK asks the workflow, inside the sandbox, which context
its converter should have: a third of a worker's time for a short Turn. Ours has none.
"""

from typing import Any

from temporalio.converter import SerializationContext, StorageDriverStoreContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import Info


class SessionRunner(SandboxedWorkflowRunner):
    """Runs workflows in the sandbox; payloads are converted without a context."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _Contextless(super().create_instance(det))


class _Contextless(WorkflowInstance):
    def __init__(self, sandboxed: WorkflowInstance) -> None:
        self._sandboxed = sandboxed

    def activate(self, act: Any) -> Any:
        return self._sandboxed.activate(act)

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        return None

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return StorageDriverStoreContext(target=None)

    def get_info(self) -> Info:
        return self._sandboxed.get_info()

    def get_thread_id(self) -> int | None:
        return self._sandboxed.get_thread_id()
