"""What a handler's end means: judged on the host, so that a Session only gets what it can keep."""

import asyncio
import logging
from typing import Any

from turnhold.agents.content import clean_json
from turnhold.agents.errors import AskCancelled, Refused
from turnhold.session import limits
from turnhold.session.hosting import RunTurnCall, TurnOutcome
from turnhold.session.model import TurnError
from turnhold.session.values import Output

log = logging.getLogger(__name__)


def returned(call: RunTurnCall, value: Any, response: Output | None, state: Any) -> TurnOutcome:
    """The handler returned `value` (S-14, S-18)."""
    error, result, committed = None, None, call.state
    try:
        committed = _kept(state, limits.STATE_BYTES)
    except ValueError as invalid:
        error = TurnError(code="invalid_state", type="InvalidState", message=f"ctx.state is {invalid}")
    try:
        result = _kept(value, limits.RESULT_BYTES)
    except _TooLarge as invalid:
        error = TurnError(code="result_too_large", type="ResultTooLarge", message=f"the result is {invalid}")
    except ValueError as invalid:
        error = TurnError(code="invalid_result", type="InvalidResult", message=f"the result is {invalid}")
    if error is not None:
        error = error.but(message=printable(error.message))
        return _outcome(call, "failed", error=error, state=committed)
    return _outcome(call, "completed", result=result, response=response, state=committed)


def raised(call: RunTurnCall, error: BaseException, state: Any) -> TurnOutcome:
    """The handler raised: this Turn fails, and nothing else (S-12)."""
    log.warning(
        "the handler failed", exc_info=error, extra={"session_id": call.session_id, "turn_id": call.turn_id}
    )
    match error:
        case AskCancelled():
            code = "ask_cancelled"
        case Refused():
            code = error.code
        case _:
            code = "handler_failed"
    try:
        committed = _kept(state, limits.STATE_BYTES)
    except ValueError:
        committed = call.state
    message = printable(error.detail) if isinstance(error, Refused) else message_of(error)
    failure = TurnError(code=code, type=printable(type(error).__name__), message=message)
    return _outcome(call, "failed", error=failure, state=committed)


def stopped(call: RunTurnCall, reason: str | None) -> TurnOutcome:
    """A stop reached the handler; `reason` only where the host itself stopped it."""
    return _outcome(call, "stopped", reason=reason)


def died(call: RunTurnCall, detail: str) -> TurnOutcome:
    """The Process ended under the Turn."""
    return _outcome(call, "died", detail=detail, process="process_failed")


def describe(error: BaseException) -> str:
    """One line for people: type and message, never a traceback."""
    if isinstance(error, SystemExit):
        return f"The Process exited with {message_of(error) or 0}."
    if isinstance(error, asyncio.CancelledError):
        return "It was cancelled."
    return f"{printable(type(error).__name__)}: {message_of(error)}"


def message_of(error: BaseException) -> str:
    try:
        return printable(str(error))
    except Exception:
        return "(the exception has no readable message)"


def printable(text: str) -> str:
    """`text` as it can be recorded: cut to size, lone surrogates replaced."""
    return text[: limits.ERROR_MESSAGE_CHARS].encode(errors="replace").decode()


class _TooLarge(ValueError):
    pass


def _kept(value: Any, most: int) -> Any:
    try:
        clean, size = clean_json(value)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if size > most:
        raise _TooLarge(f"{size} bytes large, and {most} are kept")
    return clean


def _outcome(call: RunTurnCall, how: Any, **fields: Any) -> TurnOutcome:
    epoch, turn_id = call.epoch, call.turn_id
    return TurnOutcome(epoch=epoch, turn_id=turn_id, first=0, how=how, **fields)
