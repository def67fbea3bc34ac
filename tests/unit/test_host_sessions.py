"""`ctx.sessions` in a handler: what is asked in whose name, and what comes back."""

import asyncio
from typing import Any

import pytest

from activities.others import Others, Spawner
from tests.unit.hosting import NOW, Neighbours, make_host, run_one, start_call, turn_call, written
from turnhold import PastTurn, Refused, SpawnedSession, agent
from turnhold.scripted import script
from turnhold.session import commands, ids
from turnhold.session.errors import Rejection
from turnhold.session.hosting import SessionInfo
from turnhold.session.values import Origin
from turnhold.session.views import ReceiptView, SessionView, TurnView
from turnhold.temporal.failures import Failure

MINE = ids.session_id("default", "mine")
OTHER = ids.session_id("default", "other")
TURN = Spawner(session=SessionInfo(id=MINE, agent="lead", environment="default"), epoch=3, turn_id="trn_me")


async def test_s70_every_call_reaches_the_other_session():
    made: list[Any] = []

    async def handler(turn, ctx):
        sessions = ctx.sessions
        made.append(await sessions.spawn("worker", "go", key="a", metadata={"n": "1"}))
        made.append(await sessions.start("worker", key="b", session_key="s", config={"queue_limit": 5}))
        made.append((await sessions.get("ses_x")).id)
        made.append(await sessions.enqueue("ses_x", "more", key="once"))
        made.append(await sessions.interrupt("ses_x"))
        made.append(await sessions.interrupt("ses_x", "trn_1"))
        made.append(await sessions.resume("ses_x", "hld_1"))
        made.append(await sessions.close("ses_x"))
        made.append(await sessions.cancel("ses_x"))
        made.append(await sessions.wait_turn("ses_x", timeout="PT1M"))

    def plain(turn, ctx):
        sessions = ctx.sessions
        made.append(sessions.spawn("worker", "go", key="a", metadata={"n": "1"}))
        made.append(sessions.start("worker", key="b", session_key="s", config={"queue_limit": 5}))
        made.append(sessions.get("ses_x").id)
        made.append(sessions.enqueue("ses_x", "more", key="once"))
        made.append(sessions.interrupt("ses_x"))
        made.append(sessions.interrupt("ses_x", "trn_1"))
        made.append(sessions.resume("ses_x", "hld_1"))
        made.append(sessions.close("ses_x"))
        made.append(sessions.cancel("ses_x"))
        made.append(sessions.wait_turn("ses_x", timeout="PT1M"))

    for written_as in (handler, plain):
        made.clear()
        others = Neighbours()
        assert (await run_one(written_as, others=others)).how == "completed"
        assert made[:9] == [
            SpawnedSession("ses_a", "trn_first"),
            SpawnedSession("ses_b", "trn_first"),
            "ses_x",
            "trn_made",
            "hld_made",
            None,
            None,
            None,
            None,
        ]
        waited = made[9]
        assert isinstance(waited, PastTurn)
        assert (waited.id, waited.status, waited.output) == ("trn_last", "failed", "said")
        assert [what[0] for what in others.asked] == [
            *("spawn", "start", "get", "enqueue", "interrupt", "interrupt", "resume", "close", "cancel"),
            "wait_turn",
        ]
        assert others.asked[3][2] == {
            "input": ({"type": "text", "text": "more"},),
            "idempotency_key": "once",
        }
        assert others.asked[9] == ("wait_turn", "ses_x", None, 60)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda s: s.spawn("worker", "", key="a"), "empty_input"),
        (lambda s: s.spawn("worker", 7, key="a"), "invalid_request"),
        (lambda s: s.spawn("worker", "x" * 300_000, key="a"), "content_too_large"),
        (lambda s: s.spawn("worker", key="a", config={"queue_limits": 5}), "invalid_request"),
        (lambda s: s.spawn("worker", key="a", metadata={"": "x"}), "invalid_request"),
        (lambda s: s.spawn("worker", key="a", session_key="\x00"), "invalid_request"),
        (lambda s: s.enqueue("ses_x", "hi", key=""), "invalid_request"),
        (lambda s: s.resume("ses_x", None), "invalid_request"),
        (lambda s: s.wait_turn("ses_x", timeout="soon"), "invalid_request"),
    ],
)
async def test_bad_input_is_refused_before_anything_is_asked(call, code):
    async def handler(turn, ctx):
        await call(ctx.sessions)

    others = Neighbours()
    outcome = await run_one(handler, others=others)
    assert (outcome.how, outcome.error.code, others.asked) == ("failed", code, [])


