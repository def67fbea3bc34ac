"""What can go wrong between a caller and a Session, and how Temporal's errors are told apart.

::

    Refused                 (turnhold.session.errors) a stable code
      + Failure             the same, with the Session and the command that it is about
    Ended                   a signal found its workflow ended
"""

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


def worker_unavailable(session_id: str) -> Failure:
    return Failure(
        "worker_unavailable",
        "No worker answers for this Session now; it will go on when one is back.",
        session_id=session_id,
    )


def temporal_unavailable(session_id: str | None = None, request_id: str | None = None) -> Failure:
    detail = "Temporal cannot be reached now."
    if request_id:
        detail += " Whether the command was recorded is not known: look its request_id up, or retry it."
    return Failure("temporal_unavailable", detail, session_id=session_id, request_id=request_id)


def is_late(error: RPCError) -> bool:
    """A deadline passed: the client's own reads as `CANCELLED`."""
    return error.status in (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)


def is_busy(error: RPCError) -> bool:
    return error.status == RPCStatusCode.RESOURCE_EXHAUSTED


def is_missing(error: RPCError) -> bool:
    """There is no such workflow. A namespace that is not there is a set-up to mend instead."""
    return error.status == RPCStatusCode.NOT_FOUND and "amespace" not in error.message


def is_ended(error: RPCError) -> bool:
    return is_missing(error) and "already completed" in error.message


def is_no_connection(error: Exception) -> bool:
    """A lazy client could not connect: the SDK raises a bare `RuntimeError` then."""
    return isinstance(error, RuntimeError) and "client connect" in str(error)
