"""Other Sessions, as a running Turn reaches them: through the host, with its Session's authority (S-73)."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from turnhold.agents.definition import AgentDefinition
from turnhold.agents.errors import Refused
from turnhold.agents.sessions import SpawnedSession
from turnhold.session import commands, ids
from turnhold.session.creation import Config, NewSession
from turnhold.session.hosting import SessionInfo
from turnhold.session.values import Origin, Record, milliseconds
from turnhold.session.views import ReceiptView, SessionView, TurnsRequest, TurnView
from turnhold.temporal.gateway import Gateway, new_request_id
from turnhold.temporal.watch import Watcher

T = TypeVar("T")

_AWAY = ("worker_unavailable", "temporal_unavailable", "rate_limited")
_RETRY_SECONDS = 1.0
_RECEIPT_SECONDS = 30.0  # and then again
_WAIT_SECONDS = 3_600.0  # likewise
_ROOM_SECONDS = 10.0  # how long a spawn waits for room that others' starts take


class Spawner(Record):
    """The Turn on whose behalf a call is made."""

    session: SessionInfo
    epoch: int
    turn_id: str

    @property
    def origin(self) -> Origin:
        return Origin(kind="session", id=self.session.id)


class OtherSessions(Protocol):
    """What the Turns of a host ask for; on the host's loop. Every call may raise Refused."""

    async def spawn(
        self, turn: Spawner, what: commands.CreatePayload, key: str, *, independent: bool
    ) -> SpawnedSession: ...

    async def get(self, turn: Spawner, session_id: str) -> SessionView: ...

    async def command(
        self, turn: Spawner, session_id: str, command: commands.Command, payload: Record | None
    ) -> ReceiptView: ...

    async def wait_turn(
        self, turn: Spawner, session_id: str, turn_id: str | None, seconds: float | None
    ) -> TurnView: ...


