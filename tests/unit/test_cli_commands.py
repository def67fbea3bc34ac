"""The command line against a server that is not there: parsing, shapes of output, exit codes."""

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import pytest
from rich.cells import cell_len

from turnhold import keys
from turnhold.cli import connection, output
from turnhold.cli.main import app, main
from turnhold.client import Client

NOW = "2026-01-01T00:00:00.000Z"
SESSION = "ses_" + "0123456789abcdefghij" * 2
OWNER = "ses_owner0000"
HOLDS = ("hld_" + "a" * 20, "hld_" + "b" * 20)
TURN = {
    "id": "trn_00000000000000001",
    "session_id": SESSION,
    "sequence": 1,
    "status": "completed",
    "origin": {"kind": "anonymous", "id": None},
    "output": [{"type": "text", "text": "hello\n"}],
    "created_at": NOW,
}
RECEIPT = {
    "request_id": "req_00000001",
    "status": "accepted",
    "session_id": SESSION,
    "session_status": "open",
    "event_sequence": 7,
    "turn_id": "trn_00000000000000002",
    "sequence": 2,
}

Run = Callable[..., tuple[int, str, str]]


def session_view(**changes: Any) -> dict[str, Any]:
    hold = {
        "session_id": SESSION,
        "kind": "process_failed",
        "placed_by": {"kind": "system", "id": None},
        "created_at": NOW,
    }
    return {
        "id": SESSION,
        "agent": "script",
        "key": "a key",
        "status": "open",
        "root_id": SESSION,
        "created_at": NOW,
        "last_activity_at": NOW,
        "config": {},
        "holds": [
            {**hold, "id": HOLDS[0], "can_release": True},
            {**hold, "id": HOLDS[1], "can_release": False, "session_id": OWNER},
        ],
        **changes,
    }


