"""Models that travel are additive: what an older release says is understood, and nothing of it lost.

An API may be newer than the workers that it asks, and a Session's state older than both. What is
unknown is ignored on either side.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import to_json, to_jsonable_python

from tests.unit.wire import EXAMPLES, MODELS, RELEASE

RECORDED = sorted(EXAMPLES.glob("*/*.json"))


def named(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def test_every_model_has_an_example_of_this_release() -> None:
    assert {path.stem for path in (EXAMPLES / RELEASE).glob("*.json")} == set(MODELS)


@pytest.mark.parametrize("path", RECORDED, ids=named)
def test_what_a_release_said_is_understood_and_nothing_is_lost(path: Path) -> None:
    said = json.loads(path.read_text())
    understood = json.loads(to_json(MODELS[path.stem].model_validate(said), exclude_none=True))
    assert lost(said, understood) == []


def lost(said: Any, understood: Any, where: str = "") -> list[str]:
    """Where `understood` lacks something of `said`; more than that is fine."""
    if isinstance(said, dict) and isinstance(understood, dict):
        return [
            place
            for name, value in said.items()
            for place in lost(value, understood.get(name), f"{where}.{name}")
        ]
    if isinstance(said, list) and isinstance(understood, list) and len(said) == len(understood):
        return [
            p
            for n, pair in enumerate(zip(said, understood, strict=True))
            for p in lost(*pair, f"{where}[{n}]")
        ]
    return [] if said == understood else [where]


@pytest.mark.parametrize("path", RECORDED, ids=named)
def test_what_a_later_release_adds_is_ignored(path: Path) -> None:
    model = MODELS[path.stem]
    today = model.model_validate_json(path.read_text())
    later = grown(today)
    assert later != to_jsonable_python(today, exclude_none=True)
    assert model.model_validate(later) == today


def grown(value: Any) -> Any:
    """The JSON of `value`, with a field that nobody knows in every record."""
    if isinstance(value, BaseModel):
        fields = {
            name: getattr(value, name)
            for name, field in type(value).model_fields.items()
            if not field.exclude
        }
        return {**{k: grown(v) for k, v in fields.items() if v is not None}, "added_later": {"x": [1]}}
    if isinstance(value, dict):
        return {key: grown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [grown(item) for item in value]
    return to_jsonable_python(value)
