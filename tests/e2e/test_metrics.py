"""What a worker's metrics say of Sessions."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.harness import poll, settled
from turnhold.cli.children import free_port
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client, Problem
from turnhold.session import limits

RUN_EVENTS = 60
"""After so many events the server suggests to continue as new."""

PORT = free_port(set())
LABELS = {"namespace", "service_name", "task_queue", "workflow_type", "agent", "le"}
RUNS = "turnhold_run_history_events", "turnhold_run_history_bytes", "turnhold_run_signals"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    server = {"limit.historyCount.suggestContinueAsNew": RUN_EVENTS}
    with Stack(Plan(tmp_path, server=server, settings={"TURNHOLD_METRICS_PORT": str(PORT)})) as running:
        yield running


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    async with Client(stack.api_url) as opened:
        yield opened


async def samples(prefix: str) -> list[Sample]:
    async with httpx2.AsyncClient(trust_env=False) as http:
        text = (await http.get(f"http://127.0.0.1:{PORT}/metrics")).text
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return [sample for sample in found if sample.name.startswith(prefix)]


async def value(name: str) -> float:
    return sum(sample.value for sample in await samples(name) if sample.name == name)


async def test_s95_runs_tell_how_much_of_their_walls_they_used(client: Client) -> None:
    session_id = (await client.create_session("script")).session.id
    for number in range(30):
        receipt = await client.enqueue(session_id, f"return {number}")
        await settled(client, session_id, receipt.turn_id or "")

    async def ended() -> float:
        return await value("turnhold_run_history_events_count")

    runs = await poll(ended, what="the end of a run")
    for name, at_least in zip(RUNS, (RUN_EVENTS, 4_096, 3), strict=True):
        assert await value(f"{name}_count") == runs
        assert await value(f"{name}_sum") >= at_least * runs, name
    assert await value("turnhold_run_signals_sum") <= 31
    assert 1_000 * runs < await value("turnhold_session_state_bytes_sum") < 100_000 * runs

    await client.close(session_id)
    await poll(lambda: one_more(runs), what="the end of the last run")
    bounds = {
        "turnhold_run_history_events": limits.RUN_EVENTS,
        "turnhold_run_history_bytes": limits.RUN_BYTES,
        "turnhold_run_signals": limits.RUN_SIGNALS,
        "turnhold_session_state_bytes": limits.CARRIED_BYTES,
    }
    for name, wall in bounds.items():
        found = await samples(name)
        assert {sample.labels["agent"] for sample in found} == {"script"}
        assert {label for sample in found for label in sample.labels} <= LABELS
        buckets = sorted(float(sample.labels["le"]) for sample in found if "le" in sample.labels)
        assert buckets[-2:] == [wall, float("inf")]


async def one_more(runs: float) -> bool:
    return await value("turnhold_run_history_events_count") == runs + 1


async def test_refused_commands_are_counted_by_their_code(client: Client) -> None:
    session_id = (await client.create_session("script", config={"queue_limit": 1})).session.id
    await client.interrupt(session_id)
    await client.enqueue(session_id, "ok")
    for _ in range(2):
        with pytest.raises(Problem) as refused:
            await client.enqueue(session_id, "ok")
        assert refused.value.code == "queue_full"
    counted = await samples("turnhold_commands_refused")
    assert [(sample.labels["code"], sample.value) for sample in counted] == [("queue_full", 2)]
