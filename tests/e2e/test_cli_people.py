"""People at the command line: messages, questions and answers, prompts at a terminal, and `rpc`."""

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.e2e.test_asks import asked
from tests.e2e.test_cli_sessions import Command, finish, start, turnhold
from tests.e2e.test_controls import begin, closed, output
from tests.e2e.test_messages import listening
from tests.harness import assert_gapless, poll, settled, timeline
from turnhold.cli.stack import Stack
from turnhold.client import Client
from turnhold.session.views import EventView

__all__ = ["turnhold"]


async def test_s30_send_and_its_fallback(turnhold: Command, client: Client) -> None:
    session, turn = await listening(client, "listen 60")
    code, out, _ = await turnhold("session", "turn", "send", session, turn, "--text", "hear this")
    assert code == 0
    assert re.fullmatch(r"message msg_\w+ sent\n", out)
    code, out, _ = await turnhold("session", "turn", "send", session, turn, "--text", "done", "--json")
    receipt = json.loads(out)
    assert (code, receipt["status"], receipt["turn_id"]) == (0, "accepted", turn)
    assert receipt["message_id"]
    assert output(await settled(client, session, turn)) == "heard: hear this\nheard: done\n"
    again = ("session", "turn", "send", session, turn, "--text", "return 3")
    code, _, err = await turnhold(*again)
    assert (code, err.partition(": T")[0]) == (1, "error: turn_not_running")
    code, out, _ = await turnhold(*again, "--fallback", "enqueue")
    assert code == 0
    (queued,) = re.findall(r"turn 2 queued instead: (trn_\w+)\n", out)
    assert (await settled(client, session, queued)).result == 3


async def test_s41_ask_ls_and_answer(turnhold: Command, client: Client) -> None:
    session, turn, ask = await asked(client, "choose-many Toppings? | ham,egg,rye\nask Name?")
    code, out, _ = await turnhold("session", "ask", "ls", session)
    assert code == 0
    assert f"{ask.id}  pending  Toppings?  (any of: ham, egg, rye)" in out
    command = next(line for line in out.splitlines() if line.startswith("turnhold session ask answer"))
    words = command.removesuffix("ID").split()[1:]
    code, _, err = await turnhold(*words, "tofu")
    assert (code, err.partition(": T")[0]) == (1, "error: invalid_answer")
    code, out, _ = await turnhold(*words, "ham", "rye")
    assert (code, out) == (0, f"answered {ask.id}\n")

    async def explained() -> str | None:
        _, out, _ = await turnhold("session", "explain", session)
        return next((line for line in out.splitlines() if "--text" in line), None)

    command = await poll(explained)
    code, _, _ = await turnhold(*command.replace("…", "Ann").split()[1:])
    assert code == 0
    assert output(await settled(client, session, turn)) == "chose: ham,rye\nanswer: Ann\n"
    code, out, _ = await turnhold("session", "ask", "ls", session, "--status", "answered", "--json")
    assert [found["answer"] for found in json.loads(out)["asks"]] == [
        {"selected": ["ham", "rye"]},
        {"text": "Ann"},
    ]


