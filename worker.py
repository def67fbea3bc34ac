"""A worker process: wires workflows, activities, Agents and signals, and runs until asked to stop.

`python worker.py` runs it, configured by `TEMPORAL_*` and `TURNHOLD_*`. SIGTERM or SIGINT stops
it in order; a second one ends the grace of running Turns (S-25).
"""

import asyncio
import logging
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

from pydantic import ValidationError
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
)
from temporalio.worker import FixedSizeSlotSupplier, Worker, WorkerDeploymentConfig, WorkerTuner

from activities.calls import HostActivities
from activities.host import Host
from activities.others import Others
from activities.sealing import SealActivities
from activities.sessions import SessionActivities
from activities.slots import ProcessSlots
from turnhold.agents.definition import AgentDefinition, load_agents
from turnhold.agents.errors import AgentLoadError
from turnhold.journal import log_json_lines
from turnhold.session import limits
from turnhold.settings import Settings, misnamed
from turnhold.store.objects import Store, StoreUnusable
from turnhold.temporal import deployments, failures, names, workers
from turnhold.temporal.connection import CannotConnect, connect
from turnhold.temporal.creation import TASK_SECONDS
from turnhold.temporal.gateway import Gateway
from turnhold.temporal.sweeping import Sweeper
from turnhold.temporal.watch import Watcher
from workflows.metrics import BUCKETS
from workflows.session import Session

log = logging.getLogger("turnhold.worker")

SESSION_TASKS = 8  # at a time: more of them would only wait for this process inside it, and count as begun
CONTROL_SLOTS = 64  # on top of every Process's Turn, so that a stop never waits behind Turns (S-58)
_CONNECT_RETRY_SECONDS = 1.0
_STANDING_SECONDS = 15.0  # how often a worker looks whether its version is current
_STICKY = timedelta(seconds=2)  # how long a Session waits for a worker that has vanished
# What the host said last makes workflow tasks. A worker that stops polling as one is handed to it
# loses it, and its Session then waits 10 s for the task's time-out.
_LAST_TASKS_SECONDS = 0.5
_DEADLOCK_SECONDS = TASK_SECONDS - 0.5  # as long as a task may take at all
_WAIT_LOOK_SECONDS = 2.0  # a Turn may wait for a hundred others
_EXIT_SECONDS = 14.0  # after the grace the process is gone by then, whatever does not answer
_COMPLETION_GRACE = timedelta(seconds=5)
_UNVERSIONED_AT_ONCE = 20
_STORE_CACHE_BYTES = 8 * limits.MIB
_HEARTBEAT = timedelta(seconds=limits.HEARTBEAT_SECONDS)


