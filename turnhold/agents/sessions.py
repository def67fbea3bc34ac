"""`ctx.sessions`: other Sessions, with the authority of the one whose Turn runs (S-70 to S-75)."""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from turnhold.agents.forgotten import Calls
from turnhold.agents.past import PastTurn
from turnhold.session.commands import (
    Cancel,
    Close,
    Command,
    CreatePayload,
    Enqueue,
    EnqueuePayload,
    Interrupt,
    Resume,
)
from turnhold.session.errors import STATUS, Refused
from turnhold.session.values import Record, Seconds, TextPart
from turnhold.session.views import ReceiptView, SessionView, TurnView

_SECONDS: TypeAdapter[float] = TypeAdapter(Seconds)
_M = TypeVar("_M", bound=Record)

Input = str | Sequence[TextPart | Mapping[str, Any]]
"""What a Turn is given: a text, or text parts."""


@dataclass(frozen=True)
class SpawnedSession:
    """A Session that `spawn` or `start` made, and its first Turn if it was given an input."""

    id: str
    turn_id: str | None


class SessionsPort(Protocol):
    """What `Sessions` needs of whoever runs the handler. Every call may raise Refused."""

    async def spawn(self, what: CreatePayload, key: str, *, independent: bool) -> SpawnedSession: ...

    async def get(self, session_id: str) -> SessionView: ...

    async def command(self, session_id: str, command: Command, payload: Record | None) -> ReceiptView:
        """Send the command, as this Session; `payload` is what an idempotency key binds."""
        ...

    async def wait_turn(self, session_id: str, turn_id: str | None, seconds: float | None) -> TurnView:
        """The Turn once it has ended. Raises TimeoutError when `seconds` have passed."""
        ...


