"""Following a Session as it happens: output on stdout, everything else beside it on stderr."""

import contextlib
from collections.abc import Callable, Sequence

from turnhold.cli import connection, output, show
from turnhold.cli.questions import Questions, at_a_terminal
from turnhold.client import Client, Gap, Problem, TurnholdError
from turnhold.session.values import OUTPUT
from turnhold.session.views import EventView

_TERMINAL = ("turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled")
_FAILED = "session.process_failed"
_PROCESS_FAILURES = ("process_failed", "execution_lost")  # the event after the Turn's end says more


class Screen:
    """Prints events. With `turn_id`, the output of that Turn alone."""

    def __init__(self, turn_id: str | None = None) -> None:
        self._turn_id = turn_id
        self._within_line = False

    def event(self, event: EventView) -> None:
        if self._turn_id is not None and event.turn_id not in (None, self._turn_id):
            return
        if event.kind == "turn.output":
            self._write(show.content_text(OUTPUT.validate_python(event.data["content"])))
            return
        response = event.data.get("response")
        if response is not None:
            self._end_line()
            self._write(show.content_text(OUTPUT.validate_python(response)))
        self._end_line()
        output.note(show.event_note(event))

    def remark(self, text: str) -> None:
        self._end_line()
        output.note(text)

    def _write(self, text: str) -> None:
        if text:
            output.write(text)
            self._within_line = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._within_line:
            output.write("\n")
            self._within_line = False


def follow(
    url: str,
    api_key: str | None,
    session_id: str,
    *,
    since: int = 0,
    turn_id: str | None = None,
    on_event: Callable[[EventView], None] | None = None,
    command: Sequence[str] = ("attach",),
    read_only: bool = False,
) -> None:
    """Follows a Session until it has closed, or one Turn until it has ended, across disconnects.

    At a terminal it also puts what is asked, unless `read_only`. `on_event` takes the place of the
    screen, and of that. On Ctrl-C `command` is printed so that it goes on from here, and the
    interrupt goes on.
    """
    position = since
    screen = Screen(turn_id)
    show_event = on_event or screen.event
    told = ""

    def lost(error: TurnholdError) -> None:
        nonlocal told
        text = f"connection to {url} lost; reconnecting"
        if isinstance(error, Problem):
            waits = "no worker answers" if error.code == "worker_unavailable" else error.detail.rstrip(".")
            text = f"{waits}; trying again"
        if text != told:
            told = text
            screen.remark(text)

    def back() -> None:
        nonlocal told
        told = ""
        screen.remark(f"connected again; going on after event {position}")

    async def watch(client: Client) -> None:
        nonlocal position
        ended = False
        if turn_id is not None:
            with contextlib.suppress(TurnholdError):
                for hold in (await client.session(session_id)).holds:
                    screen.remark(_held(url, session_id, hold.id))
        async with contextlib.AsyncExitStack() as opened:
            questions = None
            if on_event is None and not read_only and at_a_terminal():
                questions = Questions(client, session_id, turn_id, screen.remark)
                opened.callback(questions.close)
            stream = client.stream(session_id, after=since, on_lost=lost, on_back=back)
            async for event in await opened.enter_async_context(contextlib.aclosing(stream)):
                if isinstance(event, Gap):
                    position = event.retained_after
                    screen.remark(f"events up to {position} are no longer kept")
                    continue
                if questions is not None:
                    questions.make_way()
                show_event(event)
                if questions is not None:
                    questions.event(event)
                position = event.sequence
                if turn_id is None:
                    continue
                if hold_id := event.data.get("hold_id") if event.kind == _FAILED else None:
                    screen.remark(_held(url, session_id, str(hold_id)))
                if ended and event.kind == _FAILED:
                    return
                if event.kind in _TERMINAL and event.turn_id == turn_id:
                    ended = True
                    if event.data.get("reason") not in _PROCESS_FAILURES:
                        return

    try:
        connection.call(url, api_key, watch)
    except KeyboardInterrupt:
        again = connection.command_line(
            url, "session", command[0], session_id, *command[1:], "--since", str(position)
        )
        screen.remark(f"to go on: {again}")
        raise


def _held(url: str, session_id: str, hold_id: str) -> str:
    resume = connection.command_line(url, "session", "resume", session_id, "--hold", hold_id)
    return f"held: no Turn starts until {resume}"
