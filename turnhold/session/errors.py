"""Stable error codes, and the one exception with which the machine says no.

::

    Refused            a command was judged and rejected; carries a code of `STATUS`
"""

from pydantic import BaseModel, ConfigDict

STATUS: dict[str, int] = {
    "invalid_json": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "session_not_found": 404,
    "turn_not_found": 404,
    "ask_not_found": 404,
    "hold_not_found": 404,
    "agent_not_found": 404,
    "receipt_not_found": 404,
    "route_not_found": 404,
    "method_not_allowed": 405,
    "session_key_conflict": 409,
    "idempotency_conflict": 409,
    "session_closing": 409,
    "session_closed": 409,
    "session_not_idle": 409,
    "turn_not_running": 409,
    "turn_not_accepting_messages": 409,
    "turn_stopping": 409,
    "hold_not_releasable": 409,
    "hold_owned_by_ancestor": 409,
    "ask_settled": 409,
    "depth_limit": 409,
    "owned_limit": 409,
    "hold_limit": 409,
    "message_limit": 409,
    "content_too_large": 413,
    "invalid_request": 422,
    "empty_input": 422,
    "invalid_answer": 422,
    "queue_full": 429,
    "rate_limited": 429,
    "session_busy": 429,
    "internal_error": 500,
    "not_implemented": 501,
    "worker_unavailable": 503,
    "storage_unavailable": 503,
    "temporal_unavailable": 503,
}
"""Code to HTTP status. Clients branch on these two and on nothing else."""


class Rejection(BaseModel):
    """Why a command was rejected, as it is recorded and answered.

    `code` is a key of `STATUS`; `detail` is a sentence for people; `session_id` names another
    Session where that is the reason (`session_key_conflict`).
    """

    model_config = ConfigDict(frozen=True)

    code: str
    detail: str
    session_id: str | None = None


class Refused(Exception):
    """The machine rejects a command. Nothing of the command has happened.

    Args:
        code: a key of `STATUS`.
        detail: one sentence that says what is wrong and, where there is one, what to do.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail

    def rejection(self) -> Rejection:
        return Rejection(code=self.code, detail=self.detail)
