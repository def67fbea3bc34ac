"""The pure parts of what speaks to Temporal: payloads, the list's query, terminated Sessions."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from temporalio.service import RPCError, RPCStatusCode

from turnhold.session.creation import Config, NewSession
from turnhold.session.errors import Rejection
from turnhold.session.questions import TextControl
from turnhold.session.values import JsonPart, Origin, TextPart
from turnhold.session.views import AskPage, AskView, ReadResult, ReceiptView, SessionView, TurnView
from turnhold.temporal import creation, failures, terminated
from turnhold.temporal.calls import bounded
from turnhold.temporal.creation import Creation, session_id
from turnhold.temporal.listing import Filter, query
from turnhold.temporal.plugin import DATA_CONVERTER

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SESSION = "ses_abcdefgh12345678"
TURN = "trn_abcdefgh12345678"


def turn(**changes: object) -> TurnView:
    known = TurnView(
        id=TURN, session_id=SESSION, sequence=1, status="running", origin=Origin(), created_at=NOW
    )
    return known.but(**changes)


def session(**changes: object) -> SessionView:
    known = SessionView(
        id=SESSION, agent="a", root_id=SESSION, created_at=NOW, last_activity_at=NOW, config=Config()
    )
    return known.but(**changes)


async def test_payloads_leave_out_null_fields_and_keep_null_data() -> None:
    value = ReadResult(
        session=session(), turns_by_id={TURN: turn(result={"a": None}, output=(JsonPart(value=None),))}
    )
    [payload] = await DATA_CONVERTER.encode([value])
    assert b'"closed_at"' not in payload.data
    assert b'"result":{"a":null}' in payload.data
    assert await DATA_CONVERTER.decode([payload], [ReadResult]) == [value]


async def test_an_explicit_null_setting_survives_the_payload() -> None:
    new = NewSession(
        agent="a",
        environment="default",
        seed="s",
        config=Config.resolve({"hibernate_after_idle": None}),
        request_id="req_12345678",
        created_at=NOW,
    )
    [payload] = await DATA_CONVERTER.encode([new])
    [read] = await DATA_CONVERTER.decode([payload], [NewSession])
    assert read.config.hibernate_after_idle is None


def test_s2_a_session_id_is_made_of_its_key_else_of_its_idempotency_key() -> None:
    caller = ("api_key", "me", "i1")
    assert session_id("e", "a", "k", caller) == session_id("e", "a", "k", None)
    assert session_id("e", "a", None, caller) == session_id("e", "b", None, caller)
    different = [
        session_id("e", "a", "k", None),
        session_id("f", "a", "k", None),
        session_id("e", "b", "k", None),
        session_id("e", "a", None, caller),
        session_id("e", "a", None, ("api_key", "you", "i1")),
        session_id("e", "a", None, None),
        session_id("e", "a", None, None),
    ]
    assert len(set(different)) == len(different)


def test_a_summary_fits_whatever_the_key() -> None:
    new = NewSession(
        agent="a",
        environment="default",
        seed="s",
        config=Config(),
        key="é" * 200,
        request_id="req_12345678",
        created_at=NOW,
        input=(TextPart(text="hi"),),
    )
    made = Creation.of(new, SESSION, fingerprint="fingerprint")
    assert len(made.summary().encode()) <= 200
    assert made.fingerprint is None
    first = made.turn(SESSION, new.input)
    assert first is not None
    assert (first.sequence, first.input) == (1, new.input)


@pytest.mark.parametrize("key", ["k", "é" * 200, "\\" * 200, "\U0001f600" * 200])
def test_s2_a_search_attribute_holds_as_much_of_a_key_as_temporal_takes(key: str) -> None:
    new = NewSession(
        agent="a",
        environment="default",
        seed="s",
        config=Config(),
        key=key,
        request_id="req_12345678",
        created_at=NOW,
    )
    shown = Creation.of(new, SESSION).attributes().get(creation.KEY)
    assert shown is not None
    assert key.startswith(shown)
    assert len(shown) >= 160 or shown == key
    assert len(json.dumps(shown)) <= 2048


def test_the_lists_query_never_lets_a_value_out_of_its_quotes() -> None:
    text = query("e", Filter(agent="a' OR 'x'='x", deployment="\\"))
    assert "TurnholdAgent = 'a'' OR ''x''=''x'" in text
    assert "TemporalWorkerDeploymentVersion = '\\\\'" in text
    assert "TurnholdEnvironment = 'e'" in text
    assert "ExecutionStatus != 'ContinuedAsNew'" in text


def test_s90_the_list_counts_every_ended_workflow_as_closed() -> None:
    assert "(TurnholdStatus = 'closed' OR ExecutionStatus != 'Running')" in query(
        "e", Filter(status="closed")
    )
    assert "TurnholdStatus = 'open' AND ExecutionStatus = 'Running'" in query("e", Filter(status="open"))
    assert "TurnholdHeld = true AND ExecutionStatus = 'Running'" in query("e", Filter(held=True))


def test_a_moment_beyond_what_stores_compare_is_no_error() -> None:
    far_east = timezone(timedelta(hours=14))
    for year, expected in ((1, "1970-01-01"), (9999, "2200-01-01"), (2026, "2025-12-31T10:00:00.000Z")):
        moment = datetime(year, 1, 1, tzinfo=far_east)
        assert f"TurnholdLastActivity >= '{expected}" in query("e", Filter(active_since=moment))


def test_s90_a_terminated_session_shows_nothing_unfinished() -> None:
    ask = AskView(
        id="ask_1", turn_id=TURN, status="pending", prompt="?", control=TextControl(), created_at=NOW
    )
    result = ReadResult(
        session=session(running_turn_id=TURN, queued_turns=2),
        turns_by_id={TURN: turn(accepts_messages=True)},
        turns=((turn(), turn(status="completed")),),
        ask_pages=(AskPage(asks=(ask,)),),
        working=True,
    )
    shown = terminated.overlay(result, NOW)
    assert (shown.session.status, shown.session.closed_how) == ("closed", "terminated")
    assert (shown.session.running_turn_id, shown.session.queued_turns) == (None, 0)
    assert shown.turns_by_id[TURN].status == "interrupted"
    assert shown.turns_by_id[TURN].reason == "terminated"
    assert [each.status for each in shown.turns[0]] == ["interrupted", "completed"]
    assert (shown.ask_pages[0].asks[0].status, shown.working) == ("cancelled", False)


def test_s90_a_session_that_had_closed_itself_keeps_how() -> None:
    shown = terminated.overlay(ReadResult(session=session(status="closed", closed_how="close")), NOW)
    assert shown.session.closed_how == "close"


def test_s90_a_command_to_a_terminated_session_comes_too_late() -> None:
    def judged(**fields: object) -> ReceiptView:
        known = ReceiptView(request_id="req_12345678", status="accepted", session_id=SESSION)
        shown = terminated.overlay(ReadResult(session=session(), judged=known.but(**fields)), NOW)
        assert shown.judged is not None
        return shown.judged

    late = judged(operation="enqueue", turn_id=TURN)
    assert late.rejection is not None
    assert late.rejection.code == "session_closed"
    assert judged(operation="enqueue", replay=True, turn_id=TURN).turn_id == TURN
    assert judged(operation="close").session_status == "closed"
    unknown = judged(status="rejected", rejection=Rejection(code="hold_not_found", detail="No."))
    assert unknown.rejection is not None
    assert unknown.rejection.code == "hold_not_found"


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        (
            "Failed client connect: Server connection error: tonic::transport::Error(Transport, ConnectError("
            'ConnectError("tcp connect error", 127.0.0.1:1, Os { code: 111, kind: ConnectionRefused, '
            'message: "Connection refused" })))',
            "connection refused",
        ),
        (
            'tonic::transport::Error(Transport, ConnectError(ConnectError("dns error", Custom { kind: '
            'Uncategorized, error: "failed to lookup address information: Name or service not known" })))',
            "failed to lookup address information: Name or service not known",
        ),
        (
            'Worker validation failed: Status { code: PermissionDenied, message: "Not for you." }',
            "not for you.",
        ),
        ("invalid target URL:\n invalid port number", "invalid target URL: invalid port number"),
    ],
)
def test_of_an_sdk_error_the_reason_alone_is_told(said: str, plain: str) -> None:
    assert failures.plain(RuntimeError(said)) == plain


async def test_s93_a_namespace_that_is_not_there_is_said() -> None:
    missing = RPCError("Namespace nope is not found.", RPCStatusCode.NOT_FOUND, b"")
    with pytest.raises(failures.Failure, match="Namespace nope is not found") as caught:
        async with bounded(1, SESSION, "req_12345678"):
            raise missing
    assert caught.value.code == "temporal_unavailable"
    assert "TEMPORAL_NAMESPACE" in caught.value.detail


def test_a_workers_own_check_of_its_namespace_is_recognised() -> None:
    status = 'Status { code: NotFound, message: "Namespace nope is not found.", details: b"" }'
    assert failures.is_no_namespace(RuntimeError(f"Worker validation failed: Namespace nope …: {status}"))
    assert not failures.is_no_namespace(RuntimeError("Worker validation failed: Namespace nope was not …"))
    assert not failures.is_no_namespace(RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b""))
