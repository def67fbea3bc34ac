"""What people said and were asked, while workers, the API and Temporal die and come back.

Workflows and Processes have workers of their own here, so that either can be away alone.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from tests.harness import assert_gapless, poll, settled_after_fault, timeline
from turnhold.cli.children import Child
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client, Problem
from turnhold.session.values import text_of
from turnhold.session.views import AskView, ReceiptView


@dataclass
class Parts:
    """A stack whose workers are told apart."""

    stack: Stack
    workflow: Child
    host: Child

    def start_workflow(self) -> None:
        self.workflow = self.stack.start_worker({"TURNHOLD_ROLES": "workflow"})

    def start_host(self) -> None:
        self.host = self.stack.start_worker({"TURNHOLD_ROLES": "host"})


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    settings = {"TURNHOLD_ROLES": "workflow", "TURNHOLD_RECEIPT_TIMEOUT": "1"}
    with Stack(Plan(tmp_path_factory.mktemp("people"), durable=True, settings=settings)) as stack:
        made = Parts(stack, stack.workers[0], stack.start_worker({"TURNHOLD_ROLES": "host"}))
        yield made
        made.host.kill()  # asked to stop, it would wait for Sessions that nobody runs by then


@pytest.fixture
async def client(parts: Parts) -> AsyncIterator[Client]:
    async with Client(parts.stack.api_url) as opened:
        yield opened


async def asked(client: Client, text: str) -> tuple[str, AskView]:
    created = await client.create_session("script", input=text)

    async def question() -> AskView | None:
        return next(iter(await client.asks(created.session.id, status="pending")), None)

    return created.session.id, await poll(question)


async def judged(client: Client, session_id: str, receipt: ReceiptView) -> ReceiptView:
    async def found() -> ReceiptView | None:
        now = await client.receipt(session_id, receipt.request_id)
        return None if now.status == "pending" else now

    return await poll(found, deadline=60, what="the outcome")


async def test_s43_what_is_said_while_no_workflow_worker_runs_is_kept_and_delivered(
    parts: Parts, client: Client
) -> None:
    session_id, ask = await asked(client, "listen 0.1\nask Well?\nlisten-slow 0 0")
    parts.workflow.kill()
    message = await client.send(session_id, ask.turn_id, "hear this")
    answer = await client.answer(session_id, ask.turn_id, ask.id, text="kept")
    assert (message.status, answer.status) == ("pending", "pending")
    parts.start_workflow()
    assert (await judged(client, session_id, message)).message_id
    assert (await judged(client, session_id, answer)).ask_id == ask.id
    turn = await settled_after_fault(client, session_id, ask.turn_id)
    assert "answer: kept\n" in text_of(turn.output or ())


async def test_s43_an_answer_to_a_host_that_is_gone_is_settled(parts: Parts, client: Client) -> None:
    session_id, ask = await asked(client, "ask Well?")
    parts.workflow.kill()
    parts.host.kill()
    answer = await client.answer(session_id, ask.turn_id, ask.id, text="too late")
    assert answer.status == "pending"
    parts.start_workflow()
    parts.start_host()
    outcome = await judged(client, session_id, answer)
    assert outcome.rejection is not None
    assert outcome.rejection.code == "ask_settled"
    turn = await settled_after_fault(client, session_id, ask.turn_id)
    assert (turn.status, turn.reason) == ("interrupted", "execution_lost")
    asks = [e for e in await timeline(client, session_id) if e.kind.startswith("ask.")]
    assert [e.kind for e in asks] == ["ask.created", "ask.cancelled"]
    assert asks[-1].data["reason"] == "execution_lost"


async def test_s42_a_question_dies_with_its_worker_and_the_session_goes_on(
    parts: Parts, client: Client
) -> None:
    session_id, ask = await asked(client, "ask Well?")
    parts.host.kill()
    parts.start_host()
    after = await client.enqueue(session_id, "say on")

    async def cancelled() -> bool:
        return (await client.ask(session_id, ask.turn_id, ask.id)).status == "cancelled"

    await poll(cancelled, deadline=60)
    with pytest.raises(Problem) as caught:
        await client.answer(session_id, ask.turn_id, ask.id, text="too late")
    assert (caught.value.status, caught.value.code) == (409, "ask_settled")
    turn = await settled_after_fault(client, session_id, after.turn_id or "")
    assert text_of(turn.output or ()) == "on\n"
    events = await timeline(client, session_id)
    assert_gapless(events)
    ends = [e.kind for e in events if e.turn_id == ask.turn_id or e.kind == "session.process_failed"]
    assert ends[-3:] == ["ask.cancelled", "turn.interrupted", "session.process_failed"]


async def test_s25_a_host_that_stops_still_hears_people(parts: Parts, client: Client) -> None:
    session_id, ask = await asked(client, "listen 0.1\nask Well?")
    leaving = parts.host
    parts.start_host()
    leaving.terminate()
    await poll(lambda: "worker stops" in leaving.output(), interval=0.01)
    message = await client.send(session_id, ask.turn_id, "still there?")
    await client.answer(session_id, ask.turn_id, ask.id, text="in time")
    turn = await settled_after_fault(client, session_id, ask.turn_id)
    assert (turn.status, text_of(turn.output or ())) == (
        "completed",
        "heard: still there?\nanswer: in time\n",
    )
    assert message.message_id


async def test_s43_a_question_outlives_the_api_and_temporal(parts: Parts, client: Client) -> None:
    session_id, ask = await asked(client, "ask Well?")
    stack = parts.stack
    assert stack.temporal is not None
    assert stack.api is not None
    stack.temporal.kill()
    stack.api.kill()
    stack.start_temporal()
    stack.start_api()

    async def question() -> tuple[AskView, ...]:
        return await client.asks(session_id, status="pending")

    assert await poll(question, deadline=60) == (ask,)

    async def answer() -> ReceiptView:
        return await client.answer(session_id, ask.turn_id, ask.id, text="here", idempotency_key="k")

    await poll(answer, deadline=60)
    turn = await settled_after_fault(client, session_id, ask.turn_id)
    assert (turn.status, text_of(turn.output or ())) == ("completed", "answer: here\n")
