"""What retention drops, when, and that it is said (S-82)."""

import pytest

from tests.unit.driver import World, running
from turnhold.session import steps
from turnhold.session.views import PageRequest, ReadRequest, TurnsRequest


def write_turns(world: World, count: int) -> None:
    for _ in range(count):
        world.enqueue()
        world.write("x" * 15_000)
        world.end()


def seals(world: World) -> list[steps.Seal]:
    return [step for step in world.machine.outstanding() if isinstance(step, steps.Seal)]


def test_s82_without_a_setting_everything_is_kept() -> None:
    world = running()
    write_turns(world, 40)
    assert world.state.tail_after > 0
    assert (world.state.retained_after, world.state.event_segments) == (0, [])


def test_s82_by_count_the_oldest_whole_segments_go_and_at_least_so_many_events_stay() -> None:
    world = running(retain_events=30)
    write_turns(world, 60)
    state = world.state
    assert 0 < state.retained_after <= state.last_sequence - 30
    assert (state.removed_after, state.turns_removed_after) == (
        state.retained_after,
        state.turns_retained_after,
    ), "the store was told"
    result = world.machine.read(ReadRequest(pages=(PageRequest(),), turns=(TurnsRequest(),)), world.now)
    assert result.session.retained_after == result.pages[0].retained_after == state.retained_after
    gone = world.sealed.turns[: state.turns_retained_after]
    assert all((turn.last_event or 0) <= state.retained_after for turn in gone)


def test_s82_by_age_it_goes_without_anything_happening() -> None:
    world = running(retain_for=3600.0, hibernate_after_idle=None)
    write_turns(world, 20)
    last = world.state.event_segments[-1].last
    world.wait(3500)
    assert world.state.retained_after == 0
    world.wait(200)
    assert world.state.retained_after == last
    assert world.machine.next_deadline() is None, "nothing more is to be looked for"


def test_s82_the_boundary_moves_before_the_store_is_told_and_survives_a_roll_over() -> None:
    world = running(retain_for=60.0)
    write_turns(world, 20)
    world.store_works = False
    world.wait(100)
    (seal,) = seals(world)
    assert seal.retained_after == world.state.retained_after > 0
    assert world.state.removed_after == 0
    world.roll_over()
    assert seals(world)[0].retained_after == seal.retained_after
    world.seal()
    assert world.state.removed_after == seal.retained_after


def test_s82_by_age_the_boundary_moves_also_while_the_store_is_away() -> None:
    """Else the Session would look for it again and again, a timer each time."""
    world = running(retain_for=60.0, hibernate_after_idle=None)
    write_turns(world, 20)
    world.store_works = False
    while not seals(world):
        world.write("x" * 15_000)
    last = world.state.event_segments[-1].last
    world.wait(100)
    assert world.state.retained_after == last
    world.seal()
    world.store_works = True
    world.end()
    world.wait(100)
    assert world.state.removed_after == world.state.retained_after > last


@pytest.mark.parametrize("setting", [{"retain_events": 10}, {"retain_for": 1.0}])
def test_s82_a_closed_session_ends_and_keeps_what_it_has(setting: dict[str, float]) -> None:
    world = running(**setting)
    write_turns(world, 20)
    boundary = world.state.retained_after
    world.cancel()
    world.settle(steps.StopProcess)
    assert world.machine.finished
    assert world.sealed.record is not None
    assert world.sealed.record.retained_after >= boundary


def test_s82_places_to_cut_are_bounded_in_number() -> None:
    world = running(retain_for=1e9)
    for _ in range(3_000):
        world.write("x" * 15_000)
    assert len(world.state.event_segments) <= 200
    assert world.state.event_segments[-1].last == world.state.tail_after
