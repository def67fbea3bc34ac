"""The requests that clear a cause: the one place beside the API's routes that knows their paths."""

from turnhold.session.questions import ChoiceControl, Control
from turnhold.session.views import Clearing

_YOURS = "…"  # where the caller's own words go


def resume(session_id: str, hold_id: str) -> Clearing:
    return Clearing(path=f"/v1/sessions/{session_id}/resume", body={"hold_id": hold_id})


def answer(session_id: str, turn_id: str, ask_id: str, control: Control) -> Clearing:
    """The body has the form that the Ask wants; what it says is for a person to decide."""
    given: dict[str, object] = {"text": _YOURS}
    if isinstance(control, ChoiceControl):
        given = {"selected": [control.options[0].id]} if control.options else given
    return Clearing.model_validate(
        {
            "path": f"/v1/sessions/{session_id}/turns/{turn_id}/asks/{ask_id}/answer",
            "body": {"answer": given},
        }
    )


def interrupt_turn(session_id: str, turn_id: str) -> Clearing:
    return Clearing(path=f"/v1/sessions/{session_id}/turns/{turn_id}/interrupt")


def enqueue(session_id: str) -> Clearing:
    return Clearing(path=f"/v1/sessions/{session_id}/turns", body={"input": _YOURS})


def cancel(session_id: str) -> Clearing:
    return Clearing(path=f"/v1/sessions/{session_id}/cancel")