class WorkerError(Exception):
    """The worker cannot run as it is configured, or cannot go on. One line for people."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


async def run(settings: Settings) -> None:
    """Run a worker in this process until SIGTERM or SIGINT. Logs JSON lines to standard error.

    Raises:
        AgentLoadError: the Agents cannot be loaded.
        WorkerError: it cannot run as it is configured, or not go on.
    """
    log_json_lines()
    for complaint in misnamed(os.environ):
        log.warning(complaint)
    stop, hurry = asyncio.Event(), asyncio.Event()

    loop = asyncio.get_running_loop()

    def asked_to_stop() -> None:
        if stop.is_set():
            hurry.set()
        stop.set()
        loop.call_later(_EXIT_SECONDS + (0 if hurry.is_set() else settings.grace), _leave_at_once)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop)
    await run_worker(settings, stop=stop, hurry=hurry)


def _leave_at_once() -> NoReturn:
    """Temporal is away, and the SDK still tries to tell it: Sessions will notice by themselves."""
    log.warning("worker stopped before everything was told to Temporal")
    logging.shutdown()
    os._exit(0)


async def run_worker(settings: Settings, *, stop: asyncio.Event, hurry: asyncio.Event | None = None) -> None:
    """Run a worker until `stop`; `hurry` then ends the grace. Returns when everything is shut down.

    Raises: as `run`.
    """
    agents = load_agents(settings.agent_modules) if "host" in settings.roles else {}
    store = await _store(settings)
    client = await _connected(settings, stop)
    if client is not None:
        await _Workers(settings, client, store, agents).run(stop, hurry or asyncio.Event())


async def _store(settings: Settings) -> Store:
    try:
        store = Store.at(settings.store, cache_bytes=_STORE_CACHE_BYTES)
        if failure := await store.check():
            log.warning("the store does not answer yet; Sessions wait for it where they need it: %s", failure)
    except StoreUnusable as error:
        raise WorkerError(str(error)) from error
    return store


class _Workers:
    """The SDK's workers of this process: of the shared queue, the unversioned one, and this host's own."""

    def __init__(
        self, settings: Settings, client: Client, store: Store, agents: dict[str, AgentDefinition]
    ) -> None:
        self._settings = settings
        self._client = client
        self._sweeper = Sweeper(client, store)
        self._gateway = Gateway(client, settings.task_queue, store)
        self._watcher = Watcher(self._gateway, self._gateway.mark, slowest=_WAIT_LOOK_SECONDS)
        self._gateway.on_command = self._watcher.poke
        self._version = (
            WorkerDeploymentVersion(settings.deployment, settings.build_id) if settings.deployment else None
        )
        self._host_id = secrets.token_hex(6)
        self._host = Host(
            agents,
            self._gateway,
            Others(self._gateway, self._watcher, agents),
            queue=names.host_queue(settings.task_queue, self._host_id),
            deployment=settings.deployment_name,
            max_processes=settings.max_processes,
        )
        self._slots = ProcessSlots(self._host)
        self._calls = HostActivities(self._host)
        hosting, workflow = "host" in settings.roles, "workflow" in settings.roles
        self._shared = self._shared_worker(client, workflow=workflow, hosting=hosting)
        self._unversioned = self._unversioned_worker(client, store) if workflow else None
        self._hosting = self._hosting_worker(client) if hosting else None

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> None:
        parts = [w for w in (self._shared, self._unversioned, self._hosting) if w is not None]
        running = [asyncio.create_task(part.run()) for part in parts]
        tending = [asyncio.create_task(self._host.tend()), asyncio.create_task(self._tell_standing())]
        if self._unversioned is not None:
            tending.append(asyncio.create_task(self._sweeper.run()))
        reasons = [asyncio.create_task(event.wait()) for event in (stop, self._host.exhausted)]
        log.info(
            "worker runs: roles %s, host %s, deployment %s",
            *("+".join(self._settings.roles), self._host_id, self._settings.deployment_name),
        )
        try:
            await asyncio.wait([*running, *reasons], return_when=asyncio.FIRST_COMPLETED)
            if not any(task.done() for task in running):
                log.info("worker stops; running Turns have %g s", self._settings.grace)
                await self._host.drain(self._settings.grace, hurry)
        finally:
            await _shut_down(self._hosting)
            await asyncio.sleep(_LAST_TASKS_SECONDS if self._unversioned and self._hosting else 0)
            await _shut_down(self._shared, self._unversioned)
            ended = await asyncio.gather(*running, return_exceptions=True)
            for task in (*reasons, *tending):
                task.cancel()
            self._watcher.close()
        if failed := next((error for error in ended if isinstance(error, Exception)), None):
            if failures.is_no_namespace(failed):
                raise WorkerError(
                    f"Temporal has no namespace {self._client.namespace!r} (TEMPORAL_NAMESPACE)"
                )
            raise WorkerError(f"the worker cannot go on: {failures.plain(failed)}", exit_code=1) from failed
        if self._host.exhausted.is_set() and not stop.is_set():
            raise WorkerError("too many handlers ignored their stop; start this worker again", exit_code=1)
        log.info("worker stopped")

    def _shared_worker(self, client: Client, *, workflow: bool, hosting: bool) -> Worker:
        """Sessions, and starts of Processes: one worker, so that a Session's own may start its Process
        without a detour. It asks for starts only while there is room; while it drains Sessions go on.
        """
        worker = Worker(
            client,
            task_queue=self._settings.task_queue,
            workflows=[Session] if workflow else [],
            activities=self._calls.starting if hosting else [],
            tuner=WorkerTuner.create_composite(
                workflow_supplier=FixedSizeSlotSupplier(SESSION_TASKS),
                activity_supplier=self._slots,
                local_activity_supplier=FixedSizeSlotSupplier(1),
                nexus_supplier=FixedSizeSlotSupplier(1),
            ),
            max_cached_workflows=self._settings.cached_sessions,
            sticky_queue_schedule_to_start_timeout=_STICKY,
            max_concurrent_activity_task_polls=2,
            max_heartbeat_throttle_interval=_HEARTBEAT,
            **self._versioning(),
        )
        if workflow:
            _allow_long_tasks(worker)
        return worker

    def _unversioned_worker(self, client: Client, store: Store) -> Worker:
        """Never versioned: what is written is for every version to read."""
        return Worker(
            client,
            task_queue=names.unversioned_queue(self._settings.task_queue),
            activities=[*SealActivities(store).all, *SessionActivities(self._gateway).all],
            max_concurrent_activities=_UNVERSIONED_AT_ONCE,
            max_concurrent_activity_task_polls=2,
            graceful_shutdown_timeout=_COMPLETION_GRACE,
        )

    def _hosting_worker(self, client: Client) -> Worker:
        """Never versioned: a queue for each host would exhaust a version's task queues."""
        return Worker(
            client,
            task_queue=self._host.queue,
            activities=self._calls.hosting,
            max_concurrent_activities=self._settings.max_processes + CONTROL_SLOTS,
            max_concurrent_activity_task_polls=4,
            max_heartbeat_throttle_interval=_HEARTBEAT,
            graceful_shutdown_timeout=_COMPLETION_GRACE,
        )

    def _versioning(self) -> dict[str, Any]:
        if self._version is None:
            return {}
        return {
            "deployment_config": WorkerDeploymentConfig(
                version=self._version,
                use_worker_versioning=True,
                # Said here: where the workflow says it, a worker without a version cannot run it.
                default_versioning_behavior=VersioningBehavior.PINNED,
            )
        }

    async def _tell_standing(self) -> None:
        """Log whether new Sessions begin on this worker's version, and when that changes (S-4)."""
        told = None
        while self._version is not None:
            said = await deployments.standing(self._client, self._version)
            if said is not None and said != told:
                log.info(said)
                told = said
            await asyncio.sleep(_CONNECT_RETRY_SECONDS if told is None else _STANDING_SECONDS)