class Server:
    """Answers by method and path, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Callable[[httpx2.Request], httpx2.Response]] = {}
        self.requests: list[httpx2.Request] = []

    def on(self, method: str, path: str, status: int, body: Any) -> None:
        self.answers[method, path] = lambda _: httpx2.Response(status, json=body)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return self.answers[request.method, request.url.path](request)

    def body(self) -> Any:
        return json.loads(self.requests[-1].content)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    served = Server()
    transport = httpx2.MockTransport(served)
    monkeypatch.setattr(connection, "client", lambda url, api_key: Client(url, api_key, transport=transport))
    for name in ("TURNHOLD_URL", "TURNHOLD_API_KEY", "TURNHOLD_KEYS_FILE"):
        monkeypatch.delenv(name, raising=False)
    return served


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_it(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_it


# --- sessions ----------------------------------------------------------------------------------------


def test_create_sends_what_was_said_and_prints_the_ids(server: Server, run: Run):
    server.on("POST", "/v1/sessions", 201, {"session": session_view(), "turn": TURN})
    code, out, err = run(
        *("session", "create", "script", "--text", "say hi", "--key", "k", "--metadata", "a=b=c"),
        *("--config", "queue_limit=5", "--config", "max_turn_duration=PT1H", "--idempotency-key", "once"),
    )
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"session  {SESSION}", f"turn     {TURN['id']}"]
    assert server.body() == {
        "agent": "script",
        "input": "say hi",
        "key": "k",
        "metadata": {"a": "b=c"},
        "config": {"queue_limit": 5, "max_turn_duration": "PT1H"},
    }
    assert server.requests[0].headers["Idempotency-Key"] == "once"


def test_s1_create_without_text_has_no_input_and_empty_text_is_left_to_the_server(server: Server, run: Run):
    server.on("POST", "/v1/sessions", 201, {"session": session_view(), "turn": None})
    assert run("session", "create", "script")[0] == 0
    assert server.body() == {"agent": "script"}
    run("session", "create", "script", "--text", "")
    assert server.body() == {"agent": "script", "input": ""}


def test_json_is_exactly_one_document(server: Server, run: Run):
    server.on("POST", "/v1/sessions", 201, {"session": session_view(), "turn": TURN})
    server.on("GET", f"/v1/sessions/{SESSION}", 200, session_view())
    server.on("GET", "/v1/sessions", 200, {"sessions": [session_view(held=True)], "next_cursor": "next"})
    server.on("GET", "/v1/agents", 200, {"agents": [{"name": "script", "description": "d", "config": {}}]})
    server.on("POST", f"/v1/sessions/{SESSION}/close", 200, RECEIPT)
    assert json.loads(run("session", "create", "script", "--json")[1])["session"]["id"] == SESSION
    assert json.loads(run("session", "get", SESSION, "--json")[1])["holds"][0]["id"] == HOLDS[0]
    listed = json.loads(run("session", "ls", "--json")[1])
    assert (listed["sessions"][0]["held"], listed["next_cursor"]) == (True, "next")
    assert json.loads(run("agents", "--json")[1])["agents"][0]["description"] == "d"
    assert json.loads(run("session", "close", SESSION, "--json")[1]) == RECEIPT


def test_ls_never_cuts_an_id(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "20")
    rows = [session_view(held=True, asking=True), session_view(key="日本", status="closed")]
    server.on("GET", "/v1/sessions", 200, {"sessions": rows, "next_cursor": None})
    counted = session_view(running_turn_id=TURN["id"], queued_turns=3)
    server.on("GET", f"/v1/sessions/{SESSION}", 200, counted)
    code, out, _ = run("session", "ls", "--agent", "script", "--status", "open", "--held", "--limit", "5")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{SESSION}  script  ") for line in lines[1:])
    assert "resume, answer  running, 3 queued  " in lines[1]
    columns = [
        cell_len(line.split(word)[0]) for line, word in zip(lines, ("STATUS", "open", "closed"), strict=True)
    ]
    assert len(set(columns)) == 1
    assert dict(server.requests[0].url.params) == {
        "agent": "script",
        "status": "open",
        "held": "true",
        "limit": "5",
    }


def test_s92_ls_does_without_the_workers_that_could_tell_what_is_queued(server: Server, run: Run):
    server.on("GET", "/v1/sessions", 200, {"sessions": [session_view(held=False)], "next_cursor": None})
    problem = {"status": 503, "code": "worker_unavailable", "title": "Away", "detail": "Nobody answers."}
    server.on("GET", f"/v1/sessions/{SESSION}", 503, problem)
    code, out, err = run("session", "ls")
    assert (code, err) == (0, "")
    assert "  open    -          ?  " in out.splitlines()[1]


def test_turns_are_listed(server: Server, run: Run):
    failed = {**TURN, "sequence": 2, "status": "failed"}
    failed["error"] = {"code": "handler_failed", "type": "E", "message": "m"}
    path = f"/v1/sessions/{SESSION}/turns"
    server.on("GET", path, 200, {"turns": [TURN, failed], "next_after": 2})
    code, out, _ = run("session", "turn", "ls", SESSION, "--limit", "2", "--status", "failed")
    assert code == 0
    assert dict(server.requests[0].url.params) == {"after": "0", "limit": "2", "status": "failed"}
    header, first, second, more = out.splitlines()
    assert header.split() == ["NUMBER", "TURN", "STATUS", "REASON", "CREATED"]
    assert first.split()[:4] == ["1", TURN["id"], "completed", "-"]
    assert second.split()[:4] == ["2", TURN["id"], "failed", "handler_failed"]
    assert more == "more: --after 2"


def test_get_names_each_hold_with_the_command_that_releases_it(server: Server, run: Run):
    server.on("GET", f"/v1/sessions/{SESSION}", 200, session_view())
    code, out, _ = run("session", "get", SESSION)
    assert code == 0
    assert f"turnhold session resume {SESSION} --hold {HOLDS[0]}" in out
    assert f"turnhold session resume {OWNER} --hold {HOLDS[1]}" in out


def test_s92_a_pending_command_exits_with_4(server: Server, run: Run):
    pending = {"request_id": "req_00000001", "status": "pending", "session_id": SESSION}
    server.on("POST", f"/v1/sessions/{SESSION}/turns", 202, pending)
    code, out, _ = run("session", "enqueue", SESSION, "--text", "x")
    assert code == 4
    assert "pending" in out
    assert "req_00000001" in out
    code, out, _ = run("session", "enqueue", SESSION, "--text", "x", "--json")
    assert code == 4
    assert json.loads(out)["status"] == "pending"


def test_s3_an_enqueue_has_a_key_of_its_own_when_none_is_given(server: Server, run: Run):
    server.on("POST", f"/v1/sessions/{SESSION}/turns", 201, RECEIPT)
    for _ in range(2):
        assert run("session", "enqueue", SESSION, "--text", "x")[0] == 0
    first, second = (request.headers["Idempotency-Key"] for request in server.requests)
    assert first != second


def test_input_may_come_from_a_file(server: Server, run: Run, tmp_path: Path):
    server.on("POST", f"/v1/sessions/{SESSION}/turns", 201, RECEIPT)
    path = tmp_path / "input.txt"
    path.write_text("say ä\n", encoding="utf-8")
    assert run("session", "enqueue", SESSION, "--input-file", str(path))[0] == 0
    assert server.body() == {"input": "say ä\n"}
    path.write_bytes(b"\xff")
    assert run("session", "enqueue", SESSION, "--input-file", str(path))[0] == 2


def test_s52_resume_releases_the_hold_that_is_named(server: Server, run: Run):
    server.on("POST", f"/v1/sessions/{SESSION}/resume", 200, {**RECEIPT, "hold_id": HOLDS[0]})
    code, out, _ = run("session", "resume", SESSION, "--hold", HOLDS[0])
    assert (code, out) == (0, f"released {HOLDS[0]}\n")
    assert server.body() == {"hold_id": HOLDS[0]}


def test_s52_resume_all_releases_what_can_be_and_says_what_cannot(server: Server, run: Run):
    server.on("GET", f"/v1/sessions/{SESSION}", 200, session_view())
    server.on("POST", f"/v1/sessions/{SESSION}/resume", 200, {**RECEIPT, "hold_id": HOLDS[0]})
    code, out, _ = run("session", "resume", SESSION, "--all")
    assert code == 0
    assert out.splitlines()[0] == f"released {HOLDS[0]}"
    assert HOLDS[1] in out.splitlines()[1]
    document = json.loads(run("session", "resume", SESSION, "--all", "--json")[1])
    assert [receipt["hold_id"] for receipt in document["released"]] == [HOLDS[0]]
    assert document["kept"] == [HOLDS[1]]


def test_s51_interrupt_tells_the_hold_and_how_to_go_on(server: Server, run: Run):
    held = {**RECEIPT, "sequence": None, "hold_id": HOLDS[0]}
    server.on("POST", f"/v1/sessions/{SESSION}/interrupt", 200, held)
    code, out, err = run("session", "interrupt", SESSION)
    assert (code, out) == (0, f"held by {HOLDS[0]}; turn {RECEIPT['turn_id']} stops\n")
    assert f"turnhold session resume {SESSION} --hold {HOLDS[0]}" in err
    code, out, err = run("session", "interrupt", SESSION, "--json")
    assert (code, json.loads(out)["hold_id"], err) == (0, HOLDS[0], "")


def test_s50_a_turn_is_interrupted(server: Server, run: Run):
    turn = TURN["id"]
    server.on("POST", f"/v1/sessions/{SESSION}/turns/{turn}/interrupt", 200, {**RECEIPT, "turn_id": turn})
    assert run("session", "turn", "interrupt", SESSION, turn)[:2] == (0, f"turn {turn} stops\n")


def test_s54_cancel(server: Server, run: Run):
    server.on("POST", f"/v1/sessions/{SESSION}/cancel", 200, {**RECEIPT, "session_status": "closed"})
    assert run("session", "cancel", SESSION)[:2] == (0, "session closed\n")
    pending = {"request_id": "req_00000001", "status": "pending", "session_id": SESSION}
    server.on("POST", f"/v1/sessions/{SESSION}/interrupt", 202, pending)
    code, out, err = run("session", "interrupt", SESSION)
    assert (code, "pending" in out, err) == (4, True, "")


def test_s94_explain_names_causes_and_what_clears_them(server: Server, run: Run):
    def cause(code: str, path: str | None = None, **fields: Any) -> dict[str, Any]:
        clear = path and {"method": "POST", "path": f"/v1/sessions/{SESSION}/{path}", "body": None}
        return {"code": code, "message": f"It is {code}.", "clear": clear, **fields}

    explanation = {
        "moving": False,
        "causes": [
            cause("no_worker"),
            cause("held", "resume", since=NOW, hold_id=HOLDS[0]),
            cause("asking", "turns/T/asks/A/answer", until=NOW),
            cause("queued_behind", "turns/T/interrupt", turn_id="T"),
            cause("closing_on_owned", "cancel"),
            cause("nothing_to_do", "turns"),
        ],
    }
    server.on("GET", f"/v1/sessions/{SESSION}/explain", 200, explanation)
    code, out, _ = run("session", "explain", SESSION)
    assert code == 0
    assert out.startswith("It does not move.\nno_worker\n  It is no_worker.\nheld, for ")
    for line in (
        f"  turnhold session resume {SESSION} --hold {HOLDS[0]}",
        f"  POST /v1/sessions/{SESSION}/turns/T/asks/A/answer null",
        f"  turnhold session turn interrupt {SESSION} T",
        f"  turnhold session cancel {SESSION}",
        f"  turnhold session enqueue {SESSION} --text …",
    ):
        assert line in out.splitlines()
    document = json.loads(run("session", "explain", SESSION, "--json")[1])
    assert [found["code"] for found in document["causes"]] == [c["code"] for c in explanation["causes"]]
    server.on("GET", f"/v1/sessions/{SESSION}/explain", 200, {"moving": True, "causes": []})
    assert run("session", "explain", SESSION)[1].startswith("It moves")


def test_events_are_paged_to_the_end(server: Server, run: Run):
    def page(request: httpx2.Request) -> httpx2.Response:
        after = int(request.url.params["after"])
        event = {
            "session_id": SESSION,
            "turn_id": None,
            "sequence": after + 1,
            "created_at": NOW,
            "kind": "turn.output",
            "data": {"content": [{"type": "text", "text": "one\ntwo\n"}]},
        }
        body = {"records": [event], "next_after": after + 1, "has_more": after < 2}
        return httpx2.Response(200, json=body)

    server.answers["GET", f"/v1/sessions/{SESSION}/events"] = page
    code, out, _ = run("session", "events", SESSION)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["1", "2", "3"]
    assert out.splitlines()[0].endswith("one ⏎ two")
    lines = run("session", "events", SESSION, "--jsonl")[1].splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == [1, 2, 3]
    assert len(json.loads(run("session", "events", SESSION, "--json")[1])["records"]) == 3
    assert len(run("session", "events", SESSION, "--limit", "2", "--jsonl")[1].splitlines()) == 2


def test_turn_get_shows_its_output_and_wait_says_when_it_has_not_ended(server: Server, run: Run):
    path = f"/v1/sessions/{SESSION}/turns/{TURN['id']}"
    server.on("GET", path, 200, TURN)
    code, out, _ = run("session", "turn", "get", SESSION, str(TURN["id"]))
    assert code == 0
    assert out.splitlines()[-1] == "hello"
    server.on("GET", path, 200, {**TURN, "status": "running"})
    code, out, _ = run("session", "turn", "wait", SESSION, str(TURN["id"]), "--timeout", "0", "--json")
    assert code == 4
    assert json.loads(out)["status"] == "running"


# --- errors --------------------------------------------------------------------------------------------


def test_a_problem_ends_with_1_and_its_code_and_detail_on_stderr(server: Server, run: Run):
    body = {
        "status": 422,
        "code": "invalid_request",
        "detail": "That is not right.",
        "errors": [
            {"loc": ["config", "queue_limit"], "message": "too small"},
            {"loc": ["key"], "message": "too long"},
        ],
    }
    server.on("GET", f"/v1/sessions/{SESSION}", 422, body)
    code, out, err = run("session", "get", SESSION, "--json")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "error: invalid_request: That is not right.",
        "  config.queue_limit: too small",
        "  key: too long",
    ]


def test_nobody_there_ends_with_3(run: Run):
    code, out, err = run("session", "get", SESSION, "--url", "http://127.0.0.1:9")
    assert (code, out) == (3, "")
    assert err.startswith("error: cannot reach http://127.0.0.1:9")


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("session", "get"),
        ("session", "get", SESSION, "--nonsense"),
        ("session", "get", SESSION, "--url", "127.0.0.1:8080"),
        ("session", "ls", "--limit", "0"),
        ("session", "create", "script", "--follow"),
        ("session", "create", "script", "--metadata", "nonsense"),
        ("session", "create", "script", "--text", "a", "--input-file", "b"),
        ("session", "enqueue", SESSION),
        ("session", "enqueue", SESSION, "--input-file", "/nowhere"),
        ("session", "resume", SESSION),
        ("session", "resume", SESSION, "--all", "--hold", HOLDS[0]),
        ("session", "events", SESSION, "--json", "--jsonl"),
        ("session", "events", SESSION, "--json", "--follow"),
        ("dev", "--port", "70000"),
        ("key", "new", "a name", "--keys-file", "/nowhere/keys.json"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_line(run: Run, arguments: tuple[str, ...]):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")


def test_a_bug_ends_with_1_and_no_traceback(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch):
    def broken(url: str, api_key: str | None) -> Client:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(connection, "client", broken)
    code, out, err = run("session", "get", SESSION)
    assert (code, out, err) == (1, "", "error: unexpected ZeroDivisionError: oops\n")


def test_ctrl_c_ends_with_130(run: Run, monkeypatch: pytest.MonkeyPatch):
    def interrupted(url: str, api_key: str | None) -> Client:
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "client", interrupted)
    assert run("session", "get", SESSION) == (130, "", "")


# --- keys, help, output ----------------------------------------------------------------------------


def test_key_new_prints_the_key_once_and_stores_its_hash(run: Run, tmp_path: Path):
    path = tmp_path / "keys.json"
    code, out, err = run(
        *("key", "new", "ci", "--keys-file", str(path), "--environment", "prod"),
        *("--permission", "sessions.read", "--json"),
    )
    document = json.loads(out)
    assert code == 0
    assert document.pop("key").startswith("th_")
    assert document == {"name": "ci", "environment": "prod", "permissions": ["sessions.read"]}
    secret = run("key", "new", "cd", "--keys-file", str(path))[1].strip()
    assert keys.load(path)[1].sha256 == keys.digest(secret)
    assert secret not in path.read_text()
    code, _, err = run("key", "new", "cd", "--keys-file", str(path))
    assert (code, len(err.splitlines())) == (1, 1)


def test_keys_are_listed_and_removed(run: Run, tmp_path: Path):
    file = ("--keys-file", str(tmp_path / "keys.json"))
    run("key", "new", "all", *file)
    run("key", "new", "reader", "--permission", "sessions.read", *file)
    code, out, _ = run("key", "ls", *file)
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["all", "default", "everything"],
        ["reader", "default", "sessions.read"],
    ]
    assert run("key", "rm", "all", *file)[0] == 0
    assert [key["name"] for key in json.loads(run("key", "ls", *file, "--json")[1])["keys"]] == ["reader"]
    code, _, err = run("key", "rm", "all", *file)
    assert (code, len(err.splitlines())) == (1, 1)


def test_the_version_is_told(run: Run):
    assert run("--version") == (0, f"turnhold {version('turnhold')}\n", "")


def every_command() -> list[tuple[str, ...]]:
    import typer.main

    found: list[tuple[str, ...]] = []

    def walk(command: Any, path: tuple[str, ...]) -> None:
        children = getattr(command, "commands", None)
        if children is None:
            found.append(path)
            return
        for name, child in children.items():
            walk(child, (*path, name))

    walk(typer.main.get_command(app), ())
    return found


@pytest.mark.parametrize("path", every_command(), ids=" ".join)
def test_help_of_each_command_has_an_example_of_it(run: Run, path: tuple[str, ...]):
    code, out, _ = run(*path, "--help")
    assert code == 0
    assert "turnhold " + " ".join(path) in " ".join(out.split("Example:")[1].split())


def test_what_an_agent_writes_cannot_steer_the_terminal():
    assert output.clean("a\x1b[2Jb\x07\r\n\tc\x9b") == "a␛[2Jb␇␍\n\tc\ufffd"


def test_documents_survive_an_ascii_terminal(monkeypatch: pytest.MonkeyPatch):
    import io

    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    output.document({"text": "é 🙂"})
    assert json.loads(raw.getvalue()) == {"text": "é 🙂"}
