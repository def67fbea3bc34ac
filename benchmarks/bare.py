"""The limit: the least that a durable conversation on Temporal can be.

A signal brings an input, one activity at a time on a worker's own queue runs it, a query tells what
has come of it. No timeline, no receipts, no Process, no host that may be lost. Run as a program it
is the worker: `python -m benchmarks.bare`, with `TEMPORAL_ADDRESS`.
"""

import asyncio
import os
import signal
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

QUEUE = "bare"
HOST_QUEUE = "bare-host"


@dataclass
class Start:
    """`turns`: the workflow ends after so many, and answers their results; else it goes on."""

    inputs: list[str] = field(default_factory=list[str])
    turns: int | None = None


@dataclass
class Progress:
    admitted: int
    results: list[str]


@workflow.defn(name="bare")
class Bare:
    def __init__(self) -> None:
        self._inputs: list[str] = []
        self._results: list[str] = []

    @workflow.run
    async def run(self, start: Start) -> list[str]:
        self._inputs = start.inputs + self._inputs
        while start.turns is None or len(self._results) < start.turns:
            await workflow.wait_condition(lambda: len(self._inputs) > len(self._results))
            self._results.append(
                await workflow.execute_activity(
                    echo,
                    self._inputs[len(self._results)],
                    task_queue=HOST_QUEUE,
                    start_to_close_timeout=timedelta(hours=1),
                )
            )
        return self._results

    @workflow.signal
    def enqueue(self, text: str) -> None:
        self._inputs.append(text)

    @workflow.query
    def read(self) -> Progress:
        return Progress(len(self._inputs), self._results)


@activity.defn(name="bare_echo")
async def echo(text: str) -> str:
    return text


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])
    workflows = Worker(client, task_queue=QUEUE, workflows=[Bare])
    host = Worker(client, task_queue=HOST_QUEUE, activities=[echo])
    async with workflows, host:
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
