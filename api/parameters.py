"""Query parameters and headers: exact, never clamped, unknown ones refused."""

import re
from collections import Counter
from typing import Annotated, Any

from fastapi import Header, Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from turnhold.session import limits
from turnhold.session.events import KINDS
from turnhold.session.model import AskStatus, SessionStatus, TurnStatus

_REPEATABLE = "kind"
_SINGLE_HEADERS = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID")
_DIGITS = re.compile(r"[0-9]{1,16}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")
_DECIMAL = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?")


def _digits(value: Any) -> Any:
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        raise PydanticCustomError("digits", "expected a whole number, in digits alone")
    return value


def _decimal(value: Any) -> Any:
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        raise PydanticCustomError("decimal", "expected a plain number of seconds")
    return value


def _known_kind(kind: str) -> str:
    if kind not in KINDS:
        raise PydanticCustomError("kind", "there is no such kind of event")
    return kind


def _moment(value: Any) -> Any:
    if isinstance(value, str) and not _DATE.match(value):
        raise PydanticCustomError("moment", "expected a date and time such as 2026-01-31T12:00:00Z")
    return value


NoNul = Field(pattern=r"^[^\x00]*$")  # NUL is no text to the databases behind Temporal
Digits = BeforeValidator(_digits)
Cursor = Annotated[int, Field(ge=0, le=limits.MAX_CURSOR), Digits]
Text = Annotated[str, Field(min_length=1), NoNul]
Kind = Annotated[
    str, AfterValidator(_known_kind), Field(json_schema_extra={"enum": [*KINDS]}, description="event kind")
]


async def no_repetition(request: Request) -> None:
    """Raises RequestValidationError where a parameter or header is given twice that has one value.

    Which of them would count is the framework's choice: two parties to a request could read it differently.
    """
    given = Counter(name for name, _ in request.query_params.multi_items() if name != _REPEATABLE)
    twice = [("query", name) for name, count in given.items() if count > 1]
    twice += [("header", name) for name in _SINGLE_HEADERS if len(request.headers.getlist(name)) > 1]
    if twice:
        raise RequestValidationError([{"type": "repeated", "loc": t, "msg": "is given twice"} for t in twice])


class Query(BaseModel):
    """The query parameters of a route. One that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoQuery(Query):
    """A route without parameters."""


class SessionsQuery(Query):
    agent: Text | None = None
    status: SessionStatus | None = None
    held: bool | None = None
    asking: bool | None = None
    parent_id: Text | None = None
    deployment: Text | None = Field(None, description="`NAME:BUILD`")
    active_since: Annotated[AwareDatetime, BeforeValidator(_moment)] | None = None
    limit: Annotated[int, Field(ge=1, le=100), Digits] = 20
    cursor: Text | None = Field(None, description="`next_cursor` of the page before")


class OwnedQuery(Query):
    recursive: bool = Field(False, description="also what owned Sessions own, all the way down")


class LookupQuery(Query):
    agent: Text
    key: Annotated[str, Field(min_length=1, max_length=limits.SESSION_KEY_CHARS), NoNul]


class TurnsQuery(Query):
    after: Cursor = 0
    limit: Annotated[int, Field(ge=1, le=limits.TURN_PAGE), Digits] = 20
    status: TurnStatus | None = None


class TurnQuery(Query):
    wait: Annotated[
        float,
        Field(ge=0, le=60, allow_inf_nan=False, description="seconds to wait for the Turn's end"),
        BeforeValidator(_decimal),
    ] = 0


class AsksQuery(Query):
    status: AskStatus | None = None


class EventsQuery(Query):
    after: Cursor = 0
    limit: Annotated[int, Field(ge=1, le=limits.PAGE_RECORDS), Digits] = 100
    kind: list[Kind] = Field(default_factory=list, description="only these kinds; may be repeated")


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=limits.IDEMPOTENCY_KEY_CHARS,
        pattern=r"^[\x20-\x7e]+$",
        description="makes a retry exact: the same key and body are answered alike, and done once",
    ),
]
LastEventID = Annotated[
    Cursor | None,
    Header(alias="Last-Event-ID", description="the last sequence consumed; takes precedence over `after`"),
]
