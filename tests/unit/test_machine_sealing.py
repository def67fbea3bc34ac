"""What leaves the state for the store: when, how much, and what waits for it."""

from datetime import timedelta

import pytest
from pydantic_core import from_json, to_json

from tests.unit.driver import START, World, code, running
from turnhold.session import calls, limits, steps
from turnhold.session.machine import Machine
from turnhold.session.model import Receipt, SessionState
from turnhold.session.views import ReadRequest

REPORT = "x" * 20_000


def seal_of(world: World) -> steps.Seal | None:
    return next((s for s in world.machine.outstanding() if isinstance(s, steps.Seal)), None)


def write_until_it_seals(world: World) -> steps.Seal:
    """The store is away; the running Turn writes until something is to be sealed."""
    world.store_works = False
    for _ in range(100):
        world.write(REPORT)
        if (seal := seal_of(world)) is not None:
            return seal
    raise AssertionError("nothing is ever sealed")


def test_s83_a_short_session_seals_nothing_before_it_ends_and_then_all_at_once() -> None:
    world = running()
    world.store_works = False
    for _ in range(5):
        world.write("some output")
        world.enqueue()
        world.end()
    assert seal_of(world) is None
    world.cancel()
    world.settle(steps.StopProcess)
    assert not world.machine.finished, "it does not end before the store has it"
    assert seal_of(world) is not None
    world.seal()
    assert world.machine.finished
    assert world.sealed.record is not None
    assert [event.sequence for event in world.sealed.events] == list(range(1, world.state.last_sequence + 1))
    assert [turn.sequence for turn in world.sealed.turns] == [1, 2, 3, 4, 5, 6]
    assert world.state.timeline == []
    assert (world.state.tail_bytes, world.state.settled_bytes) == (0, 0)


def test_s3_s83_what_is_accepted_after_the_last_record_is_in_another_one() -> None:
    world = running()
    world.cancel()
    world.settle(steps.StopProcess)
    assert world.machine.finished
    world.store_works = False
    receipt = world.cancel()
    assert receipt.status == "accepted"
    assert not world.machine.finished
    world.seal()
    assert world.machine.finished
    assert world.sealed.record is not None
    request = ReadRequest(request_ids=(receipt.request_id,))
    assert Machine(world.sealed.record).read(request, world.now).receipts[receipt.request_id] == receipt


def test_s80_the_oldest_events_are_sealed_and_the_newest_stay() -> None:
    world = running()
    seal = write_until_it_seals(world)
    assert seal.events[0] == 0
    call = calls.seal(world.state, seal)
    world.write("later")
    assert calls.seal(world.state, seal) == call, "what a step takes never changes"
    world.seal()
    assert [event.sequence for event in world.sealed.events] == list(range(1, seal.events[1] + 1))
    assert world.state.timeline[0].sequence == seal.events[1] + 1
    assert 20_000 < world.state.tail_bytes <= limits.TAIL_KEPT_BYTES + 20_000
    assert world.state.tail_bytes == sum(len(to_json(event)) for event in world.state.timeline)


def test_s80_an_event_larger_than_all_the_room_is_sealed_too() -> None:
    world = running()
    world.write("x" * (limits.OUTPUT_FRAGMENT_BYTES - 100))
    assert world.state.tail_after == world.state.last_sequence


def test_s10_no_turn_begins_while_the_store_does_not_take_what_earlier_ones_left() -> None:
    world = running()
    seal = write_until_it_seals(world)
    while world.state.tail_bytes <= limits.TAIL_BYTES:
        world.write(REPORT)
    world.enqueue()
    world.end()
    assert world.statuses() == ["completed", "queued"]
    assert world.interrupt().status == "accepted", "a control needs no store"
    assert world.resume(next(iter(world.state.holds))).status == "accepted"
    assert world.enqueue().status == "accepted"
    assert world.statuses() == ["completed", "queued", "queued"]
    explanation = world.machine.read(ReadRequest(explain=True), world.now).explanation
    assert explanation is not None
    (cause,) = explanation.causes
    assert (cause.code, cause.since) == ("store_unavailable", seal.issued_at)
    assert cause.turn_id == world.state.turn_id(2)
    world.seal()
    assert world.statuses() == ["completed", "running", "queued"], "it goes on by itself"


def test_s83_a_run_is_not_left_while_the_state_is_too_large_for_a_payload() -> None:
    world = running()
    write_until_it_seals(world)
    while len(to_json(world.state, exclude_none=True)) <= limits.CARRIED_BYTES:
        world.write(REPORT)
    assert not world.machine.may_be_carried
    world.seal()
    assert world.machine.may_be_carried
    world.roll_over()
    assert [event.sequence for event in world.events] == list(range(1, world.state.last_sequence + 1))


def test_s83_a_seal_under_way_is_carried_and_repeated() -> None:
    world = running()
    seal = write_until_it_seals(world)
    call = calls.seal(world.state, seal)
    world.roll_over()
    assert calls.seal(world.state, world.step(steps.Seal)) == call


def test_s3_what_a_closed_session_is_asked_while_it_ends_is_in_its_last_record() -> None:
    world = World()
    world.store_works = False
    world.enqueue(idempotency_key="k", fingerprint="f")
    world.cancel()
    seal = world.step(steps.Seal)
    late = world.enqueue()
    assert code(late) == "session_closed"
    replay = world.enqueue(idempotency_key="k", fingerprint="f")
    replayed = f"req_{world.requests:08d}"
    assert replay.replay
    first = calls.seal(world.state, seal)
    world.machine.step_done(seal.id, world.now)
    world.sealed.take(first)
    assert not world.machine.finished, "the record is older than these"
    world.seal()
    assert world.machine.finished
    assert world.sealed.record is not None
    record = SessionState.model_validate_json(to_json(world.sealed.record, exclude_none=True))
    wanted = ReadRequest(request_ids=(late.request_id, replayed))
    assert list(Machine(record).read(wanted, world.now).receipts.values()) == [late, replay]


@pytest.mark.parametrize("how", ["not_taken", "lost"])
def test_s83_a_seal_that_failed_for_good_is_made_again(how: steps.Failure) -> None:
    world = running()
    seal = write_until_it_seals(world)
    world.lose(how, steps.Seal)
    assert world.step(steps.Seal).id != seal.id
    assert world.state.timeline[0].sequence == 1


def test_s3_2500_receipts_fit_in_their_share_of_the_state() -> None:
    state = World().state
    for number in range(limits.RECEIPTS_MAX):
        request_id = f"req_{number:024x}"
        state.receipts[request_id] = Receipt(
            request_id=request_id,
            operation="enqueue",
            at=START + timedelta(seconds=number, milliseconds=number % 1000),
            event_sequence=1_000_000 + number,
            session_status="open",
            turn=100_000 + number,
            key=f"{number:016x}",
            fingerprint=f"{number:020x}",
        )
    document = to_json(state, exclude_none=True)
    assert len(to_json(from_json(document)["receipts"])) <= limits.RECEIPTS_BYTES
    assert SessionState.model_validate_json(document).receipts == state.receipts


def test_every_field_of_a_receipt_is_carried() -> None:
    state = World().state
    values = {
        name: "open"
        if name == "session_status"
        else START
        if name == "at"
        else 7
        if "int" in str(kind)
        else name
        for name, kind in Receipt.__annotations__.items()
    }
    state.receipts = {"request_id": Receipt.model_validate(values)}
    assert SessionState.model_validate_json(to_json(state)).receipts == state.receipts
