"""`turnhold dev`: starts, stops cleanly, goes on where it was, and never leaves anything behind."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness import assert_gapless, poll, settled, timeline
from turnhold.cli.children import free_port
from turnhold.client import Client


class Dev:
    """A `turnhold dev` and the addresses that it printed."""

    def __init__(self, process: Process, addresses: dict[str, str]) -> None:
        self.process = process
        self.api_url = addresses["API"]
        self.addresses = addresses

    async def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        async with asyncio.timeout(40):
            return await self.process.wait()


def spawn(data: Path, *arguments: str, settings: dict[str, str] | None = None, stderr: int = DEVNULL):
    outside = {name: value for name, value in os.environ.items() if not name.startswith("TURNHOLD_")}
    ports = ("--port", "0", "--temporal-port", "0", "--ui-port", "0")
    return asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("turnhold"), "dev", "--data", data, *ports, *arguments),
        env={**outside, **(settings or {})},
        cwd=data.parent,
        stdout=PIPE,
        stderr=stderr,
    )


@asynccontextmanager
async def dev(data: Path, *arguments: str, settings: dict[str, str] | None = None) -> AsyncIterator[Dev]:
    process = await spawn(data, *arguments, settings=settings)
    try:
        addresses: dict[str, str] = {}
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while "logs" not in addresses:
                line = (await process.stdout.readline()).decode()
                assert line, "dev ended before it was ready"
                name, _, value = line.strip().partition("  ")
                addresses[name.strip()] = value.strip()
        yield Dev(process, addresses)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def processes_of(data: Path) -> list[str]:
    """Processes that have this folder in their environment or command line (Linux)."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if str(data).encode() in words and state != "Z":
            found.append(folder.name)
    return found


async def test_dev_goes_on_where_it_was(tmp_path: Path):
    data = tmp_path / "data"
    async with dev(data) as first, Client(first.api_url) as client:
        session = (await client.create_session("script", input="set city Lisbon", key="kept")).session.id
        await settled(client, session, (await client.list_turns(session)).turns[0].id)
        before = await timeline(client, session)
        assert await first.stop() == 0
    assert processes_of(data) == []
    async with dev(data) as second, Client(second.api_url) as client:
        assert (await client.lookup("script", "kept")).id == session
        receipt = await client.enqueue(session, "get city")
        assert receipt.turn_id is not None
        turn = await settled(client, session, receipt.turn_id)
        assert turn.output is not None
        assert turn.output[0].model_dump()["text"] == "city: Lisbon\n"
        after = await timeline(client, session)
        assert_gapless(after)
        assert after[: len(before)] == before
        assert await second.stop(signal.SIGTERM) == 0
    assert processes_of(data) == []


async def test_dev_starts_a_part_that_died_again(tmp_path: Path):
    data = tmp_path / "data"
    async with dev(data) as running, Client(running.api_url) as client:
        session = (await client.create_session("script", input="set city Lisbon")).session.id
        await settled(client, session, (await client.list_turns(session)).turns[0].id)
        for part in ("worker", "api", "start-dev"):
            (pid,) = [p for p in processes_of(data) if part in cmdline(p)]
            os.kill(int(pid), signal.SIGKILL)
            await poll(lambda part=part, pid=pid: started_again(data, part, pid), what=f"{part} again")
        receipt = await poll(lambda: client.enqueue(session, "get city"), what="an enqueue")
        turn = await poll(lambda: settled(client, session, receipt.turn_id or ""), what="the Turn")
        assert turn.status == "completed"
        assert await running.stop() == 0
    assert processes_of(data) == []


def cmdline(pid: str) -> list[str]:
    try:
        return (Path("/proc") / pid / "cmdline").read_text().split("\0")
    except OSError:
        return []


def started_again(data: Path, part: str, pid: str) -> bool:
    return any(part in cmdline(p) for p in processes_of(data) if p != pid)


async def test_a_second_dev_in_the_same_folder_says_so_in_one_line(tmp_path: Path):
    data = tmp_path / "data"
    async with dev(data) as running:
        process = await spawn(data, stderr=PIPE)
        async with asyncio.timeout(30):
            out, err = await process.communicate()
        assert (process.returncode, out) == (1, b"")
        assert b"in use by another running stack" in err
        assert len(err.splitlines()) == 1
        assert await running.stop() == 0


async def test_a_killed_dev_leaves_nobody_behind(tmp_path: Path):
    if sys.platform != "linux":
        pytest.skip("the kernel's help is Linux's")
    data = tmp_path / "data"
    async with dev(data, "--workers", "2") as running:
        assert len(processes_of(data)) >= 5
        running.process.kill()
        await running.process.wait()
        await poll(lambda: not processes_of(data), deadline=10, what="the end of every child")


async def test_a_worker_that_cannot_load_its_agents_is_shown_with_its_reason(tmp_path: Path):
    process = await spawn(tmp_path / "data", settings={"TURNHOLD_AGENTS": "no_such_agents"}, stderr=PIPE)
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    assert process.returncode == 1
    assert b"no_such_agents" in err
    assert b"Traceback" not in err
    assert processes_of(tmp_path / "data") == []


async def test_agents_are_found_in_the_working_directory(tmp_path: Path):
    (tmp_path / "my_agents.py").write_text(
        "from turnhold import Context, Turn, agent\n\n\n"
        "@agent('echo')\n"
        "async def echo(turn: Turn, ctx: Context):\n"
        "    await turn.output.write(turn.text)\n"
    )
    async with (
        dev(tmp_path / "data", settings={"TURNHOLD_AGENTS": "my_agents"}) as running,
        Client(running.api_url) as client,
    ):
        assert {agent.name for agent in await client.agents()} == {"echo", "script"}
        created = await client.create_session("echo", input="hello")
        assert created.turn is not None
        turn = await settled(client, created.session.id, created.turn.id)
        assert (turn.status, turn.output and turn.output[0].model_dump()["text"]) == ("completed", "hello")
        assert await running.stop() == 0


async def test_dev_prints_where_everything_is_and_it_is_there(tmp_path: Path):
    import httpx2

    port = free_port(set())
    async with dev(tmp_path / "data", "--port", str(port)) as running:
        assert running.api_url == f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(trust_env=False) as http:
            assert (await http.get(running.addresses["docs"])).status_code == 200
            assert (await http.get(running.addresses["Temporal UI"])).status_code == 200
        assert await running.stop() == 0
