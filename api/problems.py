"""Problems: every error that a caller can meet, in one form (RFC 9457) with a stable `code`."""

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from turnhold.session.errors import STATUS, Refused, Rejection

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
_BY_STATUS = {404: "route_not_found", 405: "method_not_allowed"}


class Fault(BaseModel):
    """One thing that is wrong with a request: where, and what."""

    loc: list[str | int]
    message: str


class Problem(BaseModel):
    """Why a request was not carried out. Clients branch on `status` and `code`."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    session_id: str | None = Field(None, description="the Session that it is about, if there is one")
    request_id: str | None = Field(None, description="the command's, for its receipt; else the request's")
    errors: list[Fault] | None = Field(None, description="what is wrong (`invalid_request`)")


def problem(
    code: str,
    detail: str,
    *,
    session_id: str | None = None,
    request_id: str | None = None,
    errors: list[Fault] | None = None,
) -> Problem:
    status = STATUS[code]
    return Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=detail,
        session_id=session_id,
        request_id=request_id,
        errors=errors,
    )


def of_rejection(rejection: Rejection, session_id: str, request_id: str) -> Problem:
    about = rejection.session_id or session_id
    return problem(rejection.code, rejection.detail, session_id=about, request_id=request_id)


def respond(body: Problem, headers: Mapping[str, str] | None = None) -> Response:
    extra = dict(headers or {})
    if body.status in (429, 503):
        extra["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if body.status == 401:
        extra["WWW-Authenticate"] = "Bearer"
    return Response(
        body.model_dump_json(exclude_none=True),
        status_code=body.status,
        media_type=MEDIA_TYPE,
        headers=extra,
    )


def request_id_of(request: Request) -> str:
    return request.state.request_id


async def on_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return respond(
        problem(
            error.code,
            error.detail,
            session_id=getattr(error, "session_id", None),
            request_id=getattr(error, "request_id", None) or request_id_of(request),
        )
    )


async def on_invalid(request: Request, error: Exception) -> Response:
    """A body or parameter that is not valid: 422, or 413 for content over its limit."""
    assert isinstance(error, RequestValidationError)
    faults: list[dict[str, Any]] = list(error.errors())
    codes = {fault["type"] for fault in faults}
    code = next((code for code in ("content_too_large", "empty_input") if code in codes), "invalid_request")
    errors = [Fault(loc=loc, message=_message(fault)) for fault in faults for loc in _places(request, fault)]
    where = ".".join(str(part) for part in errors[0].loc)
    return respond(
        problem(
            code,
            f"{where}: {errors[0].message}",
            request_id=request_id_of(request),
            errors=errors if code == "invalid_request" else None,
        )
    )


_WORDS = {
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "expected a JSON object"),
    **dict.fromkeys(("list_type", "tuple_type"), "expected a list"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "expected a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "expected a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "expected true or false"),
    "missing": "is missing",
    "string_type": "expected text",
}
_SUBJECT = re.compile(r"^(Input|String|Tuple|List|Dictionary|Value) should ")


def _message(fault: Mapping[str, Any]) -> str:
    """What is wrong, in words of JSON and not of the library that found it."""
    if fault["msg"] == "Extra inputs are not permitted":
        return "unknown field" if fault["loc"][0] == "body" else "unknown parameter"
    return _WORDS.get(fault["type"]) or _SUBJECT.sub("must ", fault["msg"]).replace(" after validation", "")


def _places(request: Request, fault: Mapping[str, Any]) -> list[list[str | int]]:
    """Where it is; of a body that is missing as a whole, the fields that it must have."""
    if fault["type"] == "missing" and list(fault["loc"]) == ["body"]:
        body = request.scope["route"].body_field.field_info.annotation
        needed = [name for name, field in body.model_fields.items() if field.is_required()]
        return [["body", name] for name in needed] or [["body"]]
    return [list(fault["loc"])]


async def on_http(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: no such route, no such method."""
    assert isinstance(error, HTTPException)
    code = _BY_STATUS.get(error.status_code, "invalid_request")
    detail = {
        "route_not_found": f"There is no {request.url.path}.",
        "method_not_allowed": f"{request.method} is not possible here.",
    }.get(code, str(error.detail))
    headers = {"Allow": ", ".join(_allowed(request))} if code == "method_not_allowed" else error.headers
    return respond(problem(code, detail, request_id=request_id_of(request)), headers)


def _allowed(request: Request) -> list[str]:
    """Every method of the path: routes share paths, and each knows its own method alone."""
    return [
        method
        for method in ("GET", "POST")
        if any(
            route.matches({**request.scope, "method": method})[0] == Match.FULL
            for route in request.app.routes
        )
    ]


def described(*codes: str) -> dict[int | str, dict[str, Any]]:
    """These errors, as OpenAPI describes the responses of a route."""
    by_status: dict[int | str, list[str]] = {}
    for code in codes:
        by_status.setdefault(STATUS[code], []).append(code)
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {
            "description": _listed(f"`{code}`" for code in found),
            "content": {MEDIA_TYPE: schema},
            **({"headers": _RETRY_AFTER} if status in (429, 503) else {}),
        }
        for status, found in by_status.items()
    }


def schemas() -> dict[str, Any]:
    """`Problem` for OpenAPI's components: responses refer to it, but FastAPI does not know it."""
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
    nested: dict[str, Any] = schema.pop("$defs", {})
    return {**nested, "Problem": schema}


_RETRY_AFTER = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}


def _listed(codes: Iterable[str]) -> str:
    return ", ".join(codes)


ALWAYS = ("unauthenticated", "permission_denied", "invalid_request", "rate_limited", "internal_error")
READING = (*ALWAYS, "session_not_found", "worker_unavailable", "temporal_unavailable")
CREATING = (*ALWAYS, "invalid_json", "content_too_large", "idempotency_conflict", "temporal_unavailable")
COMMANDING = (*CREATING, "session_not_found", "worker_unavailable", "session_busy")
