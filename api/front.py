"""What happens to every request before it is routed: an ID, the caller, a body within bounds."""

import logging
import re
import time
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems, strict_json
from api.auth import Authenticator
from api.metrics import Metrics
from turnhold.session.errors import Refused
from turnhold.temporal.gateway import new_request_id

_log = logging.getLogger("turnhold.api")
_SLASH = re.compile(b"%2[fF]")
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


class Front:
    """Outermost of ours: whatever goes wrong behind it becomes a problem with the request's ID."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, metrics: Metrics) -> None:
        self._app = app
        self._authenticator = authenticator
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = _path(scope)
        state = scope.setdefault("state", {})
        state["request_id"] = new_request_id()
        started = time.perf_counter()
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._pass(scope, receive, counted)
        except Exception:
            ids = {"request_id": state["request_id"]}
            _log.exception("a request failed: %s %s", scope["method"], _route(scope), extra=ids)
            if not status:
                bug = problems.problem(
                    "internal_error",
                    "Something went wrong here; the log has it under this request_id.",
                    request_id=state["request_id"],
                )
                await problems.respond(bug)(scope, receive, counted)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.answered(method, _route(scope), status, time.perf_counter() - started)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["path"].startswith("/v1/"):
                scope["state"]["caller"] = self._authenticator.caller(Headers(scope=scope))
            if scope["method"] == "POST":
                body = await strict_json.read_body(scope, receive)
                if body is None:
                    return
                strict_json.check(scope, body)
                receive = strict_json.replay(body, receive)
        except Refused as refused:
            response = await problems.on_refused(Request(scope), refused)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _path(scope: Scope) -> str:
    """The path with its segments as they were sent: an encoded slash is part of an ID, and no border."""
    raw: bytes = scope.get("raw_path") or b""
    if _SLASH.search(raw) is None:
        return scope["path"]
    return unquote(_SLASH.sub(b"%252F", raw).decode("ascii"))


def _route(scope: Scope) -> str:
    """The template of the route, never the path: an ID would make a metric of its own."""
    return getattr(scope.get("route"), "path", "none")
