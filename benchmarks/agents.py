"""The Agents that the benchmarks run. A worker of the stack loads this module."""

import asyncio
import os
import time
from pathlib import Path

from turnhold import Context, Turn, agent


@agent("echo")
async def echo(turn: Turn, _: Context):
    """The short Turn: it writes its input, and returns it."""
    await turn.output.write(turn.text)
    return turn.text


@agent("patient")
async def patient(turn: Turn, _: Context):
    """Waits until it is stopped, and says when that was: in a file, for its output is dropped then."""
    try:
        await asyncio.sleep(3600)
    finally:
        with stops_file(Path(os.environ["TURNHOLD_SCRATCH"])).open("a") as stops:
            stops.write(f"{turn.id} {time.time()}\n")


@agent("ticker")
async def ticker(turn: Turn, _: Context):
    """Writes the time, so often, with such a pause in seconds: `200 0.05`."""
    count, pause = turn.text.split()
    for _tick in range(int(count)):
        await turn.output.write(f"{time.time()}\n")
        await asyncio.sleep(float(pause))


def stops_file(scratch: Path) -> Path:
    return scratch / "stops"
