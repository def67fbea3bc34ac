"""`explain`, as far as a Session itself knows why it does not move."""

from typing import Any

import pytest

from api.app import create_app
from tests.unit.driver import START, World, running
from turnhold.session import commands, explaining, hosting, remedies, steps
from turnhold.session.creation import Config, NewSession
from turnhold.session.model import Owned
from turnhold.session.questions import ChoiceControl, Control, Option, TextControl
from turnhold.session.views import Cause, Clearing, Explanation, ReadRequest
from turnhold.settings import Settings

SESSION = "/v1/sessions/ses_test"


def explain(world: World) -> Explanation:
    found = world.machine.read(ReadRequest(explain=True), world.now).explanation
    assert found is not None
    return found


def codes(world: World) -> list[str]:
    return [cause.code for cause in explain(world).causes]


def only(world: World) -> Cause:
    (cause,) = explain(world).causes
    return cause


def ask(world: World, control: Control | None = None, timeout: float | None = None) -> str:
    ask_id = world.ask_id()
    world.say(
        hosting.AskCreated(ask_id=ask_id, prompt="?", control=control or TextControl(), timeout=timeout)
    )
    return ask_id


def test_s94_a_session_at_work_has_no_cause() -> None:
    assert explain(running()) == Explanation(moving=True)


def test_s94_without_being_asked_nothing_is_explained() -> None:
    assert running().machine.read(ReadRequest(), START).explanation is None


def test_s94_nothing_to_do_and_the_call_that_gives_it_something() -> None:
    world = World()
    world.wait(5)
    cause = only(world)
    assert (cause.code, cause.since) == ("nothing_to_do", START)
    assert cause.clear == Clearing(path=f"{SESSION}/turns", body={"input": "…"})
    assert not explain(world).moving


def test_s94_every_hold_is_a_cause_and_its_release_clears_it() -> None:
    world = World()
    world.enqueue()
    first, second = world.interrupt().hold_id, world.interrupt().hold_id
    causes = explain(world).causes
    assert [cause.code for cause in causes] == ["held", "held"]
    assert [cause.hold_id for cause in causes] == [first, second]
    assert causes[0].clear == Clearing(path=f"{SESSION}/resume", body={"hold_id": first})
    assert not explain(world).moving
    world.resume(first)
    world.resume(second)
    assert codes(world) == ["process_starting"]


def test_s94_a_held_session_without_a_queue_has_also_nothing_to_do() -> None:
    world = World()
    world.interrupt()
    assert codes(world) == ["held", "nothing_to_do"]


def test_s94_the_hold_after_three_failures_says_so() -> None:
    world = World("work")
    for pause in (1, 2, 0):
        world.fail_init()
        world.wait(pause)
    assert "kept failing" in only(world).message


def test_s94_an_inherited_hold_is_released_at_its_owner() -> None:
    new = NewSession(
        agent="script",
        environment="default",
        seed="seed",
        config=Config.resolve({}),
        request_id="req_00000001",
        created_at=START,
        owner_id="ses_owner",
        root_id="ses_owner",
        depth=2,
    )
    world = World()
    world.machine = type(world.machine).begin("ses_test", new, START, withheld=frozenset())
    above = commands.InheritedHold(id="hld_above", session_id="ses_top")
    world.machine.owner_said(commands.OwnerState(owner_id="ses_owner", version=1, holds=(above,)), START)
    cause = explain(world).causes[0]
    assert (cause.hold_id, cause.session_id) == ("hld_above", "ses_top")
    assert cause.clear == remedies.resume("ses_top", "hld_above")
    world.machine.owner_said(commands.OwnerState(owner_id="ses_owner", version=2, gone=True), START)
    assert explain(world).causes[0].clear == remedies.resume("ses_test", "hld_above")


def test_s94_a_question_stands_still_until_it_is_answered() -> None:
    world = running()
    ask_id = ask(world, timeout=30)
    cause = only(world)
    turn_id = world.state.turn_id(1)
    assert (cause.code, cause.ask_id, cause.turn_id) == ("asking", ask_id, turn_id)
    assert cause.until is not None
    assert (cause.until - START).total_seconds() == 30
    assert cause.clear == remedies.answer("ses_test", turn_id, ask_id, TextControl())
    assert not explain(world).moving