class Sessions:
    """Other Sessions. A Session controls those that it owns; it may look at and wait for any other.

    A call that is refused raises `Refused`, whose `code` fails the Turn if it is not caught. Calls
    wait while Temporal or a worker is away.
    """

    def __init__(self, port: SessionsPort, calls: Calls) -> None:
        self._port = port
        self._calls = calls

    def spawn(
        self,
        agent: str,
        input: Input | None = None,
        *,
        key: str,
        session_key: str | None = None,
        config: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Coroutine[Any, Any, SpawnedSession]:
        """Start a Session that this one owns: it is held, closed and cancelled with it.

        `key` makes it one Session, for this Session's whole life, however often it is called.
        Returns when the Session is there. Codes: `agent_not_found`, `depth_limit`, `owned_limit`,
        `session_closing`, `turn_stopping`, `idempotency_conflict`, `session_key_conflict`,
        `session_busy`, `empty_input`, `invalid_request`.
        """
        what = _Wanted(agent, input, session_key, config, metadata)
        return self._calls.made("ctx.sessions.spawn", self._spawn, what, key, independent=False)

    def start(
        self,
        agent: str,
        input: Input | None = None,
        *,
        key: str,
        session_key: str | None = None,
        config: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Coroutine[Any, Any, SpawnedSession]:
        """Start a Session that nobody owns. Otherwise as `spawn`; keys are shared with it."""
        what = _Wanted(agent, input, session_key, config, metadata)
        return self._calls.made("ctx.sessions.start", self._spawn, what, key, independent=True)

    def get(self, session_id: str) -> Coroutine[Any, Any, SessionView]:
        """The Session as it is now: `status`, `holds`, `running_turn_id`, `queued_turns`, …"""
        return self._calls.made("ctx.sessions.get", self._port.get, session_id)

    def enqueue(self, session_id: str, input: Input, *, key: str | None = None) -> Coroutine[Any, Any, str]:
        """Admit a Turn in an owned Session; answers its ID. With `key`, once however often it is called."""
        return self._calls.made("ctx.sessions.enqueue", self._enqueue, session_id, input, key)

    def interrupt(self, session_id: str, turn_id: str | None = None) -> Coroutine[Any, Any, str | None]:
        """Hold an owned Session, and stop its running Turn: answers the hold's ID.

        With `turn_id` stop only that Turn: no hold, None.
        """
        return self._calls.made("ctx.sessions.interrupt", self._interrupt, session_id, turn_id)

    def resume(self, session_id: str, hold_id: str) -> Coroutine[Any, Any, None]:
        """Release a hold on an owned Session: an interrupt that this one placed, or `process_failed`."""
        return self._calls.made("ctx.sessions.resume", self._resume, session_id, hold_id)

    def close(self, session_id: str) -> Coroutine[Any, Any, None]:
        """Close an owned Session: what it has still runs."""
        return self._calls.made("ctx.sessions.close", self._control, session_id, Close())

    def cancel(self, session_id: str) -> Coroutine[Any, Any, None]:
        """Close an owned Session at once."""
        return self._calls.made("ctx.sessions.cancel", self._control, session_id, Cancel())

    def wait_turn(
        self,
        session_id: str,
        turn_id: str | None = None,
        *,
        timeout: float | str | None = None,
    ) -> Coroutine[Any, Any, PastTurn]:
        """Wait until a Turn of another Session has ended: this one, or the one admitted last.

        Raises TimeoutError after `timeout` (seconds or ISO 8601), Refused `turn_not_found`.
        """
        return self._calls.made("ctx.sessions.wait_turn", self._wait_turn, session_id, turn_id, timeout)

    # --- carried out once it is awaited ---------------------------------------------------------

    async def _spawn(self, what: "_Wanted", key: str, *, independent: bool) -> SpawnedSession:
        return await self._port.spawn(what.payload(), key, independent=independent)

    async def _enqueue(self, session_id: str, input: Input, key: str | None) -> str:
        command = _validated(Enqueue, input=input, idempotency_key=key)
        payload = None if key is None else EnqueuePayload(input=command.input)
        receipt = await self._port.command(session_id, command, payload)
        assert receipt.turn_id is not None
        return receipt.turn_id

    async def _interrupt(self, session_id: str, turn_id: str | None) -> str | None:
        command = _validated(Interrupt, turn_id=turn_id)
        return (await self._port.command(session_id, command, None)).hold_id

    async def _resume(self, session_id: str, hold_id: str) -> None:
        await self._control(session_id, _validated(Resume, hold_id=hold_id))

    async def _control(self, session_id: str, command: Command) -> None:
        await self._port.command(session_id, command, None)

    async def _wait_turn(
        self,
        session_id: str,
        turn_id: str | None,
        timeout: float | str | None,  # noqa: ASYNC109 - another Session's time
    ) -> PastTurn:
        try:
            seconds = None if timeout is None else _SECONDS.validate_python(timeout)
        except ValidationError as error:
            raise _invalid(error) from None
        return PastTurn.of(await self._port.wait_turn(session_id, turn_id, seconds))


@dataclass(frozen=True)
class _Wanted:
    agent: str
    input: Input | None
    session_key: str | None
    config: Mapping[str, Any] | None
    metadata: Mapping[str, str] | None

    def payload(self) -> CreatePayload:
        return _validated(
            CreatePayload,
            agent=self.agent,
            input=self.input,
            key=self.session_key,
            config=None if self.config is None else dict(self.config),
            metadata=dict(self.metadata or {}),
        )


def _validated(model: type[_M], **fields: Any) -> _M:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> Refused:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    code = first["type"] if first["type"] in STATUS else "invalid_request"
    return Refused(code, f"{where}: {first['msg']}" if where else first["msg"])


class NoTurn:
    """The port of `init`: there is no Turn whose authority a call could have."""

    async def spawn(self, what: CreatePayload, key: str, *, independent: bool) -> NoReturn:
        raise _no_turn()

    async def get(self, session_id: str) -> NoReturn:
        raise _no_turn()

    async def command(self, session_id: str, command: Command, payload: Record | None) -> NoReturn:
        raise _no_turn()

    async def wait_turn(self, session_id: str, turn_id: str | None, seconds: float | None) -> NoReturn:
        raise _no_turn()


def _no_turn() -> Refused:
    return Refused("turn_not_running", "ctx.sessions is there for Turns; init has none.")
