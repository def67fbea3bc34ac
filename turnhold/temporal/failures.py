"""What can go wrong between a caller and a Session, and how Temporal's errors are told apart.

::

    Refused                 (turnhold.session.errors) a stable code
      + Failure             the same, with the Session and the command that it is about
    Ended                   a signal found its workflow ended
"""

import re

from temporalio.service import RPCError, RPCStatusCode

from turnhold.session.errors import Refused


class Failure(Refused):
    """The gateway cannot do what was asked; `code` says why.

    `request_id` names a command of which it is not known whether it was recorded.
    """

    def __init__(
        self, code: str, detail: str, *, session_id: str | None = None, request_id: str | None = None
    ) -> None:
        super().__init__(code, detail)
        self.session_id = session_id
        self.request_id = request_id


class Ended(Exception):
    """The workflow has ended: it takes no signals any more."""


def session_not_found(session_id: str) -> Failure:
    return Failure("session_not_found", f"There is no Session {session_id}.", session_id=session_id)


def turn_not_found(session_id: str, turn_id: str) -> Failure:
    return Failure("turn_not_found", f"There is no Turn {turn_id}.", session_id=session_id)


def worker_unavailable(session_id: str) -> Failure:
    return Failure(
        "worker_unavailable",
        "No worker answers for this Session now; it will go on when one is back.",
        session_id=session_id,
    )


def temporal_unavailable(
    session_id: str | None = None, request_id: str | None = None, cause: Exception | None = None
) -> Failure:
    detail = "Temporal cannot be reached now."
    if isinstance(cause, RPCError) and is_no_namespace(cause):
        detail = f"Temporal answers: {cause.message} TEMPORAL_NAMESPACE sets it."
    elif request_id:
        detail += " Whether the command was recorded is not known: look its request_id up, or retry it."
    return Failure("temporal_unavailable", detail, session_id=session_id, request_id=request_id)


def is_late(error: RPCError) -> bool:
    """A deadline passed: the client's own reads as `CANCELLED`."""
    return error.status in (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)


def is_busy(error: RPCError) -> bool:
    return error.status == RPCStatusCode.RESOURCE_EXHAUSTED


def is_missing(error: RPCError) -> bool:
    """There is no such workflow. A namespace that is not there is a set-up to mend instead."""
    return error.status == RPCStatusCode.NOT_FOUND and not is_no_namespace(error)


def is_no_namespace(error: Exception) -> bool:
    """There is no such namespace. A worker's own check is a bare `RuntimeError`."""
    if isinstance(error, RPCError):
        return error.status == RPCStatusCode.NOT_FOUND and "amespace" in error.message
    return "Namespace" in str(error) and "code: NotFound" in str(error)


def is_ended(error: RPCError) -> bool:
    return is_missing(error) and "already completed" in error.message


def is_no_connection(error: Exception) -> bool:
    """A lazy client could not connect: the SDK raises a bare `RuntimeError` then."""
    return isinstance(error, RuntimeError) and "client connect" in str(error)


_DEBUG_FORM = re.compile(r"\b(tonic::transport::Error\(|Status \{)")
_REASON = re.compile(r'(?:message|error): "((?:[^"\\]|\\.)+)"')


def plain(error: BaseException) -> str:
    """What the SDK says, in one line: of the debug form of an error, the reason alone."""
    text = " ".join(str(error).split())
    debug = _DEBUG_FORM.search(text)
    reason = _REASON.search(text, debug.start()) if debug else None
    return reason[1][:1].lower() + reason[1][1:] if reason else text