def test_s94_the_example_of_an_answer_has_the_form_that_is_asked_for() -> None:
    control = ChoiceControl(options=(Option(id="yes", label="Yes"), Option(id="no", label="No")))
    assert remedies.answer("s", "t", "a", control).body == {"answer": {"selected": ["yes"]}}
    assert remedies.answer("s", "t", "a", TextControl()).body == {"answer": {"text": "…"}}


def test_s94_a_question_comes_before_the_turns_that_wait_behind_it() -> None:
    world = running()
    world.enqueue()
    ask(world)
    assert codes(world) == ["asking", "queued_behind"]


def test_s94_stopping_ends_by_the_stop_deadline() -> None:
    world = running(stop_deadline=7)
    world.enqueue()
    world.interrupt(1)
    stopping, behind = explain(world).causes
    assert (stopping.code, stopping.turn_id, stopping.clear) == ("stopping", world.state.turn_id(1), None)
    assert stopping.until is not None
    assert (stopping.until - START).total_seconds() == 7
    assert (behind.code, behind.clear) == ("queued_behind", None)
    assert explain(world).moving


def test_s94_a_session_interrupt_that_still_stops_its_turn_is_first_of_all_held() -> None:
    world = running()
    world.interrupt()
    assert codes(world) == ["held", "stopping"]
    world.end("stopped")
    assert codes(world) == ["held", "nothing_to_do"]


def test_s94_a_process_that_stops_under_a_queue() -> None:
    world = running(max_turn_duration=1)
    world.enqueue()
    world.wait(1)
    world.end("stopped")
    cause = only(world)
    assert (cause.code, cause.turn_id) == ("stopping", world.state.turn_id(2))
    assert explain(world).moving


def test_s94_starting_backing_off_and_starting_again() -> None:
    world = World("work")
    cause = only(world)
    assert (cause.code, cause.turn_id) == ("process_starting", world.state.turn_id(1))
    assert explain(world).moving
    world.fail_init()
    cause = only(world)
    assert (cause.code, cause.clear) == ("process_backing_off", None)
    assert cause.until is not None
    assert (cause.until - world.now).total_seconds() == 1
    assert explain(world).moving
    world.wait(1)
    assert only(world).code == "process_starting"


def test_s94_a_start_that_was_lost_backs_off_too() -> None:
    world = World("work")
    world.lose("lost", steps.StartProcess)
    assert "the last start was lost" in only(world).message


def test_s94_queued_behind_the_running_turn_and_the_interrupt_that_makes_way() -> None:
    world = running()
    world.enqueue()
    cause = only(world)
    turn_id = world.state.turn_id(1)
    assert (cause.code, cause.turn_id) == ("queued_behind", turn_id)
    assert cause.clear == Clearing(path=f"{SESSION}/turns/{turn_id}/interrupt")
    assert explain(world).moving


def test_s94_closing_waits_for_each_owned_session() -> None:
    world = World()
    for name, status in (("one", "open"), ("two", "closed"), ("three", "starting")):
        world.state.owned[name] = Owned.model_validate(
            {"session_id": f"ses_{name}", "agent": "a", "status": status, "key": name, "fingerprint": ""}
        )
    world.close()
    causes = explain(world).causes
    assert [cause.code for cause in causes] == ["closing_on_owned"] * 2
    assert [cause.session_id for cause in causes] == ["ses_one", "ses_three"]
    assert causes[0].clear == remedies.cancel("ses_one")
    assert not explain(world).moving


@pytest.mark.parametrize(("how", "word"), [("close", "closed"), ("cancel", "cancelled")])
def test_s94_closed_is_final(how: str, word: str) -> None:
    world = World()
    getattr(world, how)()
    cause = only(world)
    assert (cause.code, cause.since, cause.clear) == ("closed", world.state.closed_at, None)
    assert word in cause.message
    assert "idle" in explaining.ended("s", "idle", None).causes[0].message


def test_s94_every_call_that_clears_is_a_route_of_the_api() -> None:
    paths: dict[str, Any] = create_app(Settings()).openapi()["paths"]
    calls = (
        remedies.resume("{session_id}", "h"),
        remedies.interrupt_turn("{session_id}", "{turn_id}"),
        remedies.enqueue("{session_id}"),
        remedies.cancel("{session_id}"),
    )
    assert [call.path for call in calls if call.method.lower() not in paths.get(call.path, ())] == []