class Others:
    """Other Sessions over the gateway. While Temporal or a worker is away, calls wait.

    Args:
        agents: those that Sessions can be started of.
    """

    def __init__(self, gateway: Gateway, watcher: Watcher, agents: Mapping[str, AgentDefinition]) -> None:
        self._gateway = gateway
        self._watcher = watcher
        self._agents = agents

    async def spawn(
        self, turn: Spawner, what: commands.CreatePayload, key: str, *, independent: bool
    ) -> SpawnedSession:
        """Ask the Turn's own Session to start another; returns once that is there (S-70)."""
        definition = self._agents.get(what.agent)
        if definition is None:
            raise Refused("agent_not_found", f"This worker knows no Agent {what.agent!r}.")
        new = NewSession(
            agent=what.agent,
            environment=turn.session.environment,
            seed=ids.digest("seed", turn.session.id, key),  # a retry knows the same Turn
            config=Config.resolve(definition.settings, *([what.config] if what.config else [])),
            key=what.key,
            metadata=what.metadata,
            input=what.input or (),
            request_id=new_request_id(),
            created_at=milliseconds(datetime.now(UTC)),
        )
        command = commands.Spawn(
            idempotency_key=key,
            fingerprint=ids.digest(what.fingerprint_as_given(), "independent" if independent else "owned"),
            caller=turn.origin,
            turn_id=turn.turn_id,
            epoch=turn.epoch,
            session=new,
            independent=independent,
        )
        receipt = await self._with_room(lambda: self._accepted(turn.session.id, command, self._gateway.spawn))
        assert receipt.spawned_id is not None
        return SpawnedSession(receipt.spawned_id, new.first_turn_id())

    async def get(self, turn: Spawner, session_id: str) -> SessionView:
        _must_be_of(turn, session_id)
        return await _patiently(lambda: self._gateway.session(session_id))

    async def command(
        self, turn: Spawner, session_id: str, command: commands.Command, payload: Record | None
    ) -> ReceiptView:
        """Send a command in the name of the Turn's Session; its accepted receipt."""
        _must_be_of(turn, session_id)
        fingerprint = None if payload is None else commands.fingerprint(payload)
        command = command.but(caller=turn.origin, fingerprint=fingerprint)
        return await self._accepted(session_id, command, self._gateway.command)

    async def wait_turn(
        self, turn: Spawner, session_id: str, turn_id: str | None, seconds: float | None
    ) -> TurnView:
        """The Turn, or the Session's last, once it has ended: watched with all who wait for it."""
        _must_be_of(turn, session_id)
        async with asyncio.timeout(seconds):
            wanted = turn_id or await _patiently(lambda: self._last_turn(session_id))
            while True:
                found = await _patiently(lambda: self._watcher.wait_turn(session_id, wanted, _WAIT_SECONDS))
                if found.status not in ("queued", "running"):
                    return found

    async def _last_turn(self, session_id: str) -> str:
        admitted = (await self._gateway.session(session_id)).turns_admitted
        turns = await self._gateway.turns(session_id, TurnsRequest(after=max(admitted - 1, 0), limit=1))
        if not turns:
            raise Refused("turn_not_found", f"Session {session_id} has no Turn.")
        return turns[-1].id

    async def _accepted(
        self,
        session_id: str,
        command: Any,
        send: Callable[[str, Any, float], Awaitable[ReceiptView]],
    ) -> ReceiptView:
        """Send once, however often that takes, and wait for the receipt however long it takes."""
        request_id = new_request_id()
        command = command.but(request_id=request_id)
        receipt = await _patiently(lambda: send(session_id, command, _RECEIPT_SECONDS))
        while receipt.status == "pending":
            receipt = await _patiently(
                lambda: self._gateway.awaited(session_id, request_id, _RECEIPT_SECONDS)
            )
        if receipt.rejection is not None:
            raise Refused(receipt.rejection.code, receipt.rejection.detail)
        return receipt

    async def _with_room(self, spawn: Callable[[], Awaitable[ReceiptView]]) -> ReceiptView:
        """A Session that has too much to start at once has room again in a moment."""
        until = asyncio.get_running_loop().time() + _ROOM_SECONDS
        while True:
            try:
                return await spawn()
            except Refused as refused:
                if refused.code != "session_busy" or asyncio.get_running_loop().time() > until:
                    raise
            await asyncio.sleep(_RETRY_SECONDS / 4)


def _must_be_of(turn: Spawner, session_id: str) -> None:
    """Raises Refused: there is no such Session in this Turn's environment."""
    environment = turn.session.environment
    if not ids.well_formed("ses", session_id) or not ids.in_environment(session_id, environment):
        raise Refused("session_not_found", f"There is no Session {session_id}.")


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except Refused as refused:
            if refused.code not in _AWAY:
                raise
        await asyncio.sleep(_RETRY_SECONDS)


class TurnSessions:
    """`SessionsPort` of one Turn: calls from the Process's loop, made on the host's. `over`: no more."""

    def __init__(self, others: OtherSessions, host_loop: asyncio.AbstractEventLoop, turn: Spawner) -> None:
        self.over = False
        self._others = others
        self._host_loop = host_loop
        self._turn = turn

    async def spawn(self, what: commands.CreatePayload, key: str, *, independent: bool) -> SpawnedSession:
        return await self._on_host(self._others.spawn(self._turn, what, key, independent=independent))

    async def get(self, session_id: str) -> SessionView:
        return await self._on_host(self._others.get(self._turn, session_id))

    async def command(
        self, session_id: str, command: commands.Command, payload: Record | None
    ) -> ReceiptView:
        return await self._on_host(self._others.command(self._turn, session_id, command, payload))

    async def wait_turn(self, session_id: str, turn_id: str | None, seconds: float | None) -> TurnView:
        return await self._on_host(self._others.wait_turn(self._turn, session_id, turn_id, seconds))

    async def _on_host(self, call: Coroutine[Any, Any, T]) -> T:
        if self.over:
            call.close()
            raise RuntimeError("this Turn is over")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._host_loop))
