"""`turnhold rpc`: one Session driven by another program, JSON lines in and out.

A command is an object with a `type` and an `id` of the caller's: `prompt` and `follow_up` (with a
`message`) queue a Turn, `steer` sends a message to the running one, `abort` stops it, `get_state`
shows the Session. Each is answered by one `response` with that `id`, in the order of the commands;
between them stands every event of the Session, once and in order.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from turnhold.cli import outcome, output, show
from turnhold.cli.lines import Lines
from turnhold.client import Client, Gap, Problem, TurnholdError, Unreachable
from turnhold.session.views import EventView, ReceiptView, SessionView

_PAUSES = (0.1, 5.0)  # between attempts while nobody can be reached
_LEAVING_SECONDS = 20.0  # for what is stopped on Ctrl-C to end
_TERMINAL = ("turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled")
_T = TypeVar("_T")


class _Command(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: JsonValue = None


class Give(_Command):
    type: Literal["prompt", "follow_up"]
    message: str


class Steer(_Command):
    type: Literal["steer"]
    message: str
    fallback: Literal["enqueue"] | None = None


class Plain(_Command):
    type: Literal["abort", "get_state"]


Command = Annotated[Give | Steer | Plain, Field(discriminator="type")]
_COMMAND: TypeAdapter[Give | Steer | Plain] = TypeAdapter(Command)


class BadLine(Exception):
    """A line of input is no command. `id` is its own, as far as it has one."""

    def __init__(self, code: str, detail: str, id: JsonValue = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.id = id


def command_in(line: bytes) -> Give | Steer | Plain:
    """The command that a line holds. Raises BadLine."""
    try:
        given: Any = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        raise BadLine("invalid_json", f"not JSON: {error}") from error
    try:
        return _COMMAND.validate_python(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        detail = f"{where}: {first['msg']}" if where else first["msg"]
        fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        raise BadLine("invalid_request", detail, fields.get("id")) from error


async def drive(client: Client, agent: str, session_id: str | None) -> None:
    """Drive a Session of `agent`, a new one without `session_id`, until the input or the Session ends.

    At the end of the input a new Session is closed, and what is queued still runs; of another one
    the Turns that came from here are waited for. Ctrl-C stops them instead.

    Raises:
        TurnholdError: the Session cannot be had.
        CommandFailed: it is of another Agent.
    """
    if session_id is None:
        made = await client.create_session(agent, idempotency_key=f"rpc-{uuid.uuid4().hex}")
        session, after = made.session, 0
    else:
        session = await client.session(session_id)
        after = session.last_event_sequence
    if session.agent != agent:
        raise outcome.CommandFailed(
            f"Session {session.id} is one of Agent {session.agent}, not {agent}", outcome.USAGE
        )
    output.note(f"session {session.id}")
    await _Driver(client, session, owns=session_id is None).drive(after)


class _Driver:
    """Args: `owns`: the Session was made here, and ends here."""

    def __init__(self, client: Client, session: SessionView, *, owns: bool) -> None:
        self._client = client
        self._id = session.id
        self._owns = owns
        self._keys = f"rpc-{uuid.uuid4().hex}"
        self._sent = 0
        self._mine: set[str] = set()  # Turns that were queued from here and have not ended
        self._ended: set[str] = set()
        self._unjudged: list[str] = []  # requests that were accepted before a worker judged them
        self._turn_ended = asyncio.Event()

    async def drive(self, after: int) -> None:
        watching = asyncio.create_task(self._watch(after), name="events")
        talking = asyncio.create_task(self._talk(), name="commands")
        try:
            await asyncio.wait((watching, talking), return_when=asyncio.FIRST_COMPLETED)
            if talking.done():
                talking.result()
                await self._finish(watching)
            if watching.done():
                watching.result()
        except asyncio.CancelledError:
            await self._stop(watching)
            raise
        finally:
            watching.cancel()
            talking.cancel()

    async def _finish(self, watching: "asyncio.Task[None]") -> None:
        """The input has ended: let what is queued run, and close what was made here."""
        if self._owns:
            key = self._next_key()
            with contextlib.suppress(Problem):  # somebody else has closed it
                await self._sure(lambda: self._client.close(self._id, idempotency_key=key))
            await watching
            return
        for request_id in self._unjudged:
            await self._judged(request_id)
        while self._mine and not watching.done():
            self._turn_ended.clear()
            waiting = asyncio.ensure_future(self._turn_ended.wait())
            await asyncio.wait((watching, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

    async def _stop(self, watching: "asyncio.Task[None]") -> None:
        """Ctrl-C: stop what runs for this caller; a Session that was made here is closed as well."""
        client = self._client
        with contextlib.suppress(TurnholdError, TimeoutError):
            async with asyncio.timeout(_LEAVING_SECONDS):
                if self._owns:
                    with contextlib.suppress(Problem):
                        await client.interrupt(self._id, idempotency_key=self._next_key())
                    await client.close(self._id, idempotency_key=self._next_key())
                    await watching
                    return
                running = (await client.session(self._id)).running_turn_id
                if running in self._mine:
                    await client.interrupt_turn(self._id, running, idempotency_key=self._next_key())

    # --- events ---------------------------------------------------------------------------------

    async def _watch(self, after: int) -> None:
        async with contextlib.aclosing(
            self._client.stream(self._id, after=after, on_lost=self._lost)
        ) as events:
            async for event in events:
                if isinstance(event, Gap):
                    output.document({"type": "gap", "retained_after": event.retained_after}, lines=True)
                else:
                    self._show(event)

    def _show(self, event: EventView) -> None:
        output.document({"type": "event", **event.model_dump(mode="json")}, lines=True)
        if event.kind in _TERMINAL and event.turn_id is not None:
            self._ended.add(event.turn_id)
            self._mine.discard(event.turn_id)
            self._turn_ended.set()

    def _lost(self, error: TurnholdError) -> None:
        output.note(f"connection lost ({error}); going on")

    # --- commands -------------------------------------------------------------------------------

    async def _talk(self) -> None:
        async for line in Lines():
            if line.strip():
                output.document(await self._response(line), lines=True)

    async def _response(self, line: bytes) -> dict[str, Any]:
        try:
            command = command_in(line)
        except BadLine as bad:
            return _refused(bad.id, None, bad.code, bad.detail)
        try:
            data = await self._carry_out(command)
        except Problem as problem:
            return _refused(command.id, command.type, problem.code, problem.detail)
        return {"type": "response", "id": command.id, "command": command.type, "success": True, "data": data}

    async def _carry_out(self, command: Give | Steer | Plain) -> Any:
        match command:
            case Give():
                return await self._give(command.message)
            case Steer():
                return await self._steer(command)
            case Plain(type="abort"):
                return await self._abort()
            case Plain():
                return await self._sure(lambda: self._client.session(self._id))

    async def _give(self, message: str) -> Any:
        key = self._next_key()
        return self._noted(
            await self._sure(lambda: self._client.enqueue(self._id, message, idempotency_key=key))
        )

    async def _steer(self, command: Steer) -> Any:
        """To the Turn that runs now: a repetition goes to the same one."""
        turn_id = await self._running()
        if turn_id is None:
            if command.fallback is not None:
                return await self._give(command.message)
            raise Problem(409, {"code": "turn_not_running", "detail": "No Turn is running."})
        key = self._next_key()
        return self._noted(
            await self._sure(
                lambda: self._client.send(
                    self._id, turn_id, command.message, fallback=command.fallback, idempotency_key=key
                )
            )
        )

    async def _abort(self) -> Any:
        turn_id = await self._running()
        if turn_id is not None:
            key = self._next_key()
            try:
                return self._noted(
                    await self._sure(
                        lambda: self._client.interrupt_turn(self._id, turn_id, idempotency_key=key)
                    )
                )
            except Problem as problem:
                if problem.code != "turn_not_running":  # it has just ended by itself
                    raise
        return None

    async def _running(self) -> str | None:
        return (await self._sure(lambda: self._client.session(self._id))).running_turn_id

    def _noted(self, receipt: ReceiptView) -> dict[str, Any]:
        if receipt.status == "pending":
            self._unjudged.append(receipt.request_id)
        elif receipt.sequence is not None and receipt.turn_id and receipt.turn_id not in self._ended:
            self._mine.add(receipt.turn_id)
        return show.receipt_document(receipt)

    async def _judged(self, request_id: str) -> None:
        """Wait until a worker has judged a command that was accepted without one."""
        pause = _PAUSES[0]
        while True:
            receipt = await self._sure(lambda: self._client.receipt(self._id, request_id))
            if receipt.status != "pending":
                self._noted(receipt)
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSES[1])

    def _next_key(self) -> str:
        self._sent += 1
        return f"{self._keys}-{self._sent}"

    async def _sure(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """The answer, however long nobody can be reached; the call has one key for all attempts."""
        pause, longest = _PAUSES
        told = False
        while True:
            try:
                return await call()
            except Unreachable as error:
                lost: TurnholdError = error
            except Problem as problem:
                if problem.status not in (502, 503, 504):
                    raise
                lost = problem
            if not told:
                self._lost(lost)
                told = True
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)


def _refused(id: JsonValue, command: str | None, code: str, detail: str) -> dict[str, Any]:
    error = {"code": code, "detail": detail}
    return {"type": "response", "id": id, "command": command, "success": False, "error": error}
