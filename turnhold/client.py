"""A typed HTTP client: the REST contract as methods that return the public objects.

::

    TurnholdError
      + Problem        the server answered with a problem: `status`, `code`, `detail`
      + Unreachable    no usable answer came: nobody there, a broken connection, not this API

Calls that may be repeated without harm are repeated when the connection breaks: reads, and
commands with an idempotency key (S-3). A command without one is sent again only when it certainly
never left.
"""

import asyncio
import ipaddress
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, cast
from urllib.parse import quote, urlsplit

import httpx2
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic_core import from_json, to_json

from turnhold.session.errors import Rejection
from turnhold.session.model import SessionStatus, TurnStatus
from turnhold.session.values import rfc3339
from turnhold.session.views import (
    EventPage,
    EventView,
    Explanation,
    ReceiptView,
    SessionListed,
    SessionView,
    TurnView,
)

Input = str | Sequence[Mapping[str, JsonValue]]
"""What a Turn is given: one text, or a list of text parts."""

_ATTEMPTS = 3
_PAUSES = (0.1, 0.4)
_LONGEST_PAUSE = 5.0
_REQUEST = httpx2.Timeout(30, connect=5)
_STREAM = httpx2.Timeout(40, connect=5)  # a live stream says something every 15 s
_STREAM_EVENT_BYTES = 8 * 1024 * 1024
_WAIT = 30.0  # one `?wait=` request; a longer wait is several of them
_PASSING = (429, 502, 503, 504)


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


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Created(_Answer):
    """A Session and, if it was created with input, its first Turn. `replay`: it was an exact retry."""

    session: SessionView
    turn: TurnView | None = None
    replay: bool = False


class SessionPage(_Answer):
    sessions: tuple[SessionListed, ...]
    next_cursor: str | None = None


class _Owned(_Answer):
    sessions: tuple[SessionListed, ...]


class TurnPage(_Answer):
    turns: tuple[TurnView, ...]
    next_after: int


