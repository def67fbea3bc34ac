"""The sweeper: what the store has of Sessions that Temporal no longer knows (S-83)."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode
from typer.testing import CliRunner

from tests.harness import poll, settled
from turnhold.cli.main import app
from turnhold.cli.stack import NAMESPACE, Plan, Stack
from turnhold.client import Client
from turnhold.store.objects import Store
from turnhold.temporal.sweeping import Shared, Sweeper


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(Plan(tmp_path_factory.mktemp("swept"))) as running:
        yield running


async def closed(client: Client) -> str:
    """A Session that has ended, and all of it is in the store."""
    made = await client.create_session("script", input="say this")
    assert made.turn is not None
    await settled(client, made.session.id, made.turn.id)
    await client.close(made.session.id)
    return made.session.id


def folders(stack: Stack) -> set[str]:
    return {path.parent.parent.name for path in stack.store.glob("ses_*/*/record")}


def sweep(stack: Stack, *options: str) -> dict[str, object]:
    environment = {
        "TEMPORAL_ADDRESS": stack.temporal_address,
        "TEMPORAL_NAMESPACE": NAMESPACE,
        "TEMPORAL_CONFIG_FILE": os.devnull,
        "TURNHOLD_STORE": str(stack.store),
    }
    done = CliRunner().invoke(app, ["store", "sweep", "--json", *options], env=environment)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def made_old(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - 4000,) * 2)


async def test_s83_only_what_temporal_no_longer_knows_is_removed_and_only_once_it_is_old(
    stack: Stack,
) -> None:
    temporal = await TemporalClient.connect(stack.temporal_address, namespace=NAMESPACE)
    async with Client(stack.api_url) as client:
        kept, gone = await closed(client), await closed(client)
        await poll(lambda: asyncio.to_thread(lambda: {kept, gone} <= folders(stack)), what="their records")
        await temporal.get_workflow_handle(gone).result()
        await temporal.workflow_service.delete_workflow_execution(
            DeleteWorkflowExecutionRequest(
                namespace=NAMESPACE, workflow_execution=WorkflowExecution(workflow_id=gone)
            )
        )
        await poll(lambda: _is_deleted(temporal, gone), what="its deletion", deadline=90)
        assert (await asyncio.to_thread(sweep, stack))["removed"] == [], "all of it is young"
        made_old(stack.store)
        named = await asyncio.to_thread(sweep, stack, "--dry-run")
        assert [str(folder).split("/")[0] for folder in named["removed"]] == [gone]  # type: ignore[attr-defined]
        assert folders(stack) == {kept, gone}
        assert (await asyncio.to_thread(sweep, stack))["removed"] == named["removed"]
        assert folders(stack) == {kept}
        assert (await client.session(kept)).status == "closed"


async def test_s83_nothing_is_removed_on_an_error_or_of_a_store_that_is_shared(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporal = await TemporalClient.connect(stack.temporal_address, namespace=NAMESPACE)
    store = Store.at(str(tmp_path / "store"))
    await store.put("ses_never/run/record", b"{}")
    later = datetime.now(UTC) + timedelta(hours=2)
    sweeper = Sweeper(temporal, store)

    def refuse(*_: object, **__: object) -> object:
        raise RPCError("away", RPCStatusCode.UNAVAILABLE, b"")

    with monkeypatch.context() as patched:
        patched.setattr(temporal, "get_workflow_handle", refuse)
        with pytest.raises(RPCError):
            await sweeper.sweep(now=later)
    await store.put("namespaces/another", b"another")
    with pytest.raises(Shared, match="another"):
        await sweeper.sweep(now=later)
    assert await store.get("ses_never/run/record") == b"{}"
    await store.delete(["namespaces/another"])
    assert (await sweeper.sweep(now=later)).removed == ("ses_never/run",)


async def _is_deleted(temporal: TemporalClient, session_id: str) -> bool:
    try:
        await temporal.get_workflow_handle(session_id).describe()
    except RPCError as error:
        return error.status == RPCStatusCode.NOT_FOUND
    return False
