"""Inputs of waiting Turns: which of them leave the state for the store, and how they come back."""

from typing import Any

import pytest
from pydantic_core import to_json

from tests.unit.driver import World, code, running
from turnhold.session import calls, limits, sealing, steps
from turnhold.session.values import text_of
from turnhold.session.views import Explanation, ReadRequest

LARGE = 200_000


def text(number: int, size: int = LARGE) -> str:
    return f"{number} ".ljust(size, "x")


def outstanding(world: World, kind: type[Any]) -> list[Any]:
    return [step for step in world.machine.outstanding() if isinstance(step, kind)]


def behind(count: int, size: int = LARGE) -> World:
    """A Turn runs, so many wait, and the store has taken what it was given; then it is away."""
    world = running()
    for number in range(2, count + 2):
        assert world.enqueue(text(number, size)).status == "accepted"
    world.store_works = False
    return world


def seal_what_is_settled(world: World) -> None:
    while seals := outstanding(world, steps.Seal):
        world.ask_store(seals[0])


def explanation(world: World) -> Explanation:
    found = world.machine.read(ReadRequest(explain=True), world.now).explanation
    assert found is not None
    return found


@pytest.mark.parametrize(("count", "size"), [(300, LARGE), (999, 2_000), (400, limits.CONTENT_BYTES - 50)])
def test_s11_s95_a_long_queue_of_large_inputs_is_taken_and_run_in_order(count: int, size: int) -> None:
    world = behind(count, size)
    assert len(world.state.queue) == count
    assert sealing.carried_bytes(world.state) < limits.CARRIED_BYTES - limits.SPARE_BYTES
    world.store_works = True
    for number in range(2, 12):
        world.end()
        assert world.state.running == number
        call = calls.run_turn(world.state, world.step(steps.RunTurn))
        assert text_of(call.input) == text(number, size)
        assert sealing.carried_bytes(world.state) < limits.CARRIED_BYTES


LARGEST = limits.CONTENT_BYTES - 50


@pytest.mark.parametrize("behind", [(LARGEST,) * 3, (LARGE, 100_000, LARGEST), (120_000, 120_000, LARGEST)])
def test_s95_one_more_of_any_size_fits_once_the_store_has_taken_the_others(behind: tuple[int, ...]) -> None:
    world = running(text(1, LARGEST))
    assert [code(world.enqueue(text(2, size))) for size in behind] == [None] * len(behind)


def test_s95_while_the_store_is_away_inputs_are_taken_as_long_as_they_have_room() -> None:
    world = running()
    world.store_works = False
    receipts = [world.enqueue(text(number)) for number in range(2, 7)]
    assert [code(r) for r in receipts] == [None, None, None, "session_busy", "session_busy"]
    assert world.interrupt().status == "accepted", "a control needs no room"
    world.seal()
    assert code(world.enqueue(text(5))) is None


def test_s95_what_else_is_in_the_state_leaves_less_for_what_waits() -> None:
    world = running()
    world.store_works = False
    world.state.tail_bytes = limits.CARRIED_BYTES
    receipts = [world.enqueue(text(number, 100_000)) for number in range(3)]
    assert [code(r) for r in receipts] == [None, None, "session_busy"], "its own share is always there"


def test_s95_small_inputs_and_the_next_ones_stay() -> None:
    world = running()
    world.store_works = False
    size = limits.ASIDE_KEPT_BYTES // 2
    for number in range(2, 9):
        world.enqueue(text(number, size))
        world.enqueue("small")
    assert world.step(steps.SetAside).turns == (6, 8, 10), "not the next one, nor 64 KiB behind it"


def test_s95_what_is_set_aside_has_left_the_state_once_the_store_has_it() -> None:
    world = running()
    world.store_works = False
    for number in range(2, 5):
        world.enqueue(text(number))
    step = world.step(steps.SetAside)
    assert step.turns == (3,), "issued as soon as there was too much"
    before = sealing.carried_bytes(world.state)
    call = calls.set_aside(world.state, step)
    world.roll_over()
    assert calls.set_aside(world.state, world.step(steps.SetAside)) == call, "carried, and repeated"
    assert text_of(world.state.turns[3].input) == text(3)
    world.ask_store(step)
    assert world.state.turns[3].input == ()
    assert world.state.turns[3].input_bytes > LARGE
    assert sealing.carried_bytes(world.state) < before - LARGE + 100
    assert world.step(steps.SetAside).turns == (4,)


