"""The timeline over real HTTP: pages, streams, rejoining."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.harness import assert_gapless, poll, settled, timeline
from turnhold.cli.stack import Stack
from turnhold.client import Client

STREAM = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
async def http(stack: Stack) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=stack.api_url, timeout=70, trust_env=False) as opened:
        yield opened


class Viewer:
    """Reads a stream as a browser would."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.ended = False

    @property
    def sequences(self) -> list[int]:
        return [event["sequence"] for event in self.events]

    async def follow(self, response: httpx2.Response) -> None:
        fields: dict[str, str] = {}
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if line == "" and "data" in fields:
                record = json.loads(fields["data"])
                assert (int(fields["id"]), fields["event"]) == (record["sequence"], record["kind"])
                self.events.append(record)
            fields = {} if line == "" else fields | {name: value}
        self.ended = True


@asynccontextmanager
async def viewing(
    http: httpx2.AsyncClient, session_id: str, headers: dict[str, str] | None = None, query: str = ""
) -> AsyncIterator[Viewer]:
    viewer = Viewer()
    path = f"/v1/sessions/{session_id}/events{query}"
    async with http.stream("GET", path, headers=STREAM | (headers or {})) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert (response.headers["cache-control"], response.headers["x-accel-buffering"]) == (
            "no-cache",
            "no",
        )
        task = asyncio.create_task(viewer.follow(response))
        try:
            yield viewer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_s81_a_stream_cut_and_rejoined_misses_nothing_and_doubles_nothing(
    http: httpx2.AsyncClient, client: Client
) -> None:
    session_id = (await client.create_session("script", input="emit 20 100 50")).session.id
    async with viewing(http, session_id) as first:
        await poll(lambda: len(first.events) >= 6)
    cut = first.sequences[-1]
    async with viewing(http, session_id, {"Last-Event-ID": str(cut)}, "?after=1") as second:
        for number in range(4):
            await client.enqueue(session_id, f"say {number}")
        await client.close(session_id)
        await poll(lambda: second.ended)
    everything = await timeline(client, session_id)
    assert_gapless(everything)
    assert first.sequences + second.sequences == [event.sequence for event in everything]
    assert first.events + second.events == [event.model_dump(mode="json") for event in everything]
    assert everything[-1].kind == "session.closed"


async def test_every_viewer_sees_the_same_order(http: httpx2.AsyncClient, client: Client) -> None:
    session_id = (await client.create_session("script", input="emit 30 200 20")).session.id
    async with (
        viewing(http, session_id) as one,
        viewing(http, session_id) as two,
        viewing(http, session_id, query="?after=3") as three,
    ):
        await poll(lambda: len(one.events) > 5)
        async with viewing(http, session_id) as late:
            await client.close(session_id)
            await poll(lambda: all(viewer.ended for viewer in (one, two, three, late)))
    assert one.events == two.events == late.events == one.events[:3] + three.events


async def test_a_stream_of_a_closed_session_gives_all_and_ends(
    http: httpx2.AsyncClient, client: Client
) -> None:
    made = await client.create_session("script", input="say hi")
    await client.close(made.session.id)
    async with viewing(http, made.session.id) as viewer:
        await poll(lambda: viewer.ended)
    assert_gapless(await timeline(client, made.session.id))
    assert viewer.events[-1]["kind"] == "session.closed"
    async with viewing(http, made.session.id, {"Last-Event-ID": str(viewer.sequences[-1])}) as again:
        await poll(lambda: again.ended)
    assert again.events == []


async def test_a_stream_can_be_of_some_kinds(http: httpx2.AsyncClient, client: Client) -> None:
    made = await client.create_session("script", input="say hi")
    await client.close(made.session.id)
    async with viewing(http, made.session.id, query="?kind=turn.queued&kind=session.closed") as viewer:
        await poll(lambda: viewer.ended)
    assert [event["kind"] for event in viewer.events] == ["turn.queued", "session.closed"]


async def test_a_stream_that_cannot_begin_is_a_problem(http: httpx2.AsyncClient, client: Client) -> None:
    session_id = (await client.create_session("script")).session.id
    unknown = session_id[:-2] + ("aa" if not session_id.endswith("aa") else "bb")
    answer = await http.get(f"/v1/sessions/{unknown}/events", headers=STREAM)
    assert (answer.status_code, answer.json()["code"]) == (404, "session_not_found")
    answer = await http.get(f"/v1/sessions/{session_id}/events", headers=STREAM | {"Last-Event-ID": "x"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


async def test_s80_pages_follow_each_other(http: httpx2.AsyncClient, client: Client) -> None:
    made = await client.create_session("script", input="emit 50 100 5")
    assert made.turn is not None
    await settled(client, made.session.id, made.turn.id)
    path, after, seen = f"/v1/sessions/{made.session.id}/events", 0, list[int]()
    more = True
    while more:
        page = (await http.get(path, params={"after": after, "limit": 2})).json()
        assert 0 < len(page["records"]) <= 2
        seen += [record["sequence"] for record in page["records"]]
        after, more = page["next_after"], page["has_more"]
    assert seen == list(range(1, len(seen) + 1))
    empty = (await http.get(path, params={"after": after})).json()
    assert empty == {"records": [], "next_after": after, "has_more": False, "retained_after": 0}
