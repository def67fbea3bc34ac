"""Child processes of the embedded stack: started, watched, stopped, never left behind."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from turnhold.cli import guard
from turnhold.cli.outcome import CommandFailed

_PORTS = range(20_000, 32_000)  # below the range that systems hand out for outgoing connections
_LOOPBACK = "127.0.0.1"
_LOG_TAIL = 15


class StackError(CommandFailed):
    """The stack cannot start or go on. The message is for people: one line, perhaps a log's end."""


class Child:
    """One child process in a session of its own, so that Ctrl-C reaches the parent alone.

    On Linux it dies with the thread that started it: start children from the main thread.

    Args:
        name: for people.
        command: the program, by absolute path, and its arguments.
        environment: the whole of it.
        log: where its output goes, appended.
        grace: seconds from the request to stop until it is killed.
    """

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path, grace: float
    ) -> None:
        self.name = name
        self.log = log
        self.grace = grace
        self._guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command]
        self._environment = dict(environment)
        self.start()

    def start(self) -> None:
        """Start it, again if it has ended."""
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                self._guarded,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.poll()

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    def send(self, number: signal.Signals) -> None:
        """Sends a signal; nothing happens when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def terminate(self) -> None:
        """Asks it to stop and returns at once."""
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it without asking and waits until it is gone."""
        self.send(signal.SIGKILL)
        self._process.wait()

    def join(self, deadline: float) -> int:
        """Waits until it has ended, kills it at `deadline` (monotonic). Returns the exit code."""
        try:
            return self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def stop(self) -> int:
        """Asks it to stop, and kills it after its grace. Returns the exit code."""
        self.terminate()
        return self.join(time.monotonic() + self.grace)

    def output(self) -> str:
        """What it has written since it started."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace")

    @property
    def end(self) -> str:
        """How it ended, in words."""
        code = self.exit_code or 0
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def epitaph(self) -> str:
        """Why it died, as far as can be seen: how it ended, and the last lines it wrote."""
        lines = [_words(line) for line in self.output().splitlines()[-_LOG_TAIL:]]
        said = "\n".join(f"  {line}" for line in lines) or "  (it wrote nothing)"
        return f"the {self.name} {self.end}; its last words ({self.log}):\n{said}"


def _words(line: str) -> str:
    """The message of a log line that is JSON; any other line as it is."""
    with contextlib.suppress(ValueError):
        parsed = json.loads(line)
        if isinstance(parsed, dict):
            fields = cast("dict[str, object]", parsed)
            return str(fields.get("message") or fields.get("msg") or line)
    return line


def stop_all(children: Sequence[Child]) -> None:
    """Stops them side by side, each within its own grace."""
    for child in children:
        child.terminate()
    started = time.monotonic()
    for child in children:
        child.join(started + child.grace)


def is_free(port: int) -> bool:
    """Whether something could listen on this port of the loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port(taken: set[int]) -> int:
    """A port that is free just now and not in `taken`, to which it is added.

    Raises:
        StackError: none was found.
    """
    for _ in range(1_000):
        port = random.choice(_PORTS)
        if port not in taken and is_free(port):
            taken.add(port)
            return port
    raise StackError("found no free port on 127.0.0.1")