def _allow_long_tasks(worker: Worker) -> None:
    """Let a task of a Session take all of its time: thousands of signals that waited come in one (S-95).

    The SDK gives up on a task after two seconds, which is no setting of its, and such a Session would
    never get over it.
    """
    inner = worker._workflow_worker  # pyright: ignore[reportPrivateUsage]
    if inner is None or not hasattr(inner, "_deadlock_timeout_seconds"):
        log.warning("this temporalio has no limit for tasks that is known: a full Session may stand still")
        return
    inner._deadlock_timeout_seconds = _DEADLOCK_SECONDS  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


async def _shut_down(*parts: Worker | None) -> None:
    await asyncio.gather(*(w.shutdown() for w in parts if w is not None and w.is_running))


async def _connected(settings: Settings, stop: asyncio.Event) -> Client | None:
    """A client, as soon as Temporal answers; None when asked to stop before."""
    try:
        runtime = _runtime(settings)
        await connect(lazy=True, runtime=runtime)
    except (CannotConnect, ValueError, RuntimeError) as error:
        raise WorkerError(" ".join(str(error).split())) from error
    told = False
    while not stop.is_set():
        try:
            return await connect(patience=60, runtime=runtime)
        except CannotConnect as error:
            if not told:
                log.warning("waiting for Temporal: %s", error)
            told = True
        try:
            async with asyncio.timeout(_CONNECT_RETRY_SECONDS):
                await stop.wait()
        except TimeoutError:
            continue
    return None


def _runtime(settings: Settings) -> Runtime:
    """The SDK's core logs where this process does; its metrics are served if they have a port."""
    metrics = None
    if settings.metrics_port is not None:
        metrics = PrometheusConfig(
            bind_address=f"{settings.host}:{settings.metrics_port}", histogram_bucket_overrides=BUCKETS
        )
    forwarding = LogForwardingConfig(logger=logging.getLogger("temporalio"))
    core_logs = LoggingConfig(filter=LoggingConfig.default.filter, forwarding=forwarding)
    return Runtime(
        telemetry=TelemetryConfig(logging=core_logs, metrics=metrics),
        worker_heartbeat_interval=timedelta(seconds=workers.BEAT_SECONDS),
    )


def main(arguments: Sequence[str] = ()) -> NoReturn:
    """Run as a program. Exit codes: 0 stopped as asked, 1 cannot go on, 2 wrongly configured."""
    code = 0
    try:
        if arguments:
            raise WorkerError("worker.py takes no arguments; TURNHOLD_* and TEMPORAL_* configure it")
        asyncio.run(run(Settings()))
    except ValidationError as error:
        first = error.errors()[0]
        name = "".join(f"TURNHOLD_{part}: ".upper() for part in first["loc"][:1])
        code = _complain(f"{name}{first['msg']}", 2)
    except AgentLoadError as error:
        code = _complain(str(error), 2)
    except WorkerError as error:
        code = _complain(str(error), error.exit_code)
    # Every worker is shut down by now. Handlers left behind, and the SDK's threads, must neither
    # delay nor abort the exit.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _complain(message: str, code: int) -> int:
    print(f"worker: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main(sys.argv[1:])
