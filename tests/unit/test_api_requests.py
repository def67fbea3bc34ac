"""The API without a Temporal: what it refuses before it looks anything up, and how it says so."""

import hashlib
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.app import CannotServe, create_app, serve
from api.bodies import CreateBody
from turnhold.agents.definition import agent
from turnhold.session import ids
from turnhold.session.creation import Config, NewSession
from turnhold.session.errors import STATUS
from turnhold.settings import Settings
from turnhold.temporal.creation import Creation

SESSION = ids.session_id("default", "any")
PATH = f"/v1/sessions/{SESSION}"
TURN = "trn_abcdefgh12345678"
MESSAGES = f"{PATH}/turns/{TURN}/messages"
ASK = f"{PATH}/turns/{TURN}/asks/ask_abcdefgh12345678"


@pytest.fixture(scope="module")
def agents() -> Iterator[str]:
    module = ModuleType("agents_of_api_tests")

    @agent("quiet", queue_limit=5)
    async def quiet(turn: object, ctx: object) -> None:
        """Says nothing."""

    vars(module)["quiet"] = quiet
    sys.modules[module.__name__] = module
    yield module.__name__
    del sys.modules[module.__name__]


@pytest.fixture
def api(agents: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    app = create_app(Settings(agents=(agents,)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def assert_problem(response: Any, code: str) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert (body["code"], response.status_code) == (code, STATUS[code]), body
    assert body["status"] == response.status_code
    assert all(body[name] for name in ("title", "detail", "request_id"))
    assert ("retry-after" in response.headers) == (response.status_code in (429, 503))
    return body


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"agent": "quiet", "input": []}, "empty_input"),
        ({"agent": "quiet", "input": ""}, "empty_input"),
        ({"agent": "quiet", "input": [{"type": "text", "text": ""}] * 2}, "empty_input"),
        ({"agent": "quiet", "input": "x" * 262_144}, "content_too_large"),
        ({"agent": "quiet", "input": [{"type": "text", "text": "x"}] * 65}, "invalid_request"),
        ({"agent": "quiet", "input": [{"type": "json", "value": 1}]}, "invalid_request"),
        ({"agent": "quiet", "input": [{"type": "text", "text": "x", "y": 1}]}, "invalid_request"),
        ({"agent": "quiet", "unknown": 1}, "invalid_request"),
        ({"agent": "quiet", "config": {"unknown": 1}}, "invalid_request"),
        ({"agent": "quiet", "config": {"queue_limit": 1_001}}, "invalid_request"),
        ({"agent": "quiet", "config": {"stop_deadline": 0.01}}, "invalid_request"),
        ({"agent": "quiet", "config": {"stop_deadline": None}}, "invalid_request"),
        ({"agent": "quiet", "config": {"max_turn_duration": "P1M"}}, "invalid_request"),
        ({"agent": "quiet", "key": ""}, "invalid_request"),
        ({"agent": "quiet", "key": "k" * 201}, "invalid_request"),
        ({"agent": "quiet", "key": "a\x00b"}, "invalid_request"),
        ({"agent": "quiet", "metadata": {str(n): "" for n in range(17)}}, "invalid_request"),
        ({"agent": "quiet", "metadata": {"k": 1}}, "invalid_request"),
        ({}, "invalid_request"),
        ([], "invalid_request"),
        ({"agent": "nobody"}, "agent_not_found"),
    ],
)
def test_s1_s6_a_bad_creation_creates_nothing(api: TestClient, body: Any, code: str) -> None:
    assert_problem(api.post("/v1/sessions", json=body), code)