def test_s13_a_turn_is_not_dispatched_without_its_input_and_explain_says_why() -> None:
    world = behind(3, limits.CONTENT_BYTES - 50)
    world.end()
    assert world.state.running == 2, "the next one was at hand"
    assert not outstanding(world, steps.Fetch), "another one has no room beside it"
    world.end()
    seal_what_is_settled(world)
    fetch = world.step(steps.Fetch)
    assert (world.state.running, fetch.turn) == (None, 3)
    found = explanation(world)
    (cause,) = found.causes
    assert (cause.code, cause.since) == ("store_unavailable", fetch.issued_at)
    assert "input" in cause.message
    assert cause.turn_id == world.state.turn_id(3)
    world.roll_over()
    assert world.step(steps.Fetch) == fetch
    world.ask_store(fetch)
    assert world.state.running == 3
    assert [cause.code for cause in explanation(world).causes] == ["queued_behind"]


def test_s10_the_next_input_is_fetched_while_a_turn_runs() -> None:
    world = behind(3, limits.ASIDE_AT_BYTES)
    world.end()
    assert world.step(steps.Fetch).turn == 3
    world.seal()
    world.store_works = False
    world.end()
    assert world.state.running == 3, "at once"


@pytest.mark.parametrize("kind", [steps.SetAside, steps.Fetch])
def test_s95_a_step_that_failed_for_good_is_made_again(kind: type[Any]) -> None:
    world = behind(3, limits.ASIDE_AT_BYTES)
    world.end()
    world.enqueue(text(5))
    world.enqueue(text(6))
    step = world.step(kind)
    world.lose("lost", kind)
    again = world.step(kind)
    assert again.id != step.id
    world.store_works = True
    world.seal()
    for number in (3, 4, 5, 6):
        world.end()
        assert text_of(world.state.turns[number].input).startswith(f"{number} ")


def test_s54_a_turn_cancelled_while_the_store_has_its_input_keeps_it_there() -> None:
    world = behind(2)
    assert world.state.turns[3].input_away
    turn_ids = tuple(world.state.turn_id(number) for number in (2, 3))
    request = ReadRequest(turn_ids=turn_ids)
    shown = world.machine.read(request, world.now).turns_by_id
    assert [shown[t].input is None for t in turn_ids] == [False, True]
    world.cancel()
    world.settle(steps.StopProcess)
    world.seal()
    assert world.machine.finished
    assert [text_of(world.sealed.input_of(turn)) for turn in world.sealed.turns[1:]] == [text(2), text(3)]


def test_s54_a_cancel_waits_for_no_input_that_is_on_its_way() -> None:
    world = running()
    world.store_works = False
    for number in range(2, 5):
        world.enqueue(text(number))
    dropped = world.step(steps.SetAside)
    world.machine.take()
    world.cancel()
    assert dropped.id in world.machine.take()
    world.settle(steps.StopProcess)
    world.seal()
    assert world.machine.finished
    assert [text_of(turn.input) for turn in world.sealed.turns[1:]] == [text(n) for n in (2, 3, 4)]


def test_s95_what_the_store_has_is_let_go_of_with_the_turns_end() -> None:
    world = behind(2)
    for _ in range(2):
        world.store_works = True
        world.end()
        world.store_works = False
    assert text_of(world.state.turns[3].input) == text(3)
    world.end()
    assert world.state.turns[3].input_away
    assert world.state.settled_bytes < 1_000 + len(to_json(world.state.turns.get(2)))


def test_s13_a_turn_that_is_put_back_has_its_input_and_the_one_behind_it_lets_go() -> None:
    world = behind(3, 150_000)
    world.store_works = True
    world.end()
    world.end()
    world.store_works = False
    assert world.state.running == 3
    world.lose("not_taken")
    assert world.state.queue[0] == 3
    assert text_of(world.state.turns[3].input) == text(3, 150_000)
    assert not outstanding(world, steps.Fetch)
    assert world.state.turns[4].input_away, "without another word to the store"


def test_s57_nothing_is_fetched_under_a_hold() -> None:
    world = behind(3, limits.CONTENT_BYTES - 50)
    world.end()
    held = world.interrupt()
    world.end("stopped")
    seal_what_is_settled(world)
    assert not outstanding(world, steps.Fetch)
    assert [cause.code for cause in explanation(world).causes] == ["held"]
    world.resume(held.hold_id)
    world.ask_store(world.step(steps.Fetch))
    assert world.state.running == 3
