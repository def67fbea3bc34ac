"""Recorded histories replay on today's code, and a changed twin of it does not."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from tests.workflow import fingerprint
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


def recorded(path: Path) -> WorkflowHistory:
    return fingerprint.history(path.read_text())


def before(path: Path) -> str:
    return fingerprint.stored(path).read_text()


def test_every_shape_is_recorded() -> None:
    assert {path.stem for path in RECORDED} == set(SHAPES)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_session_uses_nothing_that_replays_differently(path: Path) -> None:
    """No local activities, which leave markers: see decision 14."""
    assert "MARKER_RECORDED" not in path.read_text()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_a_recorded_session_replays(path: Path) -> None:
    await Replayer(workflows=[Session], plugins=[PLUGIN]).replay_workflow(recorded(path))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_the_commands_of_a_recorded_session_are_what_they_were(path: Path) -> None:
    """A queue, a time-out, a retry policy: what a replay lets pass, and a change must mean."""
    assert await fingerprint.of(recorded(path)) == before(path)


async def test_a_changed_time_out_shows_in_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    path = HISTORIES / "conversation.json"
    monkeypatch.setattr("workflows.activities._DISPATCH", timedelta(seconds=7))
    await Replayer(workflows=[Session], plugins=[PLUGIN]).replay_workflow(recorded(path))
    assert await fingerprint.of(recorded(path)) != before(path)


WITH_COMMANDS = [path for path in RECORDED if path.stem != "idle"]  # an idle one has none to compare


@pytest.mark.parametrize("path", WITH_COMMANDS, ids=lambda path: path.stem)
async def test_a_broken_twin_does_not_replay(path: Path) -> None:
    with pytest.raises(workflow.NondeterminismError):
        await Replayer(workflows=[BrokenTwin], plugins=[PLUGIN]).replay_workflow(recorded(path))


@pytest.mark.parametrize("name", SHAPES)
async def test_a_session_of_this_moment_replays(real: Client, name: str) -> None:
    fresh = fingerprint.history(await record(real, name))
    await Replayer(workflows=[Session], plugins=[PLUGIN]).replay_workflow(fresh)
