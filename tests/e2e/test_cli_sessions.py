"""The command line as its users run it: a program of its own, against a real server."""

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import poll
from turnhold.cli.stack import Stack
from turnhold.client import Client

Command = Callable[..., Awaitable[tuple[int, str, str]]]


def start(url: str, *arguments: str) -> Awaitable[Process]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("TURNHOLD_")}
    return asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("turnhold"),
        *arguments,
        env={**outside, "TURNHOLD_URL": url},
        stdout=PIPE,
        stderr=PIPE,
    )


async def finish(process: Process) -> tuple[int, str, str]:
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
def turnhold(stack: Stack) -> Command:
    async def run(*arguments: str) -> tuple[int, str, str]:
        return await finish(await start(stack.api_url, *arguments))

    return run


async def created(turnhold: Command, *arguments: str) -> dict[str, Any]:
    code, out, err = await turnhold("session", "create", "script", "--json", *arguments)
    assert (code, err) == (0, "")
    return json.loads(out)


async def test_create_and_follow_prints_the_output_and_nothing_else_on_stdout(turnhold: Command):
    text = "say one\nsay two\nrespond All said.\nreturn 42"
    code, out, err = await turnhold("session", "create", "script", "--text", text, "--follow")
    assert (code, out) == (0, "one\ntwo\nAll said.\n")
    assert "turn.completed" in err
    assert re.match(r"session ses_[0-9a-z]+\n", err), "the ID comes first: what follows may be cut off"


async def test_who_follows_a_session_that_gets_held_is_told_how_it_goes_on(stack: Stack, client: Client):
    process = await start(
        stack.api_url,
        *("session", "create", "script", "--metadata", "fail_init=3", "--text", "say on", "--follow"),
    )
    assert process.stderr is not None
    said = ""
    async with asyncio.timeout(60):
        while not (held := re.search(r"session resume (ses_\w+) --hold (hld_\w+)", said)):
            line = (await process.stderr.readline()).decode()
            assert line, said
            said += line
    await client.resume(held[1], held[2])
    code, out, _ = await finish(process)
    assert (code, out) == (0, "on\n")


async def test_who_follows_a_turn_whose_process_dies_is_told_why(turnhold: Command):
    code, _, err = await turnhold("session", "create", "script", "--text", "crash", "--follow")
    assert code == 0
    assert "detail=The Process exited with crash." in err


async def test_s3_the_same_command_twice_makes_one_session(turnhold: Command):
    arguments = ("--text", "say x", "--idempotency-key", f"twice-{os.getpid()}")
    first, second = await created(turnhold, *arguments), await created(turnhold, *arguments)
    assert first["session"]["id"] == second["session"]["id"]
    code, out, _ = await turnhold("session", "create", "script", *arguments)
    assert code == 0
    assert "exact retry" in out


async def test_a_conversation_by_hand(turnhold: Command):
    session = (await created(turnhold))["session"]["id"]
    code, out, _ = await turnhold("session", "enqueue", session, "--text", "say hi\nrespond done", "--json")
    assert code == 0
    receipt = json.loads(out)
    assert (receipt["status"], receipt["sequence"]) == ("accepted", 1)
    code, out, _ = await turnhold("session", "turn", "wait", session, receipt["turn_id"], "--json")
    assert (code, json.loads(out)["status"]) == (0, "completed")
    code, out, _ = await turnhold("session", "turn", "get", session, receipt["turn_id"])
    assert code == 0
    assert out.splitlines()[-1] == "hi"
    code, out, _ = await turnhold("session", "enqueue", session, "--text", "say more", "--follow")
    assert (code, out) == (0, "more\n")
    code, out, _ = await turnhold("session", "close", session)
    assert (code, out.split()[0]) == (0, "session")
    code, out, _ = await turnhold("session", "attach", session)
    assert (code, out) == (0, "hi\ndone\nmore\n")
    code, out, _ = await turnhold("session", "events", session, "--jsonl")
    assert code == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["kind"] == "session.closed"
    code, out, _ = await turnhold("session", "events", session, "--since", str(len(events) - 1))
    assert "session.closed" in out
    code, _, err = await turnhold("session", "enqueue", session, "--text", "too late")
    assert code == 1
    assert err.startswith("error: session_closed: ")


async def test_ls_lists_it(turnhold: Command, client: Client):
    session = (await created(turnhold, "--key", f"ls-{os.getpid()}"))["session"]["id"]

    async def listed() -> bool:
        page = await client.list_sessions(limit=100)
        return session in [row.id for row in page.sessions]

    await poll(listed, what="the Session in the list")
    code, out, _ = await turnhold("session", "ls", "--limit", "100")
    assert code == 0
    assert any(line.startswith(f"{session}  script") for line in out.splitlines())


async def test_s23_s52_a_held_session_says_how_it_goes_on_and_resume_all_does_it(
    turnhold: Command, client: Client
):
    session = (await created(turnhold, "--metadata", "fail_init=3", "--text", "say up"))["session"]["id"]

    async def held() -> bool:
        return bool((await client.session(session)).holds)

    await poll(held, what="the hold")
    code, out, _ = await turnhold("session", "get", session)
    assert code == 0
    command = next(line for line in out.splitlines() if "turnhold session resume" in line).split()[1:]
    code, out, _ = await turnhold("session", "resume", session, "--all")
    assert (code, out) == (0, f"released {command[-1]}\n")
    code, _, err = await turnhold(*command)
    assert code == 1
    assert err.startswith("error: hold_not_found: ")
    turn = (await client.list_turns(session)).turns[0]
    assert (await client.wait_turn(session, turn.id, patience=30)).status == "completed"


async def test_s81_attach_ends_on_ctrl_c_with_the_command_that_goes_on(stack: Stack, client: Client):
    session = (await client.create_session("script", input="say first")).session.id
    attached = await start(stack.api_url, "session", "attach", session)
    assert attached.stdout is not None
    async with asyncio.timeout(30):
        assert await attached.stdout.readline() == b"first\n"
    attached.send_signal(signal.SIGINT)
    code, out, err = await finish(attached)
    assert (code, out) == (130, "")
    again = err.splitlines()[-1].removeprefix("to go on: turnhold ").split()
    assert again[:4] == ["session", "attach", session, "--since"]
    await client.enqueue(session, "say second")
    await client.close(session)
    code, out, _ = await finish(await start(stack.api_url, *again))
    assert (code, out) == (0, "second\n")


async def test_agents_are_listed(turnhold: Command):
    code, out, _ = await turnhold("agents")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["AGENT", "script"]


async def test_s6_an_unknown_agent_is_refused(turnhold: Command):
    code, out, err = await turnhold("session", "create", "nobody")
    assert (code, out) == (1, "")
    assert err.startswith("error: agent_not_found: ")


async def test_setup_registers_once_and_may_be_run_again(stack: Stack):
    environment = {**os.environ, "TEMPORAL_ADDRESS": stack.temporal_address}
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("turnhold"), "setup", "--json"), env=environment, stdout=PIPE
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    document = json.loads(out)
    assert (process.returncode, document["namespace"], document["registered"]) == (0, "default", [])
    assert "TurnholdAgent" in document["present"]
