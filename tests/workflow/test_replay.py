"""Recorded histories replay on today's code, and a changed twin of it does not."""

import asyncio
import json
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from tests.workflow.shapes import HISTORIES, SHAPES, record
from turnhold.session.carried import SessionInput
from turnhold.temporal import names
from turnhold.temporal.plugin import PLUGIN
from workflows.session import Session

RECORDED = sorted(HISTORIES.glob("*.json"))


@workflow.defn(name=names.WORKFLOW)
class BrokenTwin(Session):
    """What a careless change looks like: one command more than the recorded Sessions have."""

    @workflow.init
    def __init__(self, given: SessionInput) -> None:
        super().__init__(given)

    @workflow.run
    async def run(self, given: SessionInput) -> None:
        await asyncio.sleep(1)
        await super().run(given)


def history(text: str) -> WorkflowHistory:
    """Under the ID of the recorded Session: those of the Sessions that it owns are made of it."""
    started = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    return WorkflowHistory.from_json(started["workflowId"], text)


def test_every_shape_is_recorded() -> None:
    assert {path.stem for path in RECORDED} == set(SHAPES)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_a_recorded_session_replays(path: Path) -> None:
    await Replayer(workflows=[Session], plugins=[PLUGIN]).replay_workflow(history(path.read_text()))


WITH_COMMANDS = [path for path in RECORDED if path.stem != "idle"]  # an idle one has none to compare


@pytest.mark.parametrize("path", WITH_COMMANDS, ids=lambda path: path.stem)
async def test_a_broken_twin_does_not_replay(path: Path) -> None:
    with pytest.raises(workflow.NondeterminismError):
        await Replayer(workflows=[BrokenTwin], plugins=[PLUGIN]).replay_workflow(history(path.read_text()))


@pytest.mark.parametrize("name", SHAPES)
async def test_a_session_of_this_moment_replays(real: Client, name: str) -> None:
    fresh = history(await record(real, name))
    await Replayer(workflows=[Session], plugins=[PLUGIN]).replay_workflow(fresh)
