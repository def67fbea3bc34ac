"""Spawning, rule by rule: which Sessions a Turn may start, and that a key makes one (S-70, S-71)."""

import pytest

from tests.unit.family import ROOT, by, chain, code, family
from turnhold.session import commands, limits


def test_s70_a_spawn_is_accepted_once_the_session_is_there() -> None:
    made = family()
    request_id, receipt = made.spawn(ROOT)
    assert receipt
    assert receipt.status == "pending"
    made.settle()
    receipt = made.receipt(ROOT, request_id)
    assert receipt is not None
    child = made.state(receipt.spawned_id or "")
    assert (child.depth, child.root_id, child.caller) == (2, ROOT, by(ROOT))
    assert made.kinds(ROOT).count("owned.started") == 1


@pytest.mark.parametrize("roll_over", [False, True])
def test_s70_one_spawn_key_makes_one_session_for_life(roll_over: bool) -> None:
    made = family()
    first = made.child(ROOT)
    made.end_turn(first)
    made.give(first, commands.Close())
    made.settle()
    assert not made.state(ROOT).owned, "it is closed"
    if roll_over:
        made.roll_over(ROOT)
    assert made.child(ROOT) == first
    made.end_turn(ROOT)
    made.give(ROOT, commands.Enqueue.model_validate({"input": "more"}))
    made.settle()
    assert made.child(ROOT) == first, "in another Turn too"
    assert code(made.spawn(ROOT, fingerprint="other")[1]) == "idempotency_conflict"
    assert code(made.spawn(ROOT, key=None)[1]) == "invalid_request"
    assert made.kinds(ROOT).count("owned.started") == 1


def test_s70_two_calls_at_once_with_one_key_get_one_session() -> None:
    made = family()
    requests = [made.spawn(ROOT)[0] for _ in range(2)]
    assert code(made.spawn(ROOT, fingerprint="other")[1]) == "idempotency_conflict"
    made.roll_over(ROOT)
    made.settle()
    receipts = [made.receipt(ROOT, request_id) for request_id in requests]
    assert len({r.spawned_id for r in receipts if r}) == 1
    assert len(made.machines) == 2


def test_s2_s3_a_taken_session_key_refuses_the_spawn_and_leaves_its_key_free() -> None:
    made = family()
    child = made.child(ROOT, "a", session_key="name")
    other = made.child(ROOT, "b")
    request_id, _ = made.spawn(other, "c", session_key="name")
    made.settle()
    receipt = made.receipt(other, request_id)
    assert receipt is not None
    assert receipt.rejection is not None
    assert (receipt.rejection.code, receipt.rejection.session_id) == ("session_key_conflict", child)
    assert not made.state(other).owned
    assert made.child(other, "c", text="another body") != child
    assert made.child(ROOT, "a", session_key="name") == child


def test_s70_depth_nine_and_the_101st_open_one_are_refused() -> None:
    made = family()
    deep = chain(made, limits.MAX_DEPTH)
    assert made.state(deep[-1]).depth == 8
    assert code(made.spawn(deep[-1])[1]) == "depth_limit"
    independent = made.child(deep[-1], independent=True)
    assert made.state(independent).depth == 1
    for number in range(limits.OPEN_OWNED - 1):
        made.spawn(ROOT, str(number))
    assert code(made.spawn(ROOT, "one too many")[1]) == "owned_limit"
    made.settle()
    assert code(made.spawn(ROOT, "one too many")[1]) == "owned_limit"
    assert made.child(ROOT, "i", independent=True) in made.machines
    made.give(deep[1], commands.Cancel())
    made.settle()
    assert made.child(ROOT, "one too many") in made.machines


def test_s95_a_session_starts_only_so_many_others_in_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPAWNS", 2)
    monkeypatch.setattr(limits, "STARTING_BYTES", 100)
    made = family()
    made.spawn(ROOT, "a", "x" * 100)
    assert code(made.spawn(ROOT, "b", "y")[1]) == "session_busy", "until the first one is there"
    made.settle()
    made.child(ROOT, "b", text="y")
    assert code(made.spawn(ROOT, "c")[1]) == "session_busy"
    assert made.child(ROOT, "b", text="y"), "what is known stays known"


def test_s71_a_turn_that_is_stopped_or_closing_spawns_nothing() -> None:
    for control, refusal in (
        (commands.Interrupt(turn_id=None), "turn_stopping"),
        (commands.Close(), "session_closing"),
        (commands.Cancel(), "session_closed"),
    ):
        made = family()
        made.stubborn.add(ROOT)
        child = made.child(ROOT, "before")
        made.give(ROOT, control)
        for independent in (False, True):
            assert code(made.spawn(ROOT, "after", independent=independent)[1]) == refusal
        assert made.child(ROOT, "before") == child, "an exact retry starts nothing"


def test_s71_an_older_process_or_another_turn_spawns_nothing() -> None:
    made = family()
    assert code(made.spawn(ROOT, epoch=0)[1]) == "turn_not_running"
    made.end_turn(ROOT)
    assert code(made.spawn(ROOT)[1]) == "turn_not_running"