class Terminal:
    """A program at a terminal: what it prints, and what is typed."""

    def __init__(self, url: str, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        outside = {name: value for name, value in os.environ.items() if not name.startswith("TURNHOLD_")}
        self._starting = asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("turnhold"),
            *arguments,
            env={**outside, "TURNHOLD_URL": url, "TERM": "dumb"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        self._theirs = theirs
        self._shown = ""
        self._seen = 0

    async def __aenter__(self) -> "Terminal":
        self.process = await self._starting
        os.close(self._theirs)
        asyncio.get_running_loop().add_reader(self._ours, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._ours)
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        os.close(self._ours)

    def _read(self) -> None:
        try:
            self._shown += os.read(self._ours, 65_536).decode().replace("\r\n", "\n")
        except OSError:  # it has ended
            asyncio.get_running_loop().remove_reader(self._ours)

    async def shows(self, text: str) -> None:
        """Waits until `text` stands behind what was waited for last."""
        await poll(lambda: text in self._shown[self._seen :], what=f"{text!r} on the screen")
        self._seen = self._shown.index(text, self._seen) + len(text)

    def type(self, line: str) -> None:
        os.write(self._ours, f"{line}\n".encode())


PROMPT = "(empty: leave it open) > "


async def test_who_follows_at_a_terminal_is_asked(stack: Stack, client: Client) -> None:
    text = "choose-many Toppings? | ham,egg,rye\nask Name?"
    arguments = ("session", "create", "script", "--text", text, "--follow")
    async with Terminal(stack.api_url, *arguments) as terminal:
        await terminal.shows("Toppings?\n  1  ham\n  2  egg\n  3  rye\nany of: ham, egg, rye " + PROMPT)
        terminal.type("1 tofu")
        await terminal.shows("there is no option tofu\nany of: ham, egg, rye " + PROMPT)
        terminal.type("rye, 1")
        await terminal.shows("chose: ham,rye\n")
        await terminal.shows("Name?\ntext " + PROMPT)
        terminal.type("Zoë")
        await terminal.shows("answer: Zoë\n")
        await terminal.shows("turn.completed")
        async with asyncio.timeout(30):
            assert await terminal.process.wait() == 0


async def test_attach_leaves_a_question_open_and_gives_way_to_others(stack: Stack, client: Client) -> None:
    session, turn, first = await asked(client, "ask First?\nask Second?")
    async with Terminal(stack.api_url, "session", "attach", session) as terminal:
        await terminal.shows("First?\ntext " + PROMPT)
        terminal.type("")
        await terminal.shows(f"left open: turnhold session ask ls {session}")
        assert (await client.ask(session, turn, first.id)).status == "pending"
        await client.answer(session, turn, first.id, text="from elsewhere")
        await terminal.shows("Second?\ntext " + PROMPT)
        (second,) = await client.asks(session, status="pending")
        await client.answer(session, turn, second.id, text="elsewhere again")
        await terminal.shows("answer: elsewhere again\n")
        await client.close(session)
        async with asyncio.timeout(30):
            assert await terminal.process.wait() == 0
    unasked = await start(stack.api_url, "session", "attach", session)
    code, out, err = await finish(unasked)
    assert (code, out) == (0, "answer: from elsewhere\nanswer: elsewhere again\n")
    assert PROMPT not in err, "no terminal, no prompt"
    async with Terminal(stack.api_url, "session", "attach", session, "--read-only") as terminal:
        await terminal.shows("session.closed")


class Rpc:
    """`turnhold rpc` as a program drives it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.events: list[EventView] = []

    def say(self, **line: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")

    async def reference(self) -> str:
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            return (await self.process.stderr.readline()).decode().removeprefix("session ").strip()

    async def next(self) -> dict[str, Any]:
        """The next response; events before it are kept."""
        assert self.process.stdout is not None
        while True:
            async with asyncio.timeout(30):
                line = await self.process.stdout.readline()
            if not line:
                return {}
            said = json.loads(line)
            if said["type"] == "response":
                return said
            assert said.pop("type") == "event"
            self.events.append(EventView.model_validate(said))

    async def until(self, kind: str) -> None:
        assert self.process.stdout is not None
        while not any(event.kind == kind for event in self.events):
            async with asyncio.timeout(30):
                said = json.loads(await self.process.stdout.readline())
            assert said.pop("type") == "event"
            self.events.append(EventView.model_validate(said))


@contextlib.asynccontextmanager
async def rpc(url: str, *arguments: str) -> AsyncIterator[Rpc]:
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("turnhold"), "rpc", "script", *arguments),
        env={**os.environ, "TURNHOLD_URL": url},
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        yield Rpc(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_rpc_drives_a_session_and_closes_it_at_the_end_of_the_input(
    stack: Stack, client: Client
) -> None:
    async with rpc(stack.api_url) as driven:
        session = await driven.reference()
        driven.say(type="steer", id="early", message="x")
        refusal = await driven.next()
        assert (refusal["id"], refusal["success"], refusal["error"]["code"]) == (
            "early",
            False,
            "turn_not_running",
        )
        driven.say(type="prompt", id=1, message="listen 60")
        made = await driven.next()
        assert (made["id"], made["command"], made["success"], made["data"]["sequence"]) == (
            1,
            "prompt",
            True,
            1,
        )
        turn = made["data"]["turn_id"]

        async def listens() -> bool:
            return (await client.turn(session, turn)).accepts_messages

        await poll(listens)
        driven.say(type="steer", id=2, message="hear this")
        assert (await driven.next())["data"]["message_id"]
        driven.say(type="follow_up", id=3, message="sleep 60")
        driven.say(type="get_state", id=4)
        assert (await driven.next())["data"]["sequence"] == 2
        assert (await driven.next())["data"]["queued_turns"] == 1
        driven.say(type="steer", id=5, message="done")
        await driven.next()
        await settled(client, session, turn)
        driven.say(type="abort", id=6)
        assert (await driven.next())["data"]["turn_id"] == (await client.list_turns(session)).turns[1].id
        driven.say(type="steer", id=7, message="say instead", fallback="enqueue")
        assert (await driven.next())["data"]["sequence"] == 3
        driven.say(type="nonsense", id=8)
        assert (await driven.next())["error"]["code"] == "invalid_request"
        driven.say(type="prompt", id=9, message="sleep 0.3\nsay last")
        assert driven.process.stdin is not None
        driven.process.stdin.write_eof()
        assert (await driven.next())["id"] == 9
        assert await driven.next() == {}
        assert await driven.process.wait() == 0
    events = await timeline(client, session)
    assert_gapless(events)
    assert driven.events == events
    assert events[-1].kind == "session.closed"
    turns = (await client.list_turns(session)).turns
    assert [turn.status for turn in turns] == ["completed", "interrupted", "completed", "completed"]


async def test_rpc_of_a_session_that_is_there_leaves_it_open(stack: Stack, client: Client) -> None:
    session, _ = await begin(client)
    async with rpc(stack.api_url, "--session", session) as driven:
        driven.say(type="prompt", id=1, message="sleep 0.3\nsay hi")
        assert driven.process.stdin is not None
        driven.process.stdin.write_eof()
        assert (await driven.next())["success"]
        assert await driven.next() == {}
        assert await driven.process.wait() == 0
        assert driven.events[-1].kind == "turn.completed"
    assert not await closed(client, session)


async def test_rpc_interrupts_and_closes_on_ctrl_c(stack: Stack, client: Client) -> None:
    async with rpc(stack.api_url) as driven:
        session = await driven.reference()
        driven.say(type="prompt", id=1, message="say begins\nsleep 60")
        driven.say(type="prompt", id=2, message="say never")
        await driven.next()
        await driven.next()
        await driven.until("turn.output")
        driven.process.send_signal(signal.SIGINT)
        assert await driven.next() == {}
        assert await driven.process.wait() == 130
    assert driven.events[-1].kind == "session.closed"
    turns = (await client.list_turns(session)).turns
    assert [turn.status for turn in turns] == ["interrupted", "cancelled"]


async def test_rpc_sends_no_line_twice_when_the_api_is_away(own_stack: Stack, own_client: Client) -> None:
    async with rpc(own_stack.api_url) as driven:
        session = await driven.reference()
        for number in range(20):
            driven.say(type="prompt", id=number, message=f"append runs {number}")
            if number == 5:
                await driven.next()
                assert own_stack.api is not None
                own_stack.api.kill()
        own_stack.start_api()
        assert driven.process.stdin is not None
        driven.process.stdin.write_eof()
        answers = [await driven.next() for _ in range(19)]
        assert [answer["id"] for answer in answers] == list(range(1, 20))
        assert await driven.next() == {}
        assert await driven.process.wait() == 0
    assert (own_stack.scratch / "runs").read_text().split() == [str(number) for number in range(20)]
    assert driven.events == await timeline(own_client, session)


async def test_rpc_refuses_a_session_of_another_agent(stack: Stack, client: Client) -> None:
    session, _ = await begin(client)
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("turnhold"), "rpc", "other", "--session", session),
        env={**os.environ, "TURNHOLD_URL": stack.api_url},
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    code, out, err = await finish(process)
    assert (code, out) == (2, "")
    assert "is one of Agent script, not other" in err
