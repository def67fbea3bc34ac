"""A Session over many runs, on a real server."""

from temporalio.client import Client

from tests.workflow.stub_host import StubHost, events, read, start, until_idle


async def test_s10_s80_a_session_continues_as_new_and_loses_nothing(real: Client, task_queue: str) -> None:
    async with StubHost().serve(real, task_queue):
        handle = await start(real, task_queue, events_per_run=40)
        first_run = (await handle.describe()).run_id
        for number in range(30):
            await real.get_workflow_handle(handle.id).signal(
                "enqueue", {"input": str(number), "request_id": f"req_{number:08d}"}
            )
        await until_idle(handle)
        seen = await events(handle)
        assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
        said = [e.data["content"][0]["text"] for e in seen if e.kind == "turn.output"]  # type: ignore[index]
        assert said == [str(number) for number in range(30)]
        assert (await real.get_workflow_handle(handle.id).describe()).run_id != first_run
        receipts = (await read(handle, request_ids=("req_00000000", "req_00000029"))).receipts
        assert [r.sequence for r in receipts.values()] == [1, 30]
