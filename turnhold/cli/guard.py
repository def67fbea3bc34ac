"""Runs a program that dies with its parent: `python -I guard.py PARENT_PID PROGRAM ARGUMENT…`.

It replaces itself by the program, which keeps the process ID. On Linux the kernel then kills the
program when the parent is gone, however that happened; elsewhere only an orderly stop ends it.
Imports nothing of ours: it stands between the stack and each of its children.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, program: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before the request took effect
            return
    os.execv(program[0], program)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
