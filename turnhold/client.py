"""A typed HTTP client: the REST contract as methods that return the public objects.

Calls that may be repeated without harm are repeated when the connection breaks: reads, and
commands with an idempotency key (S-3). A command without one is sent again only when it certainly
never left. What they raise is in `http`.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, ConfigDict, JsonValue

from turnhold.http import Http, Problem, TurnholdError, Unreachable
from turnhold.session.errors import Rejection
from turnhold.session.model import AskStatus, SessionStatus, TurnStatus
from turnhold.session.values import rfc3339
from turnhold.session.views import (
    AskView,
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
_LONGEST_PAUSE = 5.0
_WAIT = 30.0  # one `?wait=` request; a longer wait is several of them
_PASSING = (429, 502, 503, 504)

__all__ = ["Client", "Created", "Gap", "Problem", "TurnholdError", "Unreachable"]


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
        self._http = Http(self.url, api_key, transport=transport)

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
        response = await self._http.post(
            "/v1/sessions", {k: v for k, v in body.items() if v is not None}, idempotency_key
        )
        created = self._http.read(response, Created)
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
        response = await self._http.get(
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
        return self._http.read(response, SessionPage)

    async def lookup(self, agent: str, key: str) -> SessionView:
        """The Session of an Agent's key."""
        return self._http.read(await self._http.get("/v1/sessions/lookup", agent=agent, key=key), SessionView)

    async def session(self, session_id: str) -> SessionView:
        return self._http.read(await self._http.get(_path(session_id)), SessionView)

    async def explain(self, session_id: str) -> Explanation:
        """Why it does not move, and the calls that clear that; answers without a worker too (S-94)."""
        return self._http.read(await self._http.get(_path(session_id, "explain")), Explanation)

    async def owned(self, session_id: str, *, recursive: bool = False) -> tuple[SessionListed, ...]:
        """The Sessions that this one owns, newest first; with `recursive` the whole tree below it."""
        response = await self._http.get(_path(session_id, "owned"), recursive=recursive or None)
        return self._http.read(response, _Owned).sessions

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
        response = await self._http.get(_path(session_id, "receipts", request_id))
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
        response = await self._http.get(_path(session_id, "turns"), after=after, limit=limit, status=status)
        return self._http.read(response, TurnPage)

    async def turn(self, session_id: str, turn_id: str, *, wait: float | None = None) -> TurnView:
        """A Turn; with `wait`, as soon as it has ended, or as it is after that many seconds (0–60)."""
        response = await self._http.get(_path(session_id, "turns", turn_id), wait=wait and round(wait, 3))
        return self._http.read(response, TurnView)

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

    # --- people -----------------------------------------------------------------------------------

    async def send(
        self,
        session_id: str,
        turn_id: str,
        content: Input,
        *,
        fallback: Literal["enqueue"] | None = None,
        idempotency_key: str | None = None,
    ) -> ReceiptView:
        """Sends a message to exactly that running Turn (`message_id`); accepted is not yet delivered.

        With `fallback` it becomes a Turn (`turn_id`, `sequence`) where that one takes none (S-30).
        """
        body = {"content": content} | ({"fallback": fallback} if fallback else {})
        return await self._command(_path(session_id, "turns", turn_id, "messages"), body, idempotency_key)

    async def asks(
        self, session_id: str, *, turn_id: str | None = None, status: AskStatus | None = None
    ) -> tuple[AskView, ...]:
        """Questions in the order in which they were asked: of the Session, or of one Turn."""
        turn = () if turn_id is None else ("turns", turn_id)
        response = await self._http.get(_path(session_id, *turn, "asks"), status=status)

        class Asks(_Answer):
            asks: tuple[AskView, ...]

        return self._http.read(response, Asks).asks

    async def ask(self, session_id: str, turn_id: str, ask_id: str) -> AskView:
        return self._http.read(
            await self._http.get(_path(session_id, "turns", turn_id, "asks", ask_id)), AskView
        )

    async def answer(
        self,
        session_id: str,
        turn_id: str,
        ask_id: str,
        *,
        text: str | None = None,
        selected: Sequence[str] | None = None,
        response_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> ReceiptView:
        """Answers a question; the first valid answer counts (S-41).

        `response_id` is yours: with it, a repetition of the same answer is the same answer.
        """
        given = {"text": text, "selected": None if selected is None else list(selected)}
        body: dict[str, Any] = {"answer": {name: value for name, value in given.items() if value is not None}}
        if response_id is not None:
            body["response_id"] = response_id
        path = _path(session_id, "turns", turn_id, "asks", ask_id, "answer")
        return await self._command(path, body, idempotency_key)

    # --- timeline ---------------------------------------------------------------------------------

    async def events(
        self, session_id: str, *, after: int = 0, limit: int | None = None, kinds: Sequence[str] = ()
    ) -> EventPage:
        """One page of events after a sequence."""
        response = await self._http.get(
            _path(session_id, "events"), after=after, limit=limit, kind=list(kinds) or None
        )
        return self._http.read(response, EventPage)

    async def stream(
        self,
        session_id: str,
        *,
        after: int = 0,
        kinds: Sequence[str] = (),
        on_lost: Callable[[TurnholdError], None] | None = None,
        on_back: Callable[[], None] | None = None,
    ) -> AsyncGenerator[EventView | Gap]:
        """Every retained event after a sequence, exactly once, as it happens (S-81).

        Ends when the Session has ended. A connection that breaks is made again from the last
        sequence, without limit, and so is one that a server cannot serve for now (503, 429);
        `on_lost` is told why each time, and `on_back` when it is there again. Close the iterator
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
                        if item is None and failures and on_back:
                            on_back()
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
        path = _path(session_id, "events")
        async with self._http.sse(path, after=after, kind=list(kinds) or None) as source:
            yield None
            async for event in source:
                kind = Gap if event.event == "gap" else EventView
                yield kind.model_validate_json(event.data)

    async def _has_ended(self, session_id: str, position: int, kinds: Sequence[str]) -> bool:
        if (await self.session(session_id)).status != "closed":
            return False
        return not (await self.events(session_id, after=position, limit=1, kinds=kinds)).records

    # --- the deployment ---------------------------------------------------------------------------

    async def agents(self) -> tuple[AgentInfo, ...]:
        """The Agents that this deployment serves."""

        class Agents(_Answer):
            agents: tuple[AgentInfo, ...]

        return self._http.read(await self._http.get("/v1/agents"), Agents).agents

    async def agent(self, name: str) -> AgentInfo:
        return self._http.read(await self._http.get(f"/v1/agents/{quote(name, safe='')}"), AgentInfo)

    async def _command(self, path: str, body: Any, idempotency_key: str | None) -> ReceiptView:
        response = await self._http.post(path, body, idempotency_key)
        return self._receipt(response).but(replay=response.headers.get("Idempotent-Replay") == "true")

    def _receipt(self, response: httpx2.Response) -> ReceiptView:
        receipt = self._http.read(response, _WireReceipt)
        return ReceiptView.model_validate({**receipt.model_dump(), "rejection": receipt.problem})


class _WireReceipt(ReceiptView):
    """A rejected command's receipt carries its problem."""

    problem: Rejection | None = None


def _path(*parts: str) -> str:
    return "/v1/sessions/" + "/".join(quote(part, safe="") for part in parts)
