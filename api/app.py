"""The API: an application that is wired in one place, and the process that serves it."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from api import agents, controls, docs, events, people, problems, receipts, sessions, system, turns
from api.auth import Authenticator, is_loopback
from api.front import Front
from api.metrics import Metrics
from api.parameters import no_repetition
from api.services import Services
from turnhold.agents.definition import load_agents
from turnhold.keys import is_exposed, load
from turnhold.session.errors import Refused
from turnhold.settings import Settings, misnamed
from turnhold.store.objects import Store, StoreUnusable
from turnhold.temporal.connection import connect
from turnhold.temporal.gateway import Gateway
from turnhold.temporal.watch import Watcher

_log = logging.getLogger("turnhold.api")
_PATIENCE_SECONDS = 1.0  # the SDK's own retries; callers wait for them
_STORE_CACHE_BYTES = 32 * 1024 * 1024
_KEEP_ALIVE_SECONDS = 75  # longer than callers keep a connection: else one closes as it is used again
_GRACE_SECONDS = 5  # for requests that are under way; streams and waits end at once, and rejoin

ROUTERS = (
    sessions.router,
    turns.router,
    people.router,
    controls.router,
    events.stream_router,
    events.router,
    receipts.router,
    agents.router,
    system.router,
    docs.router,
)


class CannotServe(Exception):
    """The API cannot start. The message is one line for people."""


def create_app(settings: Settings, store: Store | None = None) -> FastAPI:
    """The application. It connects to Temporal lazily, and starts while Temporal is away (S-93).

    Args:
        settings: everything else.
        store: the one to use, if it is open already.

    Raises:
        AgentLoadError, KeysFileError: the Agents or the keys cannot be loaded.
    """
    definitions = load_agents(settings.agent_modules)
    authenticator = Authenticator(load(settings.keys_file) if settings.keys_file else ())
    watchers: list[Watcher] = []
    metrics = Metrics(lambda: sum(watcher.viewers for watcher in watchers))

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        client = await connect(patience=_PATIENCE_SECONDS, lazy=True)
        gateway = Gateway(client, settings.task_queue, store or _open(settings))
        watcher = Watcher(gateway, gateway.mark)
        gateway.on_command = watcher.poke
        watchers[:] = [watcher]
        app.state.services = Services(
            gateway=gateway,
            watcher=watcher,
            agents=definitions,
            metrics=metrics,
            receipt_seconds=settings.receipt_timeout,
        )
        yield

    app = FastAPI(
        title="turnhold",
        version=_version(),
        description="Durable agent sessions on Temporal.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        dependencies=[Depends(no_repetition)],
    )
    app.add_exception_handler(Refused, problems.on_refused)
    app.add_exception_handler(RequestValidationError, problems.on_invalid)
    app.add_exception_handler(HTTPException, problems.on_http)
    app.add_middleware(Front, authenticator=authenticator, metrics=metrics)
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = lambda: _openapi(app)
    return app


def _open(settings: Settings) -> Store:
    return Store.at(settings.store, cache_bytes=_STORE_CACHE_BYTES)


def _version() -> str:
    try:
        return version("turnhold")
    except PackageNotFoundError:
        return "0"


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        components = schema["components"]
        components["schemas"] |= problems.schemas()
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{}, {"key": []}]
        app.openapi_schema = schema
    return app.openapi_schema


class _Server(uvicorn.Server):
    """Says when it listens; leaves signals to others where it is only a part of a process."""

    def __init__(self, app: FastAPI, url: str, announce: Callable[[str], None], own: bool) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                server_header=False,
            )
        )
        self._app = app
        self._url = url
        self._announce = announce
        self._own = own

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce(self._url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        wired: Services = self._app.state.services
        wired.watcher.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self):
        if self._own:
            with super().capture_signals():
                yield
        else:
            yield


async def serve(
    settings: Settings,
    *,
    announce: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until a signal, or `stop`, asks it to end; then open requests have a short grace.

    Args:
        settings: where to listen, among others; port 0 takes any free one.
        announce: told the actual URL once it listens.
        stop: ends it, and leaves the process's signals alone.

    Raises:
        CannotServe: no keys and not loopback, or the address or the store cannot be had.
        AgentLoadError, KeysFileError: as `create_app`.
    """
    if settings.keys_file is None and not is_loopback(settings.host):
        raise CannotServe(
            f"without keys the API serves loopback only, not {settings.host}: set TURNHOLD_KEYS_FILE"
        )
    for complaint in (*misnamed(os.environ), *_exposed(settings)):
        _log.warning(complaint)
    try:
        store = _open(settings)
        if failure := await store.check():
            _log.warning("the store does not answer yet: %s", failure)
    except StoreUnusable as error:
        raise CannotServe(str(error)) from error
    app = create_app(settings, store)
    listening = _listen(settings.host, settings.port)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{listening.getsockname()[1]}"
    server = _Server(app, url, announce or _announce, own=stop is None)
    watching = None if stop is None else asyncio.create_task(_end(server, stop))
    try:
        await server.serve(sockets=[listening])
    finally:
        if watching is not None:
            watching.cancel()
        listening.close()
    if not server.started:
        raise CannotServe("the API did not start; the log says why")


def _exposed(settings: Settings) -> Iterator[str]:
    if settings.keys_file is not None and is_exposed(settings.keys_file):
        yield f"others than its owner can read or change the keys file {settings.keys_file}: chmod 600 it"


def _announce(url: str) -> None:
    _log.info("listening on %s", url)


async def _end(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise CannotServe(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    # Inherited by every connection. asyncio leaves it out for sockets made without a protocol number,
    # and then each answer waits 40 ms for the acknowledgement of its headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