class AgentInfo(_Answer):
    """An Agent that the deployment serves, with the settings that its Sessions start from."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    description: str | None = None


class Gap(_Answer):
    """In a stream: events up to `retained_after` are no longer available (S-82)."""

    retained_after: int


_M = TypeVar("_M", bound=BaseModel)


class Client:
    """One API, one key. Use it as an async context manager.

    Args:
        url: where the API is, such as `http://127.0.0.1:8080`.
        api_key: sent as a bearer token.
        transport: for tests.
    """

    def __init__(
        self, url: str, api_key: str | None = None, *, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=_REQUEST,
            transport=transport,
            trust_env=not _is_loopback(self.url),
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    # --- Sessions ------------------------------------------------------------------------------

    async def create_session(
        self,
        agent: str,
        *,
        input: Input | None = None,
        key: str | None = None,
        config: Mapping[str, JsonValue] | None = None,
        metadata: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> Created:
        """Creates a Session; with `input` it admits the first Turn (S-1, S-2)."""
        body = {"agent": agent, "input": input, "key": key, "config": config, "metadata": metadata}
        response = await self._post(
            "/v1/sessions", {k: v for k, v in body.items() if v is not None}, idempotency_key
        )
        created = self._read(response, Created)
        return created.model_copy(update={"replay": response.status_code == 200})

    async def list_sessions(
        self,
        *,
        agent: str | None = None,
        status: SessionStatus | None = None,
        held: bool | None = None,
        asking: bool | None = None,
        parent_id: str | None = None,
        deployment: str | None = None,
        active_since: datetime | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> SessionPage:
        """One page of Sessions, newest first. It may lag by seconds; `session` never does."""
        response = await self._get(
            "/v1/sessions",
            agent=agent,
            status=status,
            held=held,
            asking=asking,
            parent_id=parent_id,
            deployment=deployment,
            active_since=active_since and rfc3339(active_since),
            limit=limit,
            cursor=cursor,
        )
        return self._read(response, SessionPage)

    async def lookup(self, agent: str, key: str) -> SessionView:
        """The Session of an Agent's key."""
        return self._read(await self._get("/v1/sessions/lookup", agent=agent, key=key), SessionView)

    async def session(self, session_id: str) -> SessionView:
        return self._read(await self._get(_path(session_id)), SessionView)

    async def explain(self, session_id: str) -> Explanation:
        """Why it does not move, and the calls that clear that; answers without a worker too (S-94)."""
        return self._read(await self._get(_path(session_id, "explain")), Explanation)

    async def owned(self, session_id: str, *, recursive: bool = False) -> tuple[SessionListed, ...]:
        """The Sessions that this one owns, newest first; with `recursive` the whole tree below it."""
        response = await self._get(_path(session_id, "owned"), recursive=recursive or None)
        return self._read(response, _Owned).sessions

    async def interrupt(self, session_id: str, *, idempotency_key: str | None = None) -> ReceiptView:
        """Holds the Session (`hold_id`) and stops its running Turn (`turn_id`), if any (S-51)."""
        return await self._command(_path(session_id, "interrupt"), None, idempotency_key)

    async def resume(
        self, session_id: str, hold_id: str, *, idempotency_key: str | None = None
    ) -> ReceiptView:
        """Releases one hold (S-52)."""
        return await self._command(_path(session_id, "resume"), {"hold_id": hold_id}, idempotency_key)

    async def close(self, session_id: str, *, idempotency_key: str | None = None) -> ReceiptView:
        """Takes no more Turns, lets the rest finish, closes (S-53)."""
        return await self._command(_path(session_id, "close"), None, idempotency_key)

    async def cancel(self, session_id: str, *, idempotency_key: str | None = None) -> ReceiptView:
        """Closes at once: every Turn that has not ended is cancelled (S-54)."""
        return await self._command(_path(session_id, "cancel"), None, idempotency_key)

    async def receipt(self, session_id: str, request_id: str) -> ReceiptView:
        """The outcome of an uncertain command: accepted, rejected or pending."""
        response = await self._get(_path(session_id, "receipts", request_id))
        return self._receipt(response)

    # --- Turns ----------------------------------------------------------------------------------

    async def enqueue(
        self, session_id: str, input: Input, *, idempotency_key: str | None = None
    ) -> ReceiptView:
        """Admits a Turn (S-10, S-11). `status` is `pending` when no worker has answered yet."""
        return await self._command(_path(session_id, "turns"), {"input": input}, idempotency_key)

    async def list_turns(
        self,
        session_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        status: TurnStatus | None = None,
    ) -> TurnPage:
        """Retained Turns by sequence, without their input and output."""
        response = await self._get(_path(session_id, "turns"), after=after, limit=limit, status=status)
        return self._read(response, TurnPage)

    async def turn(self, session_id: str, turn_id: str, *, wait: float | None = None) -> TurnView:
        """A Turn; with `wait`, as soon as it has ended, or as it is after that many seconds (0–60)."""
        response = await self._get(_path(session_id, "turns", turn_id), wait=wait and round(wait, 3))
        return self._read(response, TurnView)

    async def wait_turn(self, session_id: str, turn_id: str, *, patience: float = math.inf) -> TurnView:
        """The Turn once it has ended, or as it is when `patience` seconds have passed."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience
        while True:
            left = max(0.0, deadline - clock())
            turn = await self.turn(session_id, turn_id, wait=min(_WAIT, left))
            if turn.status not in ("queued", "running") or clock() >= deadline:
                return turn

    async def interrupt_turn(
        self, session_id: str, turn_id: str, *, idempotency_key: str | None = None
    ) -> ReceiptView:
        """Stops exactly that running Turn; holds nothing (S-50)."""
        return await self._command(_path(session_id, "turns", turn_id, "interrupt"), None, idempotency_key)

    # --- timeline ---------------------------------------------------------------------------------

    async def events(
        self, session_id: str, *, after: int = 0, limit: int | None = None, kinds: Sequence[str] = ()
    ) -> EventPage:
        """One page of events after a sequence."""
        response = await self._get(
            _path(session_id, "events"), after=after, limit=limit, kind=list(kinds) or None
        )
        return self._read(response, EventPage)

    async def stream(
        self,
        session_id: str,
        *,
        after: int = 0,
        kinds: Sequence[str] = (),
        on_lost: Callable[[TurnholdError], None] | None = None,
    ) -> AsyncGenerator[EventView | Gap]:
        """Every retained event after a sequence, exactly once, as it happens (S-81).

        Ends when the Session has ended. A connection that breaks is made again from the last
        sequence, without limit, and so is one that a server cannot serve for now (503, 429);
        `on_lost` is told why each time. Close the iterator
        (`contextlib.aclosing`) when you stop early.

        Raises:
            Problem: the server refuses the stream.
            Unreachable: the first connection could not be made.
        """
        position, connected, failures = after, False, 0
        while True:
            try:
                async with aclosing(self._connection(session_id, position, kinds)) as connection:
                    async for item in connection:
                        connected, failures = True, 0
                        if item is None:
                            continue
                        if isinstance(item, Gap):
                            if item.retained_after > position:
                                position = item.retained_after
                                yield item
                        elif item.sequence > position:
                            position = item.sequence
                            yield item
                            if item.kind == "session.closed":
                                return
                if await self._has_ended(session_id, position, kinds):
                    return
                lost: TurnholdError = Unreachable("the stream ended early")
            except Unreachable as error:
                lost = error
            except Problem as error:
                if error.status not in _PASSING:
                    raise
                lost = error
            failures += 1
            if not connected and failures >= _ATTEMPTS and not isinstance(lost, Problem):
                raise lost
            if on_lost:
                on_lost(lost)
            await asyncio.sleep(min(_LONGEST_PAUSE, 0.1 * 2 ** min(failures, 6)))

    async def _connection(
        self, session_id: str, after: int, kinds: Sequence[str]
    ) -> AsyncGenerator[EventView | Gap | None]:
        """One connection's items; the first is None, and says that it was made."""
        try:
            async with self._http.sse(
                _path(session_id, "events"),
                params=_query(after=after, kind=list(kinds) or None),
                timeout=_STREAM,
                max_event_size=_STREAM_EVENT_BYTES,
            ) as source:
                if source.response.status_code != 200:
                    await source.response.aread()
                    raise _problem(source.response)
                yield None
                async for event in source:
                    kind = Gap if event.event == "gap" else EventView
                    yield kind.model_validate_json(event.data)
        except (httpx2.TransportError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise self._unreachable(error) from error
        except ValidationError as error:
            raise Unreachable(f"{self.url} answers with something else than events") from error

    async def _has_ended(self, session_id: str, position: int, kinds: Sequence[str]) -> bool:
        if (await self.session(session_id)).status != "closed":
            return False
        return not (await self.events(session_id, after=position, limit=1, kinds=kinds)).records

    # --- the deployment ---------------------------------------------------------------------------

    async def agents(self) -> tuple[AgentInfo, ...]:
        """The Agents that this deployment serves."""

        class Agents(_Answer):
            agents: tuple[AgentInfo, ...]

        return self._read(await self._get("/v1/agents"), Agents).agents

    async def agent(self, name: str) -> AgentInfo:
        return self._read(await self._get(f"/v1/agents/{quote(name, safe='')}"), AgentInfo)

    # --- requests ------------------------------------------------------------------------------------

    async def _get(self, path: str, **query: Any) -> httpx2.Response:
        wait = query.get("wait") or 0
        timeout = httpx2.Timeout(30 + wait, connect=5)
        return await self._send("GET", path, repeatable=True, params=_query(**query), timeout=timeout)

    async def _post(self, path: str, body: Any, idempotency_key: str | None) -> httpx2.Response:
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

    async def _command(self, path: str, body: Any, idempotency_key: str | None) -> ReceiptView:
        response = await self._post(path, body, idempotency_key)
        return self._receipt(response).but(replay=response.headers.get("Idempotent-Replay") == "true")

    def _receipt(self, response: httpx2.Response) -> ReceiptView:
        receipt = self._read(response, _WireReceipt)
        return ReceiptView.model_validate({**receipt.model_dump(), "rejection": receipt.problem})

    async def _send(self, method: str, path: str, *, repeatable: bool, **request: Any) -> httpx2.Response:
        for pause in (*_PAUSES, None):
            try:
                response = await self._http.request(method, path, **request)
            except (httpx2.TransportError, httpx2.InvalidURL) as error:
                never_left = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                if pause is None or not (repeatable or never_left):
                    raise self._unreachable(error, uncertain=method == "POST" and not never_left) from error
            else:
                if response.is_success:
                    return response
                problem = _problem(response)
                if pause is None or not repeatable or problem.code != "temporal_unavailable":
                    raise problem
                pause = min(problem.retry_after or pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _read(self, response: httpx2.Response, model: type[_M]) -> _M:
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            raise Unreachable(
                f"{self.url} does not answer like this API (is the URL right?): "
                f"{error.error_count()} unexpected in the answer to {response.request.url.path}"
            ) from error

    def _unreachable(self, error: Exception, *, uncertain: bool = False) -> Unreachable:
        reason = str(error) or type(error).__name__
        return Unreachable(f"cannot reach {self.url}: {reason}", uncertain=uncertain)


class _WireReceipt(ReceiptView):
    """A rejected command's receipt carries its problem."""

    problem: Rejection | None = None


def _path(*parts: str) -> str:
    return "/v1/sessions/" + "/".join(quote(part, safe="") for part in parts)


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