def test_an_invalid_request_names_every_fault(api: TestClient) -> None:
    body = assert_problem(api.post("/v1/sessions", json={"agent": 1, "x": 2}), "invalid_request")
    assert {tuple(fault["loc"]) for fault in body["errors"]} == {("body", "agent"), ("body", "x")}


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/v1/sessions", [], "body: expected a JSON object"),
        ("/v1/sessions", {"agent": "quiet", "x": 1}, "body.x: unknown field"),
        ("/v1/sessions", {"agent": 1}, "body.agent: expected text"),
        (
            "/v1/sessions",
            {"agent": "quiet", "input": 5},
            "body.input: expected text or a list of text parts",
        ),
        ("/v1/sessions", {"agent": "quiet", "input": ["a"]}, "body.input.0: expected a JSON object"),
        ("/v1/sessions", {"agent": "quiet", "input": [{}]}, "body.input.0.text: is missing"),
        ("/v1/sessions", {"agent": "quiet", "input": [{"text": "x"}] * 65}, "at most 64 items, not 65"),
        (
            "/v1/sessions",
            {"agent": "quiet", "config": {"queue_limit": "a"}},
            "body.config.queue_limit: expected a whole number",
        ),
        (f"{PATH}/resume", {}, "body.hold_id: is missing"),
        (f"{PATH}/resume", None, "body.hold_id: is missing"),
        (f"{PATH}/turns", None, "body.input: is missing"),
    ],
)
def test_a_fault_is_told_in_words_of_json(api: TestClient, path: str, body: Any, detail: str) -> None:
    response = api.post(path) if body is None else api.post(path, json=body)
    told = assert_problem(response, "invalid_request")
    assert detail in told["detail"]
    assert told["detail"].endswith(told["errors"][0]["message"])


def test_an_unknown_parameter_is_told_as_one(api: TestClient) -> None:
    told = assert_problem(api.get(f"{PATH}/events?x=1"), "invalid_request")
    assert told["errors"] == [{"loc": ["query", "x"], "message": "unknown parameter"}]


@pytest.mark.parametrize(
    "query",
    [
        *("after=+1", "after=%2B1", "after=-1", "after=1.0", "after=", "after=1_0", "after=9007199254740992"),
        *("limit=0", "limit=1001", "limit=x", "kind=no.such", "unknown=1"),
    ],
)
def test_a_cursor_or_limit_is_exact_and_never_clamped(api: TestClient, query: str) -> None:
    assert_problem(api.get(f"{PATH}/events?{query}"), "invalid_request")
    assert_problem(
        api.get(f"{PATH}/events?{query}", headers={"Accept": "text/event-stream"}),
        "invalid_request",
    )


@pytest.mark.parametrize("wait", ["61", "-1", "nan", "inf", "x", ""])
def test_a_wait_is_0_to_60_seconds(api: TestClient, wait: str) -> None:
    assert_problem(api.get(f"{PATH}/turns/{TURN}?wait={wait}"), "invalid_request")


@pytest.mark.parametrize("key", ["", "k" * 256, "k\tk", "é"])
def test_s3_an_idempotency_key_is_1_to_255_printable_ascii(api: TestClient, key: str) -> None:
    headers = {"Idempotency-Key": key.encode("latin-1")}
    assert_problem(api.post(f"{PATH}/close", headers=headers), "invalid_request")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/sessions/ses_x", "session_not_found"),
        (f"/v1/sessions/{ids.session_id('other', 'any')}", "session_not_found"),
        (f"/v1/sessions/{SESSION.upper()}", "session_not_found"),
        ("/v1/sessions/..%2F..", "session_not_found"),
        (f"{PATH}%2fexplain", "session_not_found"),
        ("/v1%2Fagents", "route_not_found"),
        (f"{PATH}/turns/trn_!", "turn_not_found"),
        (f"{PATH}/turns/{SESSION}", "turn_not_found"),
        (f"{PATH}/receipts/req_", "receipt_not_found"),
        (f"{PATH}/pause", "route_not_found"),
        ("/v1/agents/nobody", "agent_not_found"),
        ("/v1/sessions/", "route_not_found"),
        ("/nowhere", "route_not_found"),
    ],
)
def test_an_id_of_the_wrong_form_is_not_found(api: TestClient, path: str, code: str) -> None:
    assert_problem(api.get(path), code)


