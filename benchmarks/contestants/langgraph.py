"""The peer: LangGraph's development server. It keeps everything in memory: nothing of it is durable.

It is measured when it is installed, in an environment of its own:

    python3 -m venv .peers/langgraph
    .peers/langgraph/bin/pip install 'langgraph-cli[inmem]'
"""

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

    async def enqueue(self, session: str) -> None:
        await self._enqueued(session)

    async def finished(self, session: str, turns: int) -> None:
        answer = await self.http.get(f"/threads/{session}/runs", params={"limit": 1})
        await self._joined(session, answer.raise_for_status().json()[0]["run_id"])

    async def conversation(self, turns: int) -> str:
        thread = await self._thread()
        last = ""
        for _ in range(turns):
            last = await self._enqueued(thread)
        await self._joined(thread, last)
        return thread

    async def end(self, session: str) -> None:
        (await self.http.delete(f"/threads/{session}")).raise_for_status()

    async def _thread(self) -> str:
        return (await self.http.post("/threads", json={})).raise_for_status().json()["thread_id"]

    async def _enqueued(self, thread: str) -> str:
        body = {"assistant_id": "echo", "input": {"text": "hi"}, "multitask_strategy": "enqueue"}
        answer = await self.http.post(f"/threads/{thread}/runs", json=body)
        return answer.raise_for_status().json()["run_id"]

    async def _run_to_end(self, thread: str) -> None:
        body = {"assistant_id": "echo", "input": {"text": "hi"}}
        async with self.http.stream("POST", f"/threads/{thread}/runs/stream", json=body) as response:
            said = "".join([line async for line in response.aiter_lines()])
        if '"said":"hi"' not in said:
            raise RuntimeError(f"a run of langgraph did not end as it should: {said[-500:]}")

    async def _joined(self, thread: str, run: str) -> None:
        (await self.http.get(f"/threads/{thread}/runs/{run}/join")).raise_for_status()


def program() -> Path | None:
    """The server's program, where it is installed."""
    found = shutil.which("langgraph", path=f"{_HOME}{os.pathsep}{os.environ.get('PATH', '')}")
    return None if found is None else Path(found)


def command(program: Path, app: Path, port: int) -> list[str]:
    return [
        *(str(program), "dev", "--config", str(app / "langgraph.json")),
        *("--host", "127.0.0.1", "--port", str(port), "--n-jobs-per-worker", str(ROOM)),
        *("--no-browser", "--no-reload", "--server-log-level", "WARNING"),
    ]
