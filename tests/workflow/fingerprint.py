"""What the workflow asks of Temporal when it replays a recorded history, command by command.

A replay fails only where commands are other ones or in another order. What it lets pass, a queue, a
time-out, a retry policy, shows here: a change of any of it has to be meant. `python -m
tests.workflow.fingerprint` writes the fingerprints anew.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from temporalio import workflow
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.worker import (
    Replayer,
    UnsandboxedWorkflowRunner,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowRunner,
)

from turnhold.temporal.plugin import DATA_CONVERTER
from workflows.session import Session


class _Listening(WorkflowInstance):
    """An instance whose completions are overheard."""

    def __init__(self, inner: WorkflowInstance, heard: list[WorkflowCommand]) -> None:
        self._inner = inner
        self._heard = heard

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        completion = self._inner.activate(act)
        self._heard += completion.successful.commands
        return completion

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> workflow.Info:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


class _ListeningRunner(WorkflowRunner):
    def __init__(self) -> None:
        self._inner = UnsandboxedWorkflowRunner()
        self.heard: list[WorkflowCommand] = []

    def prepare_workflow(self, defn: Any) -> None:
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _Listening(self._inner.create_instance(det), self.heard)


async def of(history: WorkflowHistory) -> str:
    """The commands of today's workflow on this recorded history, one a line.

    Raises:
        NondeterminismError: it does not replay at all.
    """
    runner = _ListeningRunner()
    replayer = Replayer(workflows=[Session], data_converter=DATA_CONVERTER, workflow_runner=runner)
    await replayer.replay_workflow(history)
    return "".join(f"{line}\n" for command in runner.heard if (line := _line(command)))


def history(text: str) -> WorkflowHistory:
    """A recorded one, under the ID of its Session: those of the Sessions that it owns are made of it."""
    started = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    return WorkflowHistory.from_json(started["workflowId"], text)


def stored(recorded: Path) -> Path:
    """Where the fingerprint of a recorded history is."""
    return recorded.with_suffix(".commands")


def write_all(recorded: Iterable[Path]) -> None:
    """Store the fingerprints of these recorded histories."""
    for path in recorded:
        stored(path).write_text(asyncio.run(of(history(path.read_text()))))


def _line(command: WorkflowCommand) -> str | None:
    kind = command.WhichOneof("variant")
    if kind == "respond_to_query" or kind is None:
        return None
    body: Any = getattr(command, kind)
    describe = _DESCRIBED.get(kind, lambda _: "")
    said = describe(body)
    summary = command.user_metadata.summary.data.decode()
    return " ".join(part for part in (kind, said, summary) if part)


def _activity(body: Any) -> str:
    queue = "own queue" if body.task_queue.startswith("host-") else "shared queue"
    if body.task_queue.endswith("-unversioned"):
        queue = "unversioned queue"
    limits = {
        "schedule_to_close": body.schedule_to_close_timeout,
        "schedule_to_start": body.schedule_to_start_timeout,
        "start_to_close": body.start_to_close_timeout,
        "heartbeat": body.heartbeat_timeout,
    }
    waits = ", ".join(f"{name} {_seconds(value)}" for name, value in limits.items() if value.ToNanoseconds())
    return f"{body.activity_type} on the {queue}, {waits}, attempts {body.retry_policy.maximum_attempts};"


def _child(body: Any) -> str:
    return (
        f"{body.workflow_type}, parent close policy {body.parent_close_policy}, "
        f"ID reuse policy {body.workflow_id_reuse_policy}, cancellation {body.cancellation_type}, "
        f"task {_seconds(body.workflow_task_timeout)}, {', '.join(sorted(body.memo))}, "
        f"{', '.join(sorted(body.search_attributes.indexed_fields))};"
    )


def _seconds(duration: Duration) -> str:
    return f"{duration.ToNanoseconds() / 1e9:g} s"


_DESCRIBED: dict[str, Callable[[Any], str]] = {
    "schedule_activity": _activity,
    "start_child_workflow_execution": _child,
    "signal_external_workflow_execution": lambda body: body.signal_name,
    "start_timer": lambda body: f"{_seconds(body.start_to_fire_timeout)};",
    "upsert_workflow_search_attributes": lambda body: ", ".join(
        sorted(body.search_attributes.indexed_fields)
    ),
    "modify_workflow_properties": lambda body: ", ".join(sorted(body.upserted_memo.fields)),
    "continue_as_new_workflow_execution": lambda body: (
        f"versioning behaviour {body.initial_versioning_behavior}" if body.initial_versioning_behavior else ""
    ),
}


if __name__ == "__main__":
    write_all((Path(__file__).parent / "histories").glob("*.json"))
    sys.exit(0)