async def test_s12_a_call_that_is_not_awaited_fails_the_turn():
    async def handler(turn, ctx):
        ctx.sessions.spawn("worker", "go", key="a")

    others = Neighbours()
    outcome = await run_one(handler, others=others)
    assert outcome.error.message == "ctx.sessions.spawn was called without await"
    assert others.asked == []


async def test_s70_init_and_a_turn_that_is_over_reach_nobody():
    codes: list[str] = []
    kept: list[Any] = []

    async def handler(turn, ctx):
        kept.append(ctx.sessions)

    definition = agent("test")(handler)

    @definition.init
    async def opened(ctx):
        for call in (
            ctx.sessions.spawn("worker", key="a"),
            ctx.sessions.get("ses_x"),
            ctx.sessions.cancel("ses_x"),
            ctx.sessions.wait_turn("ses_x"),
        ):
            try:
                await call
            except Refused as refused:
                codes.append(refused.code)

    others = Neighbours()
    host = make_host(definition, others=others)
    await host.start_process(start_call())
    await host.run_turn(turn_call())
    assert codes == ["turn_not_running"] * 4
    with pytest.raises(RuntimeError, match="over"):
        await kept[0].get("ses_x")
    assert others.asked == []


# --- the scripted steps -------------------------------------------------------------------------------


async def scripted(steps: str, others: Neighbours) -> str:
    host = make_host(script, others=others)
    await host.start_process(start_call("script"))
    return written((await host.run_turn(turn_call(steps))).facts)


async def test_scripted_spawns_split_at_the_first_bar_and_the_outermost_semicolons():
    others = Neighbours()
    said = await scripted(
        "spawn script | say a ; spawn script key=inner | say b\n"
        "spawn helper key=my key | sleep 1\n"
        "start script\n"
        "spawn script|say x",
        others,
    )
    assert said == "spawned: ses_trn_1_1\nspawned: ses_my_key\nstarted: ses_trn_1_3\nspawned: ses_trn_1_4\n"
    assert others.asked == [
        ("spawn", "script", "say a\nspawn script key=inner | say b", "trn_1 1"),
        ("spawn", "helper", "sleep 1", "my key"),
        ("start", "script", "", "trn_1 3"),
        ("spawn", "script", "say x", "trn_1 4"),
    ]


async def test_scripted_controls_say_what_came_of_them_and_go_on():
    steps = "interrupt S\nresume S H\nclose S\ncancel S\nenqueue S | say a ; say b"
    assert await scripted(f"{steps}\nwait S", Neighbours()) == (
        "done: interrupt S hld_made\ndone: resume S\ndone: close S\ndone: cancel S\ndone: enqueue S\n"
        "status: failed\n"
    )
    refusing = Neighbours(refuse="permission_denied")
    assert await scripted(f"{steps}\nsay on", refusing) == "refused: permission_denied\n" * 5 + "on\n"
    assert refusing.asked[4][2] == {"input": ({"type": "text", "text": "say a\nsay b"},)}


# --- the host's own part --------------------------------------------------------------------------------


