"""Following a Session as it happens: output on stdout, everything else beside it on stderr."""

import contextlib
from collections.abc import Callable

from turnhold.cli import connection, output, show
from turnhold.client import Client, Gap, TurnholdError
from turnhold.session.values import OUTPUT
from turnhold.session.views import EventView

_TERMINAL = ("turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled")


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
) -> None:
    """Follows a Session until it has closed, or one Turn until it has ended, across disconnects.

    `on_event` takes the place of the screen. On Ctrl-C the command that goes on from here is
    printed, and the interrupt goes on.
    """
    position = since
    screen = Screen(turn_id)
    show_event = on_event or screen.event

    def lost(error: TurnholdError) -> None:
        screen.remark(f"connection lost ({error}); going on from event {position}")

    async def watch(client: Client) -> None:
        nonlocal position
        async with contextlib.aclosing(client.stream(session_id, after=since, on_lost=lost)) as events:
            async for event in events:
                if isinstance(event, Gap):
                    position = event.retained_after
                    screen.remark(f"events up to {position} are no longer kept")
                    continue
                show_event(event)
                position = event.sequence
                if event.kind in _TERMINAL and event.turn_id == turn_id:
                    return

    try:
        connection.call(url, api_key, watch)
    except KeyboardInterrupt:
        again = connection.command_line(url, "session", "attach", session_id, "--since", str(position))
        screen.remark(f"to go on: {again}")
        raise
