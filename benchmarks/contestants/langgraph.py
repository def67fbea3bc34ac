"""The peer: LangGraph's development server. It keeps everything in memory: nothing of it is durable.

It is measured when it is installed, in an environment of its own:

    python3 -m venv .peers/langgraph
    .peers/langgraph/bin/pip install 'langgraph-cli[inmem]'
"""

import asyncio
import os
import shutil
from pathlib import Path

import httpx2

ROOM = 100  # runs at once: as many as a worker of ours keeps Processes
APP = Path(__file__).parent / "langgraph_app"
_HOME = Path(__file__).parents[2] / ".peers" / "langgraph" / "bin"


class LangGraph:
    name = "langgraph"

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def first_turn(self) -> str:
        thread = await self._thread()
        await self._run_to_end(thread)
        return thread

    async def open(self) -> str:
        return await self.first_turn()

    async def enqueue(self, session: str) -> str:
        body = {"assistant_id": "echo", "input": {"text": "hi"}, "multitask_strategy": "enqueue"}
        answer = await self.http.post(f"/threads/{session}/runs", json=body)
        return answer.raise_for_status().json()["run_id"]

    async def finished(self, session: str, turn: str) -> None:
        (await self.http.get(f"/threads/{session}/runs/{turn}/join")).raise_for_status()

    async def conversation(self, turns: int) -> str:
        thread = await self._thread()
        runs = await asyncio.gather(*(self.enqueue(thread) for _ in range(turns)))
        for run in runs:
            await self.finished(thread, run)
        return thread

    async def end(self, session: str) -> None:
        (await self.http.delete(f"/threads/{session}")).raise_for_status()

    async def _thread(self) -> str:
        return (await self.http.post("/threads", json={})).raise_for_status().json()["thread_id"]

    async def _run_to_end(self, thread: str) -> None:
        body = {"assistant_id": "echo", "input": {"text": "hi"}}
        async with self.http.stream("POST", f"/threads/{thread}/runs/stream", json=body) as response:
            said = "".join([line async for line in response.aiter_lines()])
        if '"said":"hi"' not in said:
            raise RuntimeError(f"a run of langgraph did not end as it should: {said[-500:]}")


def program() -> Path | None:
    """The server's program, where it is installed."""
    found = shutil.which("langgraph", path=f"{_HOME}{os.pathsep}{os.environ.get('PATH', '')}")
    return None if found is None else Path(found)


def command(program: Path, app: Path, port: int) -> list[str]:
    """It looks for the graph in its working directory, and writes there."""
    return [
        *("/bin/sh", "-c", 'cd "$0" && exec "$@"', str(app), str(program), "dev"),
        *("--host", "127.0.0.1", "--port", str(port), "--n-jobs-per-worker", str(ROOM)),
        *("--no-browser", "--no-reload", "--server-log-level", "WARNING"),
    ]
