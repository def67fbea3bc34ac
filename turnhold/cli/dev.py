"""`turnhold dev`: the whole stack on this machine, until it is told to stop."""

import signal
import threading
from types import FrameType

from turnhold.cli.output import fields, note, say
from turnhold.cli.stack import Plan, Stack

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_SECONDS = 0.5


def run_dev(plan: Plan) -> None:
    """Starts the stack and keeps it until Ctrl-C, SIGTERM or SIGHUP; a second one hurries.

    A part that dies is started again: Sessions go on, as they do in production.

    Raises:
        StackError: it does not start, or a part of it dies again and again.
    """
    stop = threading.Event()
    stack = Stack(plan)

    def asked_to_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            for child in stack.children():
                child.send(signal.SIGKILL)
        stop.set()
        if not stack.ready:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, asked_to_stop) for number in _STOPPING}
    try:
        stack.start(lambda part: note(f"starting {part} …"))
        _greet(stack)
        while not stop.wait(_LOOK_SECONDS):
            stack.revive(note)
        note("\nstopping …")
    finally:
        stack.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    note(f"Stopped. Everything is in {plan.data}; the next start goes on from there.")


def _greet(stack: Stack) -> None:
    say()
    fields(
        (
            ("API", stack.api_url),
            ("docs", f"{stack.api_url}/docs"),
            ("Temporal UI", stack.ui_url),
            ("Temporal", stack.temporal_address),
            ("data", str(stack.plan.data.resolve())),
            ("logs", str(stack.plan.data.resolve() / "logs")),
        )
    )
    say()
    say("Try it in another terminal:", "dim")
    where = "" if stack.plan.api_port == 8080 else f" --url {stack.api_url}"
    say(f"  turnhold session create script --text 'say hello' --follow{where}")
    say()
    say("Ctrl-C stops everything.", "dim")
