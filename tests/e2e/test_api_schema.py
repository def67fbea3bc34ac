"""The OpenAPI document against the API itself: what it says is what happens, and the reverse."""

from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from api.app import create_app
from turnhold.cli.stack import Stack
from turnhold.settings import Settings

schema = schemathesis.openapi.from_dict(create_app(Settings()).openapi())


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_a_documented_one(case: Any, stack: Stack) -> None:
    # A schema cannot say the range of a duration written as a string, nor which cursors lists gave.
    config = isinstance(case.body, dict) and case.body.get("config")
    unsaid = config or "cursor" in (case.query or {})
    excluded = [positive_data_acceptance] if unsaid else []
    case.call_and_validate(base_url=stack.api_url, excluded_checks=excluded)