@pytest.mark.parametrize(
    ("path", "headers", "where"),
    [
        ("/v1/sessions?limit=1&limit=2", [], ["query", "limit"]),
        (f"{PATH}/events?after=1&after=1&kind=turn.output&kind=turn.running", [], ["query", "after"]),
        (f"{PATH}/events", [("Last-Event-ID", "1"), ("Last-Event-ID", "2")], ["header", "Last-Event-ID"]),
    ],
)
def test_what_has_one_value_is_given_once(
    api: TestClient, path: str, headers: list[tuple[str, str]], where: list[str]
) -> None:
    body = assert_problem(api.get(path, headers=headers), "invalid_request")
    assert [error["loc"] for error in body["errors"]] == [where]


def test_s3_a_request_has_one_idempotency_key(api: TestClient) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    assert_problem(api.post(f"{PATH}/close", headers=headers), "invalid_request")


def test_a_wrong_method_names_the_right_ones(api: TestClient) -> None:
    response = api.delete("/v1/agents")
    assert_problem(response, "method_not_allowed")
    assert "GET" in response.headers["allow"]


def test_s93_without_temporal_every_call_says_so_quickly(api: TestClient) -> None:
    for response in (
        api.get(PATH),
        api.get("/v1/sessions"),
        api.get(f"{PATH}/events", headers={"Accept": "text/event-stream"}),
        api.get("/readyz"),
        api.post(f"{PATH}/turns", json={"input": "hi"}),
        api.post("/v1/sessions", json={"agent": "quiet"}),
    ):
        assert_problem(response, "temporal_unavailable")
        assert response.elapsed.total_seconds() < 3


def test_what_needs_no_temporal_works_without(api: TestClient) -> None:
    assert api.get("/healthz").json() == {"status": "ok"}
    [only] = api.get("/v1/agents").json()["agents"]
    assert (only["name"], only["description"], only["config"]["queue_limit"]) == ("quiet", "Says nothing.", 5)
    assert api.get("/v1/agents/quiet").json() == only
    assert 'route="/v1/agents"' in api.get("/metrics").text


def test_the_documentation_needs_no_network(api: TestClient) -> None:
    page = api.get("/docs")
    assert page.status_code == 200
    assert "//" not in page.text.replace("<!doctype html>", "")
    root = api.get("/", follow_redirects=False)
    assert (root.status_code, root.headers["location"]) == (307, "/docs")
    assert not {"/", "/docs"} & set(api.get("/openapi.json").json()["paths"])
    assert api.get("/openapi.json").json()["paths"]["/v1/sessions"]["post"]["responses"]["409"]


