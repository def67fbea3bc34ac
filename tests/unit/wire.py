"""What travels between APIs, workers and Sessions of different ages, with an example of each model.

`python -m tests.unit.wire` writes the examples of the release in the making. Those of earlier
releases stay as they are: they are what older workers and running Sessions say.
"""

import sys
import types
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import to_json

from turnhold.session import carried, commands, handover, hosting, peers, views
from turnhold.temporal import creation

EXAMPLES = Path(__file__).parent / "wire"
RELEASE = version("turnhold")
MODELS: dict[str, type[BaseModel]] = {
    model.__name__: model
    for model in (
        *commands.PUBLIC.values(),
        *(commands.Move, commands.Spawn, commands.OwnerState, commands.OwnedReport),
        *(views.ReadRequest, views.ReadResult),
        *(hosting.StartProcessCall, hosting.StartProcessResult, hosting.RunTurnCall, hosting.TurnOutcome),
        *(hosting.StopTurnCall, hosting.StopProcessCall, hosting.DeliverMessageCall, hosting.AnswerAskCall),
        *(hosting.FindTurnCall, handover.SealCall),
        *(handover.SetAsideCall, handover.FetchCall, handover.Fetched),
        *(peers.StartSessionCall, peers.MadeByCall, peers.EndedCall, peers.Started, peers.Looked),
        *(hosting.Report, carried.SessionInput, creation.Creation, creation.Latest),
    )
}

_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
_SCALARS: Mapping[Any, Any] = {str: "text", int: 3, float: 1.5, bool: True}
_REQUEST_ID = "req_0000000000000000"


def example(model: type[BaseModel]) -> BaseModel:
    """An instance in which every field says something."""
    fields: dict[str, Any] = {
        name: _value(field.annotation) for name, field in model.model_fields.items() if not field.exclude
    }
    if "request_id" in fields:
        fields["request_id"] = _REQUEST_ID
    return model.model_validate(fields)


def _value(kind: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated or (origin in (Union, types.UnionType)):
        return _values(kind)[-1]
    if origin is Literal:
        return arguments[-1]
    if origin is tuple and Ellipsis not in arguments:
        return tuple(_value(argument) for argument in arguments)
    if origin in (tuple, list):
        return _values(arguments[0])
    if origin is dict:
        return {_key(arguments[0], number): value for number, value in enumerate(_values(arguments[1]), 1)}
    if isinstance(kind, type):
        if issubclass(kind, BaseModel):
            return example(kind)
        return _SCALARS.get(kind, _MOMENT)
    return {"json": [1, "two", None]}


def _values(kind: Any) -> list[Any]:
    """One value for each alternative that `kind` allows."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _values(arguments[0])
    if origin in (Union, types.UnionType):
        return [value for a in arguments if a is not type(None) for value in _values(a)]
    return [_value(kind)]


def _key(kind: Any, number: int) -> Any:
    return number if kind is int else f"key_{number}"


def write() -> None:
    """The examples of the release in the making."""
    folder = EXAMPLES / RELEASE
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in MODELS.items():
        (folder / f"{name}.json").write_bytes(to_json(example(model), exclude_none=True, indent=1) + b"\n")


if __name__ == "__main__":
    write()
    sys.exit(0)
