"""Messages to running Turns over real HTTP: admitted, handled in order, and never left open."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from tests.e2e.test_controls import begin, begin_running, enqueue, kinds, one, output, refused
from tests.harness import assert_gapless, poll, settled, timeline
from turnhold.client import Client, Problem
from turnhold.session.views import EventView, ReceiptView

ROUNDS = 8


async def listening(client: Client, text: str, **config: Any) -> tuple[str, str]:
    """A new Session whose first Turn takes messages."""
    session_id, turn_id = await begin(client, text, **config)

    async def listens() -> bool:
        return (await client.turn(session_id, turn_id)).accepts_messages

    await poll(listens, interval=0.01)
    return session_id, turn_id


def fates(events: list[EventView]) -> dict[str, dict[str, dict[str, Any]]]:
    """By message, in order of admission: what each of its events says, by kind."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for event in events:
        if event.kind.startswith("message."):
            message = found.setdefault(str(event.data["message_id"]), {})
            assert event.kind not in message, "every kind once"
            message[event.kind.removeprefix("message.")] = dict(event.data)
    return found


async def test_s31_s33_an_interrupt_leaves_no_message_open(client: Client) -> None:
    session_id, turn_id = await listening(client, "listen-slow 60 0.3")
    receipts = [await client.send(session_id, turn_id, f"note {n}") for n in range(10)]
    await poll(lambda: _started(client, session_id, 3), interval=0.01)
    await client.interrupt_turn(session_id, turn_id)
    turn = await settled(client, session_id, turn_id)
    events = await timeline(client, session_id)
    assert_gapless(events)
    messages = fates(events)
    assert list(messages) == [receipt.message_id for receipt in receipts]
    assert [receipt.event_sequence for receipt in receipts] == [
        event.sequence for event in events if event.kind == "message.admitted"
    ]
    heard = [m for m in messages.values() if "delivered" in m]
    cut = [m for m in messages.values() if "started" in m and "delivered" not in m]
    waiting = [m for m in messages.values() if "started" not in m]
    assert (len(heard), len(cut), len(waiting)) == (2, 1, 7)
    assert list(messages.values()) == heard + cut + waiting, "in order"
    assert {m["rejected"]["reason"] for m in cut + waiting} == {"turn_stopped"}
    assert [m["rejected"].get("outcome") for m in cut + waiting] == ["unknown"] + [None] * 7
    assert output(turn) == "heard: note 0\nheard: note 1\n"
    assert kinds(events)[-8:] == ["message.rejected"] * 7 + ["turn.interrupted"]


async def _started(client: Client, session_id: str, number: int) -> bool:
    return len((await client.events(session_id, kinds=["message.started"])).records) >= number


async def test_s31_many_at_once_are_handled_in_the_order_of_their_admission(client: Client) -> None:
    session_id, turn_id = await listening(client, "listen 60")
    await asyncio.gather(*(client.send(session_id, turn_id, f"note {n}") for n in range(60)))
    await client.send(session_id, turn_id, "done")
    assert (await settled(client, session_id, turn_id)).status == "completed"
    events = await timeline(client, session_id)
    admitted, started, delivered = (
        [event.data["message_id"] for event in events if event.kind == f"message.{kind}"]
        for kind in ("admitted", "started", "delivered")
    )
    assert admitted == started == delivered
    assert len(admitted) == 61
    settles = [event.kind for event in events if event.kind in ("message.started", "message.delivered")]
    assert settles == ["message.started", "message.delivered"] * 61, "one at a time"


async def test_s30_to_whom_a_message_may_be_sent(client: Client) -> None:
    session_id, done = await begin(client, "say hi")
    await settled(client, session_id, done)
    running, queued = await enqueue(client, session_id, "sleep 60", "return 3")
    await poll(lambda: _runs(client, session_id, running))
    for target, code in (
        (done, "turn_not_running"),
        (running, "turn_not_accepting_messages"),
        (queued, "turn_not_running"),
        ("trn_00000000", "turn_not_found"),
        ("nonsense", "turn_not_found"),
    ):
        assert await refused(client.send(session_id, target, "psst")) == code
    with pytest.raises(Problem) as caught:
        await client.send(session_id, running, "")
    assert (caught.value.status, caught.value.code) == (422, "empty_input")
    assert not [e for e in await timeline(client, session_id) if e.kind.startswith("message.")]
    await client.cancel(session_id)


async def _runs(client: Client, session_id: str, turn_id: str) -> bool:
    return (await client.session(session_id)).running_turn_id == turn_id


async def test_s30_the_fallback_makes_it_a_turn_under_the_same_key(client: Client) -> None:
    session_id, turn_id = await begin_running(client, "sleep 60")
    first, again = [
        await client.send(session_id, turn_id, "return 7", fallback="enqueue", idempotency_key="k")
        for _ in range(2)
    ]
    assert (first.status, first.message_id, first.sequence) == ("accepted", None, 2)
    assert again == first.but(replay=True)
    other = client.send(session_id, turn_id, "return 8", fallback="enqueue", idempotency_key="k")
    assert await refused(other) == "idempotency_conflict"
    plain = client.send(session_id, turn_id, "return 7", idempotency_key="k")
    assert await refused(plain) == "idempotency_conflict"
    receipt = await client.receipt(session_id, first.request_id)
    assert (receipt.turn_id, receipt.sequence) == (first.turn_id, 2)
    await client.interrupt_turn(session_id, turn_id)
    assert first.turn_id
    assert (await settled(client, session_id, first.turn_id)).result == 7
    session = await client.session(session_id)
    assert (session.turns_admitted, session.admission_tokens) == (2, 2)


