"""Questions over real HTTP: asked, listed, answered once, and never left pending behind a Turn."""

import asyncio
from typing import Any

import httpx2
import pytest

from tests.e2e.test_controls import begin, closed, kinds, one, output, refused
from tests.harness import assert_gapless, poll, settled, timeline
from turnhold.cli.stack import Stack
from turnhold.client import Client, Problem
from turnhold.session.views import AskView, ReceiptView

CHOICE = "choose-many Toppings? | ham,egg,rye"


async def asked(client: Client, text: str, **config: Any) -> tuple[str, str, AskView]:
    """A new Session whose first Turn waits for an answer."""
    session_id, turn_id = await begin(client, text, **config)

    async def question() -> AskView | None:
        return next(iter(await client.asks(session_id, status="pending")), None)

    return session_id, turn_id, await poll(question, interval=0.01)


async def test_s40_s41_a_question_is_listed_answered_and_kept(client: Client) -> None:
    session_id, turn_id, ask = await asked(client, "ask Which city?\nchoose Sure? | yes,no")
    assert ask.model_dump(mode="json") == {
        "id": ask.id,
        "turn_id": turn_id,
        "status": "pending",
        "prompt": "Which city?",
        "control": {"type": "text"},
        "answer": None,
        "answered_by": None,
        "created_at": ask.model_dump(mode="json")["created_at"],
        "settled_at": None,
    }
    assert await client.asks(session_id, turn_id=turn_id) == (ask,)
    assert await client.ask(session_id, turn_id, ask.id) == ask
    receipt = await client.answer(session_id, turn_id, ask.id, text="Lisbon")
    assert (receipt.status, receipt.turn_id, receipt.ask_id) == ("accepted", turn_id, ask.id)

    async def next_question() -> AskView | None:
        return next(iter(await client.asks(session_id, status="pending")), None)

    second = await poll(next_question)
    assert second.control.model_dump(mode="json") == {
        "type": "choice",
        "options": [{"id": word, "label": word, "value": word} for word in ("yes", "no")],
        "multiple": False,
        "allow_text": False,
    }
    await client.answer(session_id, turn_id, second.id, selected=["no"])
    assert output(await settled(client, session_id, turn_id)) == "answer: Lisbon\nchose: no\n"
    await client.close(session_id)
    await poll(lambda: closed(client, session_id))
    first, last = await client.asks(session_id, status="answered")
    assert (first.id, last.id) == (ask.id, second.id)
    assert first.answer is not None
    assert first.answer.model_dump() == {"text": "Lisbon"}
    assert first.answered_by is not None
    assert first.answered_by.kind == "anonymous"
    assert await client.asks(session_id, status="pending") == ()
    events = await timeline(client, session_id)
    assert_gapless(events)
    answered = one([e for e in events if e.data.get("ask_id") == ask.id], "ask.answered")
    assert (answered.sequence, answered.turn_id) == (receipt.event_sequence, turn_id)
    assert answered.data["answer"] == {"text": "Lisbon"}
    assert answered.data["answered_by"] == {"kind": "anonymous", "id": None}


@pytest.mark.parametrize(
    ("steps", "wrong", "right"),
    [
        (
            CHOICE,
            [
                {"selected": ["ham", "tofu"]},
                {"selected": ["egg", "ham"]},
                {"selected": ["ham", "ham"]},
                {"selected": []},
                {},
                {"text": "nothing"},
                {"selected": ["ham"], "text": "and more"},
            ],
            {"selected": ["ham", "rye"]},
        ),
        (
            "choose-or-say Which? | a,b",
            [{"selected": ["a", "b"]}, {"text": ""}, {"text": "x" * 8193}],
            {"text": "ö" * 4096},
        ),
        ("ask Why?", [{"text": ""}, {"selected": ["a"]}, {"text": "ö" * 32769}], {"text": "ö" * 32768}),
    ],
    ids=["choice", "choice or text", "text"],
)
async def test_s41_a_wrong_answer_leaves_the_question_pending(
    client: Client, steps: str, wrong: list[dict[str, Any]], right: dict[str, Any]
) -> None:
    session_id, turn_id, ask = await asked(client, steps)
    for given in wrong:
        with pytest.raises(Problem) as caught:
            await client.answer(session_id, turn_id, ask.id, **given)
        assert (caught.value.status, caught.value.code) == (422, "invalid_answer"), given
        assert (await client.ask(session_id, turn_id, ask.id)) == ask
    await client.answer(session_id, turn_id, ask.id, **right)
    said = output(await settled(client, session_id, turn_id))
    assert said.partition(": ")[2].strip() == (right.get("text") or "ham,rye")
    assert len([e for e in await timeline(client, session_id) if e.kind.startswith("ask.")]) == 2


async def test_s41_the_first_of_two_answers_counts_and_its_retry_is_the_same(client: Client) -> None:
    session_id, turn_id, ask = await asked(client, "ask Who?")

    async def answer(who: str) -> ReceiptView | str:
        try:
            return await client.answer(session_id, turn_id, ask.id, text=who, response_id=who)
        except Problem as problem:
            return problem.code

    answers = dict(zip("ab", await asyncio.gather(answer("a"), answer("b")), strict=True))
    (winner,) = (who for who, given in answers.items() if isinstance(given, ReceiptView))
    loser = "ab".replace(winner, "")
    first = answers[winner]
    assert isinstance(first, ReceiptView)
    assert answers[loser] == "ask_settled"
    assert output(await settled(client, session_id, turn_id)) == f"answer: {winner}\n"
    assert await answer(winner) == first.but(replay=True)
    changed = client.answer(session_id, turn_id, ask.id, text="c", response_id=winner)
    assert await refused(changed) == "ask_settled"
    assert await refused(client.answer(session_id, turn_id, ask.id, text=winner)) == "ask_settled"
    await client.close(session_id)
    await poll(lambda: closed(client, session_id))
    assert await answer(winner) == first.but(replay=True)
    assert await answer(loser) == "session_closed"
    assert await refused(client.answer(session_id, turn_id, "ask_00000000", text="x")) == "ask_not_found"
    assert await refused(client.answer(session_id, "trn_00000000", ask.id, text="x")) == "turn_not_found"
    assert await refused(client.ask(session_id, turn_id, "nonsense")) == "ask_not_found"
    assert await refused(client.asks(session_id, turn_id="trn_00000000")) == "turn_not_found"


