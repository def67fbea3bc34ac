"""Two versions of the workers, as real processes; an operator promotes, moves, and retires (S-4)."""

import json
import os
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import httpx2

from tests.harness import poll, running, settled, timeline
from turnhold.cli.children import Child
from turnhold.cli.stack import Stack
from turnhold.client import Client


class Operator:
    """The command line, as an operator runs it against a stack's Temporal."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def worker(self, build: str) -> Child:
        settings = {"TURNHOLD_DEPLOYMENT": "shop", "TURNHOLD_BUILD_ID": build}
        return self.stack.start_worker(settings)

    async def run(self, *arguments: str) -> tuple[int, Any, str]:
        """Exit code, the JSON document, and what was said on stderr."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith("TURNHOLD_")}
        process = await create_subprocess_exec(
            Path(sys.executable).with_name("turnhold"),
            *("deployment", *arguments, "--json"),
            env={
                **outside,
                "TURNHOLD_DEPLOYMENT": "shop",
                "TEMPORAL_ADDRESS": self.stack.temporal_address,
                "TEMPORAL_CONFIG_FILE": os.devnull,
            },
            stdout=PIPE,
            stderr=PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, json.loads(out) if out else None, err.decode()

    async def promote(self, build: str) -> None:
        """As soon as its worker is there."""

        async def done() -> bool:
            return (await self.run("promote", build))[0] == 0

        await poll(done, what=f"the promotion of {build}")


async def begin(client: Client, text: str) -> tuple[str, str]:
    made = await client.create_session("script", input=text)
    assert made.turn is not None
    return made.session.id, made.turn.id


async def say(client: Client, session_id: str, text: str) -> str:
    """What a further Turn says."""
    receipt = await client.enqueue(session_id, text)
    assert receipt.turn_id is not None
    turn = await settled(client, session_id, receipt.turn_id)
    assert turn.output is not None
    return "".join(part.text for part in turn.output if part.type == "text")


async def made_by(client: Client, session_id: str) -> list[Any]:
    """The deployments of the workers that made the Session's Processes."""
    events = await timeline(client, session_id)
    return [event.data["deployment"] for event in events if event.kind == "session.process_started"]


async def test_s4_nothing_begins_until_a_version_is_current(own_stack: Stack, own_client: Client) -> None:
    operator, client = Operator(own_stack), own_client
    own_stack.workers.pop().stop()
    worker = operator.worker("1")
    session_id, turn_id = await begin(client, "say hi")
    await poll(lambda: "no version of shop is current" in worker.output(), what="the worker's own word")

    async def told() -> bool:
        (cause,) = (await client.explain(session_id)).causes
        assert cause.code == "no_worker"
        return "No version of the workers is current" in cause.message

    await poll(told)
    async with httpx2.AsyncClient(base_url=own_stack.api_url, trust_env=False) as http:
        answer = await http.get("/readyz")
        assert (answer.status_code, "shop:1" in answer.json()["detail"]) == (503, True)
        code, listed, _ = await operator.run("ls")
        assert (code, listed["current"], listed["versions"][0]["current"]) == (0, None, False)
        code, _, said = await operator.run("move")
        assert (code, "promote one first" in said) == (1, True)
        code, _, said = await operator.run("promote", "7")
        assert (code, "no worker of shop:7 was ever seen" in said) == (1, True)
        await operator.promote("1")
        assert (await settled(client, session_id, turn_id)).status == "completed"
        assert (await http.get("/readyz")).status_code == 200
    assert (await client.session(session_id)).deployment == "shop:1"


async def test_s4_sessions_stay_until_they_are_moved(own_stack: Stack, own_client: Client) -> None:
    operator, client = Operator(own_stack), own_client
    own_stack.workers.pop().stop()
    old = operator.worker("1")
    await operator.promote("1")
    idle, turn_id = await begin(client, "set city Lisbon")
    await settled(client, idle, turn_id)
    busy, _ = await begin(client, "say on\nsleep 60")
    at_work = await running(client, busy)

    operator.worker("2")
    await operator.promote("2")
    new, turn_id = await begin(client, "say hi")
    await settled(client, new, turn_id)
    assert await made_by(client, new) == ["shop:2"]
    assert await say(client, idle, "epoch\nget city") == "epoch: 1\nturns: 2\ncity: Lisbon\n"
    assert [(await client.session(s)).deployment for s in (idle, busy, new)] == ["shop:1", "shop:1", "shop:2"]

    async def on_old() -> bool:
        page = await client.list_sessions(deployment="shop:1")
        return {session.id for session in page.sessions} == {idle, busy}

    await poll(on_old, what="the list of Sessions on the old version")
    code, drainage, _ = await operator.run("drain", "1")
    assert (code, drainage["open_sessions"], drainage["safe_to_retire"]) == (1, 2, False)

    code, moved, _ = await operator.run("move")
    assert code == 1, "one of them works"
    assert {row["session_id"]: row["outcome"] for row in moved["sessions"]} == {idle: "moved", busy: "busy"}
    tail = [(event.kind, event.data) for event in await timeline(client, idle)][-2:]
    assert tail == [
        ("session.process_stopped", {"process_epoch": 1, "reason": "moved"}),
        ("session.moved", {"from": "shop:1", "to": "shop:2"}),
    ]
    assert await say(client, idle, "epoch\nget city") == "epoch: 2\nturns: 1\ncity: Lisbon\n"
    assert await made_by(client, idle) == ["shop:1", "shop:2"]
    assert (await client.session(busy)).running_turn_id == at_work, "whoever works is left alone"

    await client.interrupt(busy)
    await settled(client, busy, at_work)
    code, moved, _ = await operator.run("move", busy, new)
    assert (code, [row["outcome"] for row in moved["sessions"]]) == (0, ["moved", "there"])

    async def empty() -> bool:
        return (await operator.run("drain", "1"))[0] == 0

    await poll(empty, what="the old version empty")
    old.stop()
    held = (await client.session(busy)).holds[0]
    assert held.kind == "interrupt", "a hold moves with its Session"
    await client.resume(busy, held.id)
    assert await say(client, busy, "epoch") == "epoch: 2\nturns: 1\n"
    code, listed, _ = await operator.run("ls")
    assert [
        (v["deployment"], v["current"], v["open_sessions"], v["workers"]) for v in listed["versions"]
    ] == [
        ("shop:2", True, 3, 1),
        ("shop:1", False, 0, 0),
    ]
    own_stack.workers.pop().kill()
    (cause,) = (await client.explain(idle)).causes
    assert (cause.code, "shop:2" in cause.message) == ("no_worker", True)