def test_an_unhandled_exception_shows_nothing_of_itself(
    api: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ValueError("/secret/path")

    monkeypatch.setattr(api.app.state.services.gateway, "read", broken)  # type: ignore[attr-defined]
    response = api.get(f"{PATH}/events")
    body = assert_problem(response, "internal_error")
    assert "secret" not in response.text
    assert body["request_id"] in [getattr(record, "request_id", None) for record in caplog.records]


# --- keys --------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(agents: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    keys = tmp_path / "keys.json"
    keys.write_text(
        json.dumps(
            [
                {"name": "all", "environment": "default", "sha256": hashed("all-key")},
                {"name": "reader", "sha256": hashed("read-key"), "permissions": ["sessions.read"]},
                {"name": "other", "environment": "other", "sha256": hashed("other-key")},
                {"name": "answerer", "sha256": hashed("answer-key"), "permissions": ["asks.answer"]},
            ]
        )
    )
    app = create_app(Settings(agents=(agents,), keys_file=keys))
    with TestClient(app, base_url="http://anywhere.example") as client:
        yield client


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("header", [{}, {"Authorization": "Basic all-key"}, bearer("wrong"), bearer("")])
def test_a_caller_without_a_known_key_is_unauthenticated(guarded: TestClient, header: dict[str, str]) -> None:
    for response in (
        guarded.get(PATH, headers=header),
        guarded.get("/v1/agents", headers=header),
        guarded.get("/v1/nowhere", headers=header),
        guarded.post("/v1/sessions", content="{", headers=header),
    ):
        assert_problem(response, "unauthenticated")
        assert response.headers["www-authenticate"] == "Bearer"


def test_rights_are_decided_before_any_look_up(guarded: TestClient) -> None:
    for response in (
        *(guarded.post(f"{PATH}/{c}", headers=bearer("read-key")) for c in ("close", "cancel", "interrupt")),
        guarded.post(f"{PATH}/turns/{TURN}/interrupt", headers=bearer("read-key")),
        guarded.post("/v1/sessions/ses_x/close", headers=bearer("read-key")),
        guarded.post("/v1/sessions", json={"agent": "nobody"}, headers=bearer("read-key")),
        guarded.post(f"{PATH}/turns", json={"input": "x"}, headers=bearer("read-key")),
        guarded.post(MESSAGES, json={"content": "x"}, headers=bearer("read-key")),
        guarded.post(MESSAGES, json={"content": "x"}, headers=bearer("answer-key")),
        guarded.post(f"{ASK}/answer", json={"answer": {"text": "x"}}, headers=bearer("read-key")),
        guarded.get(ASK, headers=bearer("answer-key")),
        guarded.get(f"{PATH}/asks", headers=bearer("answer-key")),
    ):
        assert_problem(response, "permission_denied")
    for response in (
        guarded.get(PATH, headers=bearer("read-key")),
        guarded.get(f"{PATH}/asks", headers=bearer("read-key")),
        guarded.post(f"{ASK}/answer", json={"answer": {"text": "x"}}, headers=bearer("answer-key")),
        guarded.post(MESSAGES, json={"content": "x"}, headers=bearer("all-key")),
    ):
        assert_problem(response, "temporal_unavailable")


def test_a_session_of_another_environment_does_not_exist(guarded: TestClient) -> None:
    assert_problem(guarded.get(PATH, headers=bearer("other-key")), "session_not_found")
    assert_problem(guarded.get(PATH, headers=bearer("all-key")), "temporal_unavailable")


def test_health_and_documentation_want_no_key(guarded: TestClient) -> None:
    for path in ("/healthz", "/docs", "/openapi.json", "/metrics"):
        assert guarded.get(path).status_code == 200


def test_without_keys_other_names_than_loopback_are_refused(api: TestClient) -> None:
    for host in ("evil.example", "evil.example:8080", "10.0.0.1", ""):
        assert_problem(api.get(PATH, headers={"Host": host}), "permission_denied")
    for host in ("localhost:8080", "127.0.0.2", "[::1]:80"):
        assert_problem(api.get(PATH, headers={"Host": host}), "temporal_unavailable")


async def test_without_keys_it_serves_loopback_only() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(CannotServe, match="loopback only"):
            await serve(Settings(host=host))


# --- fingerprints -------------------------------------------------------------------------------------


def test_s3_two_ways_of_writing_a_creation_have_one_fingerprint() -> None:
    def of(**body: Any) -> str:
        created = CreateBody.model_validate({"agent": "a", **body})
        return created.fingerprint(Config.resolve({}, *([created.config] if created.config else [])))

    assert of(input="hi") == of(input=[{"type": "text", "text": "hi"}], metadata={}, key=None)
    assert of(config={"max_turn_duration": "PT1M"}) == of(config={"max_turn_duration": 60})
    assert of() == of(config={}) == of(config=None) == of(config={"stop_deadline": 10, "queue_limit": 1000})
    different = [of(), of(input="hi"), of(config={"hibernate_after_idle": None}), of(key="k")]
    assert len(set(different)) == 4


def test_s3_a_retry_as_it_was_written_stays_one_when_the_agent_changes() -> None:
    def of(default: int, **config: Any) -> Creation:
        body = CreateBody.model_validate({"agent": "a", "config": config})
        assert body.config
        resolved = Config.resolve({"stop_deadline": default}, body.config)
        new = NewSession(
            agent="a",
            environment="default",
            seed="s",
            config=resolved,
            request_id="req_12345678",
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        return Creation.of(
            new,
            SESSION,
            idempotency_key="k",
            fingerprint=body.fingerprint(resolved),
            fingerprint_as_given=body.fingerprint_as_given(),
        )

    first = of(10)
    assert of(10).repeats(first)
    assert of(10, stop_deadline=10).repeats(first), "written out"
    assert of(20).repeats(first), "the same words, though the Agent has another default by now"
    assert not of(20, stop_deadline=20).repeats(first)
    assert not of(10, queue_limit=5).repeats(first)