async def test_s42_an_interrupt_cancels_the_question_at_once(client: Client) -> None:
    session_id, turn_id, ask = await asked(client, "ask Well?")
    await client.interrupt(session_id)
    turn = await settled(client, session_id, turn_id)
    assert (turn.status, turn.reason) == ("interrupted", "session_interrupt")
    assert await refused(client.answer(session_id, turn_id, ask.id, text="late")) == "ask_settled"
    events = await timeline(client, session_id)
    assert kinds(events)[-3:] == ["session.interrupt", "ask.cancelled", "turn.interrupted"]
    assert events[-2].data["reason"] == "interrupt"


async def test_s42_s53_a_close_waits_for_nobody(client: Client) -> None:
    session_id, turn_id, ask = await asked(client, "ask Well?\nsay never")
    receipt = await client.close(session_id)
    assert (await client.ask(session_id, turn_id, ask.id)).status == "cancelled"
    turn = await settled(client, session_id, turn_id)
    assert turn.error is not None
    assert (turn.status, turn.error.code, output(turn)) == ("failed", "ask_cancelled", "")
    await poll(lambda: closed(client, session_id))
    events = await timeline(client, session_id)
    assert kinds(events)[-4:] == ["session.close", "ask.cancelled", "turn.failed", "session.closed"]
    assert events[-4].sequence == (receipt.event_sequence or 0) - 1
    assert events[-3].data["reason"] == "close"


async def test_s42_a_question_while_closing_and_one_without_an_answer_in_time(client: Client) -> None:
    closing, first = await begin(client, "sleep 0.7\nask Anybody?")
    hurried, second = await begin(client, "ask-for 0.2 Anybody?")
    await poll(lambda: _runs(client, closing))
    await client.close(closing)
    for session_id, turn_id, reason in ((closing, first, "close"), (hurried, second, "timeout")):
        turn = await settled(client, session_id, turn_id)
        assert turn.error is not None
        assert (turn.status, turn.error.code) == ("failed", "ask_cancelled")
        events = [e for e in await timeline(client, session_id) if e.turn_id == turn_id]
        assert kinds(events)[-3:] == ["ask.created", "ask.cancelled", "turn.failed"]
        assert events[-2].data["reason"] == reason


async def _runs(client: Client, session_id: str) -> bool:
    return (await client.session(session_id)).running_turn_id is not None


async def test_s40_who_waits_for_a_person_is_found_in_the_list(client: Client) -> None:
    session_id, turn_id, ask = await asked(client, "ask Found?")

    async def listed(asking: bool) -> bool:
        found = await client.list_sessions(asking=asking, limit=100)
        return session_id in {session.id for session in found.sessions if session.asking is asking}

    await poll(lambda: listed(True), what="the Session among those that ask")
    await client.answer(session_id, turn_id, ask.id, text="yes")
    await poll(lambda: listed(False), what="the Session among those that do not")


async def test_s91_a_signal_by_hand_is_an_answer(client: Client, stack: Stack) -> None:
    from tests.fault.conftest import temporal

    session_id, turn_id, ask = await asked(client, CHOICE)
    handle = (await temporal(stack)).get_workflow_handle(session_id)
    for payload in (None, {"turn_id": turn_id}, {"turn_id": turn_id, "ask_id": ask.id, "answer": "ham"}):
        await handle.signal("answer", payload)
    given = {"turn_id": turn_id, "ask_id": ask.id, "answer": {"selected": ["egg"]}}
    await handle.signal("answer", given)
    await settled(client, session_id, turn_id)
    answered = await client.ask(session_id, turn_id, ask.id)
    assert answered.answered_by is not None
    assert answered.answered_by.kind == "temporal"


async def test_s3_an_idempotency_key_and_unknown_fields(client: Client, stack: Stack) -> None:
    session_id, turn_id, ask = await asked(client, CHOICE)
    path = f"/v1/sessions/{session_id}/turns/{turn_id}/asks/{ask.id}/answer"
    async with httpx2.AsyncClient(base_url=stack.api_url, timeout=20, trust_env=False) as http:
        for body in (
            {"answer": {"selected": ["ham"], "why": 1}},
            {"answer": "ham"},
            {},
            {"answer": {}, "x": 1},
        ):
            bad = await http.post(path, json=body)
            assert (bad.status_code, bad.json()["code"]) == (422, "invalid_request")
        body = {"answer": {"selected": ["ham"]}}
        first = await http.post(path, json=body, headers={"Idempotency-Key": "once"})
        again = await http.post(path, json=body, headers={"Idempotency-Key": "once"})
        assert (first.status_code, again.status_code) == (200, 200)
        assert first.json() == again.json()
        assert "idempotent-replay" not in first.headers
        assert again.headers["Idempotent-Replay"] == "true"
        assert (await http.get(f"/v1/sessions/{session_id}/asks?status=open")).status_code == 422
    await settled(client, session_id, turn_id)
