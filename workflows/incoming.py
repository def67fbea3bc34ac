"""Signals as they come: from the API, or from an operator's hand with anything in them (S-91)."""

from typing import Any, cast

from pydantic import ValidationError

from turnhold.session import ids
from turnhold.session.commands import Command
from turnhold.session.errors import STATUS, Rejection


class Nonsense(Exception):
    """A signal's arguments are no command. `request_id` is theirs, if they name a good one."""

    def __init__(self, rejection: Rejection, request_id: str | None = None) -> None:
        super().__init__(rejection.detail)
        self.rejection = rejection
        self.request_id = request_id


def command_of(model: type[Command], arguments: tuple[Any, ...]) -> Command:
    """The command in a signal's arguments: one payload, or none, which means an empty one.

    Raises:
        Nonsense: a second argument, or a payload that is not valid.
    """
    if len(arguments) > 1:
        raise Nonsense(Rejection(code="invalid_request", detail="A signal takes one argument."))
    payload = arguments[0] if arguments else None
    if payload is None:
        payload = {}
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        raise Nonsense(_rejection(error), _request_id(payload)) from error


def _rejection(error: ValidationError) -> Rejection:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    code = first["type"] if first["type"] in STATUS else "invalid_request"
    where = ".".join(str(part) for part in first["loc"]) or "payload"
    return Rejection(code=code, detail=f"{where}: {first['msg']}")


def _request_id(payload: Any) -> str | None:
    fields = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    named = fields.get("request_id")
    return named if isinstance(named, str) and ids.well_formed("req", named) else None
