"""How a command ends: the exit codes, and the one exception that carries one."""

DONE = 0
REFUSED = 1
USAGE = 2
UNREACHABLE = 3
PENDING = 4
INTERRUPTED = 130


class CommandFailed(Exception):
    """The command did not do its job. The message is for people, and ends up on stderr."""

    def __init__(self, message: str, exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