class Gateway:
    """Answers from a list, in order: an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[Any] = []

    def _next(self, *asked: Any) -> Any:
        self.sent.append(asked)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def spawn(self, *asked: Any) -> Any:
        return self._next(*asked)

    async def command(self, *asked: Any) -> Any:
        return self._next(*asked)

    async def awaited(self, *asked: Any) -> Any:
        return self._next(*asked)

    async def session(self, *asked: Any) -> Any:
        return self._next(*asked)

    async def turns(self, *asked: Any) -> Any:
        return self._next(*asked)

    async def wait_turn(self, *asked: Any) -> Any:
        return self._next(*asked)


def others_of(gateway: Gateway) -> Others:
    return Others(gateway, gateway, {"script": script})  # type: ignore[arg-type]


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.others._RETRY_SECONDS", 0.001)


def receipt(status: Any = "accepted", code: str | None = None, **fields: Any) -> ReceiptView:
    rejection = Rejection(code=code, detail="no") if code else None
    return ReceiptView(request_id="req_1", status=status, session_id=MINE, rejection=rejection, **fields)


async def spawn(others: Others, key: str = "k", text: str = "hi", independent: bool = False) -> Any:
    what = commands.CreatePayload.model_validate({"agent": "script", "input": text})
    return await others.spawn(TURN, what, key, independent=independent)


@pytest.mark.usefixtures("no_waiting")
async def test_s70_a_spawn_is_sent_as_one_request_until_its_receipt_is_there():
    away = Failure("temporal_unavailable", "away")
    gateway = Gateway(
        away, receipt("pending"), Failure("worker_unavailable", "no"), receipt(spawned_id=OTHER)
    )
    first = await spawn(others_of(gateway))
    assert first.id == OTHER
    commands_sent = [asked[1] for asked in gateway.sent[:2]]
    assert commands_sent[0] == commands_sent[1], "the same request, sent again"
    assert gateway.sent[2][1] == gateway.sent[3][1] == commands_sent[0].request_id
    sent = commands_sent[0]
    assert (sent.turn_id, sent.epoch, sent.idempotency_key) == ("trn_me", 3, "k")
    again = Gateway(receipt(spawned_id=OTHER))
    assert await spawn(others_of(again)) == first, "a retry knows the same Turn"
    assert again.sent[0][1].fingerprint == sent.fingerprint
    other = Gateway(receipt(spawned_id=OTHER), receipt(spawned_id=OTHER))
    await spawn(others_of(other), text="something else")
    await spawn(others_of(other), independent=True)
    assert sent.fingerprint not in {asked[1].fingerprint for asked in other.sent}


@pytest.mark.usefixtures("no_waiting")
async def test_s95_a_spawn_waits_a_moment_for_room():
    gateway = Gateway(receipt("rejected", "session_busy"), receipt(spawned_id=OTHER))
    assert (await spawn(others_of(gateway))).id == OTHER
    assert len({asked[1].request_id for asked in gateway.sent}) == 2
    refusing = Gateway(receipt("rejected", "depth_limit"))
    with pytest.raises(Refused) as caught:
        await spawn(others_of(refusing))
    assert caught.value.code == "depth_limit"
    unknown = commands.CreatePayload(agent="nobody")
    with pytest.raises(Refused) as caught:
        await others_of(Gateway()).spawn(TURN, unknown, "k", independent=False)
    assert caught.value.code == "agent_not_found"


async def test_s73_commands_are_given_in_the_name_of_the_session():
    gateway = Gateway(receipt(hold_id="hld_1"), receipt(turn_id="trn_2"))
    others = others_of(gateway)
    assert (await others.command(TURN, OTHER, commands.Interrupt(), None)).hold_id == "hld_1"
    payload = commands.EnqueuePayload.model_validate({"input": "x"})
    command = commands.Enqueue.model_validate({"input": "x", "idempotency_key": "k"})
    await others.command(TURN, OTHER, command, payload)
    interrupt, enqueue = (asked[1] for asked in gateway.sent)
    assert interrupt.caller == enqueue.caller == Origin(kind="session", id=MINE)
    assert (interrupt.fingerprint, enqueue.fingerprint) == (None, commands.fingerprint(payload))


async def test_a_session_of_another_environment_is_not_there():
    others = others_of(Gateway())
    for session_id in ("nonsense", ids.session_id("elsewhere", "x")):
        for call in (
            others.get(TURN, session_id),
            others.command(TURN, session_id, commands.Cancel(), None),
            others.wait_turn(TURN, session_id, None, None),
        ):
            with pytest.raises(Refused) as caught:
                await call
            assert caught.value.code == "session_not_found"


@pytest.mark.usefixtures("no_waiting")
async def test_wait_turn_waits_for_the_last_turn_through_every_absence():
    def turn(status: Any) -> TurnView:
        return TurnView(
            id="trn_7", session_id=OTHER, sequence=7, status=status, origin=Origin(), created_at=NOW
        )

    session = SessionView.model_construct(turns_admitted=7)
    away = Failure("worker_unavailable", "no")
    gateway = Gateway(session, (turn("running"),), turn("running"), away, turn("completed"))
    assert (await others_of(gateway).wait_turn(TURN, OTHER, None, None)).status == "completed"
    assert gateway.sent[1][1].after == 6
    assert [asked[1] for asked in gateway.sent[2:]] == ["trn_7"] * 3
    empty = Gateway(SessionView.model_construct(turns_admitted=0), ())
    with pytest.raises(Refused) as caught:
        await others_of(empty).wait_turn(TURN, OTHER, None, None)
    assert caught.value.code == "turn_not_found"

    class Forever(Gateway):
        async def wait_turn(self, *asked: Any) -> Any:
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await others_of(Forever()).wait_turn(TURN, OTHER, "trn_7", 0.01)
