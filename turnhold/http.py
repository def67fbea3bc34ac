"""Requests of the HTTP client: sent again where that does no harm, their errors told apart.

::

    TurnholdError
      + Problem        the server answered with a problem: `status`, `code`, `detail`
      + Unreachable    no usable answer came: nobody there, a broken connection, not this API
"""

import asyncio
import ipaddress
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, cast
from urllib.parse import urlsplit

import httpx2
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

_PAUSES = (0.1, 0.4)
_LONGEST_PAUSE = 5.0
_REQUEST = httpx2.Timeout(30, connect=5)
_STREAM = httpx2.Timeout(40, connect=5)  # a live stream says something every 15 s
_CONNECTIONS = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
"""A stream and a wait hold theirs for long: with a limit they would keep commands waiting."""

_STREAM_EVENT_BYTES = 8 * 1024 * 1024


class TurnholdError(Exception):
    """Anything this client raises."""


class Problem(TurnholdError):
    """The server refused, or cannot just now. Branch on `status` and `code`."""

    def __init__(self, status: int, body: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        self.code = str(body.get("code") or "unexpected_response")
        self.detail = str(body.get("detail") or body.get("title") or f"the server answered {status}")
        self.session_id: str | None = body.get("session_id")
        self.request_id: str | None = body.get("request_id")
        self.errors: list[dict[str, Any]] = list(body.get("errors") or ())
        self.retry_after = retry_after
        super().__init__(f"{self.code}: {self.detail}")


class Unreachable(TurnholdError):
    """No usable answer. `uncertain`: a command was sent, and it is not known whether it took effect."""

    def __init__(self, message: str, *, uncertain: bool = False) -> None:
        super().__init__(message)
        self.uncertain = uncertain


_M = TypeVar("_M", bound=BaseModel)


class Http:
    """One API, one key, one pool of connections. Arguments as for `Client`."""

    def __init__(
        self, url: str, api_key: str | None = None, *, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self._client = httpx2.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=_REQUEST,
            limits=_CONNECTIONS,
            transport=transport,
            trust_env=not _is_loopback(self.url),
        )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    # --- requests ------------------------------------------------------------------------------------

    async def get(self, path: str, **query: Any) -> httpx2.Response:
        wait = query.get("wait") or 0
        timeout = httpx2.Timeout(30 + wait, connect=5)
        return await self._send("GET", path, repeatable=True, params=_query(**query), timeout=timeout)

    async def post(self, path: str, body: Any, idempotency_key: str | None) -> httpx2.Response:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        return await self._send(
            "POST",
            path,
            repeatable=idempotency_key is not None,
            content=None if body is None else to_json(body),
            headers=headers,
        )

    @asynccontextmanager
    async def sse(self, path: str, **query: Any) -> AsyncGenerator[httpx2.EventSource]:
        """A live stream of server-sent events. Raises Problem or Unreachable, also where it breaks."""
        try:
            async with self._client.sse(
                path, params=_query(**query), timeout=_STREAM, max_event_size=_STREAM_EVENT_BYTES
            ) as source:
                if source.response.status_code != 200:
                    await source.response.aread()
                    raise _problem(source.response)
                yield source
        except (httpx2.TransportError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise self.unreachable(error) from error
        except ValidationError as error:
            raise Unreachable(f"{self.url} answers with something else than events") from error

    async def _send(self, method: str, path: str, *, repeatable: bool, **request: Any) -> httpx2.Response:
        for pause in (*_PAUSES, None):
            try:
                response = await self._client.request(method, path, **request)
            except (httpx2.TransportError, httpx2.InvalidURL) as error:
                never_left = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                if pause is None or not (repeatable or never_left):
                    raise self.unreachable(error, uncertain=method == "POST" and not never_left) from error
            else:
                if response.is_success:
                    return response
                problem = _problem(response)
                if pause is None or not repeatable or problem.code != "temporal_unavailable":
                    raise problem
                pause = min(problem.retry_after or pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def read(self, response: httpx2.Response, model: type[_M]) -> _M:
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            raise Unreachable(
                f"{self.url} does not answer like this API (is the URL right?): "
                f"{error.error_count()} unexpected in the answer to {response.request.url.path}"
            ) from error

    def unreachable(self, error: Exception, *, uncertain: bool = False) -> Unreachable:
        reason = str(error) or type(error).__name__
        return Unreachable(f"cannot reach {self.url}: {reason}", uncertain=uncertain)


def _query(**query: Any) -> dict[str, Any]:
    return {
        name: ("true" if value else "false") if isinstance(value, bool) else value
        for name, value in query.items()
        if value is not None
    }


def _problem(response: httpx2.Response) -> Problem:
    try:
        parsed: Any = from_json(response.content)
    except ValueError:
        parsed = None
    retry_after = response.headers.get("Retry-After", "")
    return Problem(
        response.status_code,
        cast(dict[str, Any], parsed) if isinstance(parsed, dict) else {},
        float(retry_after) if retry_after.isdecimal() else None,
    )


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
