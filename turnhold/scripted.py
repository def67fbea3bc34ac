"""The scripted Agent `script`: it does what its input says, one step a line, without a model.

It is for tests, demos and the first minutes (docs/scripted-agent.md). An unknown step fails the Turn.
Numbers are seconds unless said otherwise. Metadata of the Session: `fail_init=N` makes `init`
raise while `process_epoch <= N`, `slow_init=S` makes it take S seconds.
"""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnhold.agents.context import Context
from turnhold.agents.controls import choice
from turnhold.agents.definition import agent
from turnhold.agents.errors import MessageRejected, Refused
from turnhold.agents.turn import Message, Turn


@dataclass
class Script:
    """One run of a script: what its steps share."""

    turn: Turn
    ctx: Context
    result: Any = None
    spawns: int = 0

    async def say(self, text: str) -> None:
        await self.turn.output.write(f"{text}\n")

    async def emit(self, rest: str) -> None:
        count, size, *delay = rest.split()
        pause = float(delay[0]) / 1000 if delay else 0
        for number in range(1, int(count) + 1):
            await self.turn.output.write(f"{number} ".ljust(int(size), "x")[: int(size)])
            if pause:
                await asyncio.sleep(pause)

    async def respond(self, text: str) -> None:
        self.turn.respond(text)

    async def return_(self, text: str) -> None:
        self.result = json.loads(text)

    async def sleep(self, seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    async def stubborn(self, seconds: str) -> None:
        """Sleeps until the time is over, whoever asks it to stop."""
        until = time.monotonic() + float(seconds)
        while (left := until - time.monotonic()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue

    async def block(self, seconds: str) -> None:
        time.sleep(float(seconds))  # noqa: ASYNC251 - to block the loop is what this step is for

    async def fail(self, message: str) -> None:
        raise RuntimeError(message)

    async def crash(self, _: str) -> None:
        raise SystemExit("crash")

    async def listen(self, seconds: str) -> None:
        await self._listen(float(seconds), 0)

    async def listen_slow(self, rest: str) -> None:
        seconds, pause = rest.split()
        await self._listen(float(seconds), float(pause))

    async def _listen(self, seconds: float, pause: float) -> None:
        done = asyncio.Event()

        async def hear(message: Message) -> None:
            if message.text == "leave":
                done.set()
            await asyncio.sleep(pause)
            if message.text.startswith("reject"):
                raise MessageRejected(message.text)
            if message.text == "boom":
                raise RuntimeError("boom")
            await self.say(f"heard: {message.text}")
            if message.text == "done":
                done.set()

        await self.turn.on_message(hear)
        try:
            async with asyncio.timeout(seconds):
                await done.wait()
        except TimeoutError:
            pass

    async def ask(self, prompt: str) -> None:
        reply = await self.turn.ask(prompt)
        await self.say(f"answer: {reply.text}")

    async def ask_for(self, rest: str) -> None:
        seconds, prompt = rest.split(maxsplit=1)
        reply = await self.turn.ask(prompt, timeout=float(seconds))
        await self.say(f"answer: {reply.text}")

    async def choose(self, rest: str) -> None:
        await self._choose(rest)

    async def choose_many(self, rest: str) -> None:
        await self._choose(rest, multiple=True)

    async def choose_or_say(self, rest: str) -> None:
        await self._choose(rest, allow_text=True)

    async def _choose(self, rest: str, **kind: bool) -> None:
        prompt, _, options = rest.rpartition("|")
        control = choice(*(option.strip() for option in options.split(",")), **kind)
        reply = await self.turn.ask(prompt.strip(), control)
        if reply.selected:
            await self.say(f"chose: {','.join(reply.selected)}")
        else:
            await self.say(f"said: {reply.text}")

    async def set_(self, rest: str) -> None:
        key, _, value = rest.partition(" ")
        self.ctx.state = {**(self.ctx.state or {}), key: value}

    async def get(self, key: str) -> None:
        await self.say(f"{key}: {(self.ctx.state or {}).get(key, 'none')}")

    async def append(self, rest: str) -> None:
        folder = os.environ.get("TURNHOLD_SCRATCH")
        if not folder:
            raise RuntimeError("append needs TURNHOLD_SCRATCH")
        name, _, text = rest.partition(" ")
        path = Path(folder, name)
        if path.parent != Path(folder):
            raise ValueError(f"append writes into its own directory only, not to {name!r}")
        with path.open("a") as file:  # noqa: ASYNC230 - one line, and this loop is the Agent's own
            file.write(f"{text}\n")

    async def epoch(self, _: str) -> None:
        await self.say(f"epoch: {self.ctx.process_epoch}")
        await self.say(f"turns: {self.ctx.process['turns']}")

    async def spawn(self, rest: str) -> None:
        agent, steps, key = self._another(rest)
        made = await self.ctx.sessions.spawn(agent, steps, key=key)
        await self.say(f"spawned: {made.id}")

    async def start(self, rest: str) -> None:
        agent, steps, key = self._another(rest)
        made = await self.ctx.sessions.start(agent, steps, key=key)
        await self.say(f"started: {made.id}")

    def _another(self, rest: str) -> tuple[str, str | None, str]:
        """Agent, its steps one a line, and the spawn key: one of its own for each step, if none is given."""
        head, _, steps = rest.partition("|")
        agent, _, key = head.strip().partition(" key=")
        self.spawns += 1
        return agent.strip(), _lines(steps), key.strip() or f"{self.turn.id} {self.spawns}"

    async def wait(self, session_id: str) -> None:
        turn = await self.ctx.sessions.wait_turn(session_id)
        await self.say(f"status: {turn.status}")

    async def interrupt(self, session_id: str) -> None:
        await self._control("interrupt", session_id, self.ctx.sessions.interrupt(session_id))

    async def resume(self, rest: str) -> None:
        session_id, _, hold_id = rest.partition(" ")
        await self._control("resume", session_id, self.ctx.sessions.resume(session_id, hold_id.strip()))

    async def close(self, session_id: str) -> None:
        await self._control("close", session_id, self.ctx.sessions.close(session_id))

    async def cancel(self, session_id: str) -> None:
        await self._control("cancel", session_id, self.ctx.sessions.cancel(session_id))

    async def enqueue(self, rest: str) -> None:
        session_id, _, steps = rest.partition("|")
        session_id = session_id.strip()
        call = self.ctx.sessions.enqueue(session_id, _lines(steps) or "")
        await self._control("enqueue", session_id, call)

    async def _control(self, verb: str, session_id: str, call: Awaitable[str | None]) -> None:
        """What came of it; of an interrupt its hold, too."""
        try:
            made = await call
        except Refused as refused:
            await self.say(f"refused: {refused.code}")
        else:
            hold = f" {made}" if verb == "interrupt" else ""
            await self.say(f"done: {verb} {session_id}{hold}")

    async def history(self, _: str) -> None:
        past = await self.ctx.history(limit=100)
        await self.say(f"history: {len(past)}")
        if past:
            await self.say(past[-1].text)


def _lines(steps: str) -> str | None:
    """`STEP ; STEP` as an input: one step a line; no steps, no input."""
    return "\n".join(step.strip() for step in steps.split(";")) if steps.strip() else None


Step = Callable[[Script, str], Awaitable[None]]

STEPS: dict[str, Step] = {
    "say": Script.say,
    "emit": Script.emit,
    "respond": Script.respond,
    "return": Script.return_,
    "sleep": Script.sleep,
    "stubborn": Script.stubborn,
    "block": Script.block,
    "fail": Script.fail,
    "crash": Script.crash,
    "listen": Script.listen,
    "listen-slow": Script.listen_slow,
    "ask": Script.ask,
    "ask-for": Script.ask_for,
    "choose": Script.choose,
    "choose-many": Script.choose_many,
    "choose-or-say": Script.choose_or_say,
    "set": Script.set_,
    "get": Script.get,
    "append": Script.append,
    "epoch": Script.epoch,
    "history": Script.history,
    "spawn": Script.spawn,
    "start": Script.start,
    "wait": Script.wait,
    "interrupt": Script.interrupt,
    "resume": Script.resume,
    "close": Script.close,
    "cancel": Script.cancel,
    "enqueue": Script.enqueue,
}


@agent("script")
async def script(turn: Turn, ctx: Context) -> Any:
    """Does what its input says: one step a line (say, emit, ask, sleep, fail, …)."""
    ctx.process["turns"] += 1
    run = Script(turn, ctx)
    for line in turn.text.splitlines():
        name, _, rest = line.strip().partition(" ")
        if not name:
            continue
        step = STEPS.get(name)
        if step is None:
            raise ValueError(f"unknown step: {name}")
        await step(run, rest.strip() if name != "say" else rest)
    return run.result


@script.init
async def init(ctx: Context) -> dict[str, int]:
    await asyncio.sleep(float(ctx.session.metadata.get("slow_init", 0)))
    if ctx.process_epoch <= int(ctx.session.metadata.get("fail_init", 0)):
        raise RuntimeError(f"fail_init: epoch {ctx.process_epoch}")
    return {"turns": 0}
