"""Asking whoever sits at this terminal what a Turn asks, while the Session is followed."""

import asyncio
import re
import sys
import uuid
from collections.abc import Callable

from turnhold.cli import output, show
from turnhold.cli.lines import Lines
from turnhold.client import Client, Problem, TurnholdError
from turnhold.session.questions import Answer, ChoiceControl, Control, Option
from turnhold.session.views import AskView, EventView


def at_a_terminal() -> bool:
    """Whether somebody can read a question here and type an answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class Questions:
    """Puts pending questions, one at a time; an empty line leaves one to somebody else.

    Args:
        turn_id: of this Turn alone.
        remark: prints a line of its own beside the output.
    """

    def __init__(
        self, client: Client, session_id: str, turn_id: str | None, remark: Callable[[str], None]
    ) -> None:
        self._client = client
        self._session_id = session_id
        self._turn_id = turn_id
        self._remark = remark
        self._waiting: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._settled: dict[str, asyncio.Event] = {}
        self._open: AskView | None = None
        self._lines: Lines | None = None
        self._task = asyncio.create_task(self._put_all(), name="questions")

    def make_way(self) -> None:
        """Something is about to be printed where the prompt stands."""
        if self._open is not None:
            output.ask("\n")

    def event(self, event: EventView) -> None:
        """Take note of what has just been shown."""
        ask_id = str(event.data.get("ask_id"))
        if event.kind == "ask.created" and event.turn_id and self._turn_id in (None, event.turn_id):
            self._settled[ask_id] = asyncio.Event()
            self._waiting.put_nowait((event.turn_id, ask_id))
        elif event.kind in ("ask.answered", "ask.cancelled") and ask_id in self._settled:
            self._settled.pop(ask_id).set()
            if self._open is not None and self._open.id == ask_id:
                self._open = None
        if self._open is not None:
            self._prompt(self._open.control)

    def close(self) -> None:
        self._task.cancel()

    async def _put_all(self) -> None:
        while True:
            turn_id, ask_id = await self._waiting.get()
            settled = self._settled.get(ask_id)
            if settled is None:
                continue
            try:
                ask = await self._client.ask(self._session_id, turn_id, ask_id)
                if ask.status == "pending":
                    await self._put(ask, settled)
            except TurnholdError as error:
                self._remark(str(error))

    async def _put(self, ask: AskView, settled: asyncio.Event) -> None:
        """Ask until there is a valid answer, nobody wants one any more, or the line is empty."""
        self._show(ask)
        lines = self._lines = self._lines or Lines()
        while True:
            self._open = ask
            self._prompt(ask.control)
            reading = asyncio.ensure_future(lines.next())
            over = asyncio.ensure_future(settled.wait())
            try:
                await asyncio.wait((reading, over), return_when=asyncio.FIRST_COMPLETED)
            finally:
                reading.cancel()
                over.cancel()
            self._open = None
            if not reading.done() or reading.cancelled():
                return
            line = reading.result()
            if line is None or not line.strip():
                self._remark(f"left open: turnhold session ask ls {self._session_id}")
                return
            try:
                await self._answer(ask, answer_in(ask.control, line.decode(errors="replace").strip()))
                return
            except ValueError as error:
                self._remark(str(error))
            except Problem as problem:
                self._remark(problem.detail)
                if problem.code != "invalid_answer":
                    return

    async def _answer(self, ask: AskView, answer: Answer) -> None:
        await self._client.answer(
            self._session_id,
            ask.turn_id,
            ask.id,
            text=answer.text,
            selected=answer.selected,
            idempotency_key=f"cli-{uuid.uuid4().hex}",
        )

    def _show(self, ask: AskView) -> None:
        self._remark("")
        output.note(output.styled(ask.prompt, "bold"))
        if isinstance(ask.control, ChoiceControl):
            for number, option in enumerate(ask.control.options, 1):
                output.note(f"  {_numbered(ask.control, number)}{_described(option)}", "")

    def _prompt(self, control: Control) -> None:
        output.ask(f"{show.allowed(control)} (empty: leave it open) > ")


def _numbered(control: ChoiceControl, number: int) -> str:
    return f"{number}  " if _has_numbers(control) else ""


def _has_numbers(control: ChoiceControl) -> bool:
    """Options go by their numbers too, unless that could be mistaken for an ID."""
    return not any(option.id.isdecimal() for option in control.options)


def _described(option: Option) -> str:
    label = f"  {option.label}" if option.label != option.id else ""
    description = f"  ({option.description})" if option.description else ""
    return f"{option.id}{label}{description}"


def answer_in(control: Control, line: str) -> Answer:
    """The answer that a person typed: text, or options by number or ID, between spaces or commas.

    Raises ValueError, a sentence, for what is neither.
    """
    if not isinstance(control, ChoiceControl):
        return Answer(text=line)
    ids = [option.id for option in control.options]
    words = [line] if line in ids else [word for word in re.split(r"[\s,]+", line) if word]
    by_number = {str(n): i for n, i in enumerate(ids, 1)} if _has_numbers(control) else {}
    chosen = [word if word in ids else by_number.get(word) for word in words]
    if None not in chosen:
        return Answer(selected=tuple(i for i in ids if i in chosen))
    if control.allow_text:
        return Answer(text=line)
    raise ValueError(f"there is no option {words[chosen.index(None)]}")