async def test_s32_what_a_handler_raises_rejects_that_message_alone(client: Client) -> None:
    session_id, turn_id = await listening(client, "listen 60")
    texts = ("reject: not now", "boom", "fine", "done")
    sent = [await client.send(session_id, turn_id, text) for text in texts]
    turn = await settled(client, session_id, turn_id)
    assert (turn.status, output(turn)) == ("completed", "heard: fine\nheard: done\n")
    messages = fates(await timeline(client, session_id))
    assert list(messages) == [receipt.message_id for receipt in sent]
    rejected, failed, *delivered = messages.values()
    assert rejected["rejected"]["reason"] == "reject: not now"
    assert (failed["rejected"]["reason"], failed["rejected"]["detail"]) == (
        "handler_failed",
        "RuntimeError: boom",
    )
    assert all("delivered" in message for message in delivered)


async def test_s33_who_returns_finishes_what_has_started_and_no_more(client: Client) -> None:
    session_id, turn_id = await listening(client, "listen-slow 60 3\nreturn 1")
    for text in ("one", "leave", "three"):
        await client.send(session_id, turn_id, text)
    turn = await settled(client, session_id, turn_id)
    assert (turn.status, turn.result, output(turn)) == ("completed", 1, "heard: one\nheard: leave\n")
    messages = list(fates(await timeline(client, session_id)).values())
    assert ["delivered" in message for message in messages] == [True, True, False]
    assert messages[2]["rejected"]["reason"] == "turn_settling"
    assert "started" not in messages[2]


async def test_s34_messages_are_admitted_while_closing(client: Client) -> None:
    session_id, turn_id = await listening(client, "listen 60\nsleep 60")
    await client.close(session_id)
    assert (await client.send(session_id, turn_id, "done")).session_status == "closing"
    heard = await poll(lambda: _output(client, session_id, turn_id))
    assert heard == "heard: done\n"
    assert (await client.send(session_id, turn_id, "more", fallback="enqueue")).message_id
    await client.interrupt_turn(session_id, turn_id)
    await settled(client, session_id, turn_id)
    assert await refused(client.send(session_id, turn_id, "late")) == "session_closed"
    assert await refused(client.send(session_id, "trn_00000000", "late")) == "turn_not_found"
    deaf, running = await begin_running(client, "sleep 60")
    await client.close(deaf)
    assert await refused(client.send(deaf, running, "x", fallback="enqueue")) == "session_closing"
    await client.cancel(deaf)


async def _output(client: Client, session_id: str, turn_id: str) -> str:
    return output(await client.turn(session_id, turn_id))


async def test_s34_a_message_does_not_answer_a_question(client: Client) -> None:
    session_id, turn_id = await begin_running(client, "listen 0.1\nask Sure?")
    await poll(lambda: client.asks(session_id))
    await client.send(session_id, turn_id, "yes")
    await poll(lambda: _output(client, session_id, turn_id))
    (ask,) = await client.asks(session_id)
    assert ask.status == "pending"
    await client.answer(session_id, turn_id, ask.id, text="no")
    assert output(await settled(client, session_id, turn_id)) == "heard: yes\nanswer: no\n"


async def around_the_end(client: Client, rounds: int, seed: int = 1) -> Counter[str]:
    """Sends from a Turn's admission until after its return; checks and counts what became of each."""
    dice = random.Random(seed)
    seen = Counter[str]()

    async def sent(session_id: str, turn_id: str, number: int, fallback: Any) -> ReceiptView | Problem:
        text, key = f"return {number}", f"n{number}"
        try:
            return await client.send(session_id, turn_id, text, fallback=fallback, idempotency_key=key)
        except Problem as problem:
            return problem

    async def round(number: int) -> None:
        session_id, turn_id = await begin(client, f"listen {dice.uniform(0.1, 0.4):.3f}")
        fallback = dice.choice((None, "enqueue"))
        answers = list[ReceiptView | Problem]()
        while not answers or (await client.turn(session_id, turn_id)).ended_at is None:
            answers.append(await sent(session_id, turn_id, len(answers), fallback))
            await asyncio.sleep(dice.uniform(0, 0.02))
        answers.append(await sent(session_id, turn_id, len(answers), fallback))
        events = await timeline(client, session_id)
        assert_gapless(events)
        messages = fates(events)
        queued = [event.turn_id for event in events if event.kind == "turn.queued"][1:]
        for answer in answers:
            if isinstance(answer, Problem):
                assert (answer.status, fallback) == (409, None)
                assert answer.code in ("turn_not_running", "turn_not_accepting_messages")
                seen[answer.code] += 1
            elif answer.message_id is None:
                assert fallback == "enqueue"
                queued.remove(answer.turn_id)
                seen["enqueued"] += 1
            else:
                assert answer.turn_id == turn_id
                fate = messages.pop(answer.message_id)
                assert ("delivered" in fate) != ("rejected" in fate)
                assert fate.get("rejected", {}).get("reason", "turn_settling") == "turn_settling"
                seen["delivered" if "delivered" in fate else "settling"] += 1
        assert (queued, messages) == ([], {}), "one Turn or one message each: none more"
        end = one([e for e in events if e.turn_id == turn_id], "turn.completed")
        assert all(e.sequence < end.sequence for e in events if e.kind.startswith("message."))
        await client.cancel(session_id)

    for number in range(0, rounds, 4):
        await asyncio.gather(*map(round, range(number, min(number + 4, rounds))))
    return seen


async def test_s30_s33_around_a_turns_return_nothing_is_lost_or_doubled(client: Client) -> None:
    seen = await around_the_end(client, ROUNDS)
    assert seen.total() >= 2 * ROUNDS
