"""Sessions that Temporal's operators end behind their host's back."""

import time

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest

from tests.fault.conftest import recorded, temporal
from tests.harness import poll, settled
from turnhold.cli.stack import Stack
from turnhold.client import Client


async def test_s26_s90_the_host_of_a_session_that_is_no_more_stops_its_process(
    slots: Stack, slots_client: Client
):
    """Terminated while a Turn runs, and while idle; deleted while idle."""
    client = slots_client
    by_hand = await temporal(slots)
    idle = [await client.create_session("recorder", input="0") for _ in range(3)]
    for made in idle:
        await settled(client, made.session.id, made.turn.id)
    kept, terminated, deleted = (made.session.id for made in idle)
    running = await client.create_session("recorder", input="120")
    await poll(lambda: running.turn.id in recorded(slots, "begun"))

    began = time.time()
    for session_id in (running.session.id, terminated):
        await by_hand.get_workflow_handle(session_id).terminate()
    await by_hand.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace="default", workflow_execution=WorkflowExecution(workflow_id=deleted)
        )
    )
    turn = await client.turn(running.session.id, running.turn.id)
    assert (turn.status, turn.reason) == ("interrupted", "terminated")
    assert (await client.session(terminated)).closed_how == "terminated"

    ghosts = {running.session.id, terminated, deleted}
    await poll(lambda: ghosts <= recorded(slots, "gone").keys(), deadline=60, what="the end of every ghost")
    gone = recorded(slots, "gone")
    print(f"\nghosts were gone after {', '.join(f'{gone[g] - began:.1f} s' for g in ghosts)}")
    assert running.turn.id in recorded(slots, "stopped")
    assert kept not in gone
    again = await client.enqueue(kept, "0")
    assert (await settled(client, kept, again.turn_id)).status == "completed"
    assert (await client.session(kept)).process.epoch == 1
    await by_hand.get_workflow_handle(kept).signal("cancel")
