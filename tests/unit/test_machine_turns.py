"""Turns and Processes, rule by rule."""

from datetime import timedelta

from tests.unit.driver import World, code, running
from turnhold.session import commands, hosting, limits, steps
from turnhold.session.values import TextPart


def test_s1_s5_creation_with_input_admits_turn_1_for_one_token() -> None:
    world = World("hello")
    assert world.kinds() == ["turn.queued"]
    assert world.state.admission_tokens == 1
    world.enqueue()
    assert world.state.admission_tokens == 2


def test_s1_creation_without_input_has_no_turns() -> None:
    world = World()
    assert world.kinds() == []
    assert world.machine.outstanding() == []


def test_s3_a_key_is_remembered_for_a_day_and_among_the_last_2000() -> None:
    world = World()
    first = world.enqueue(idempotency_key="k", fingerprint="f")
    world.wait(limits.RECEIPT_SECONDS - 60)
    assert world.enqueue(idempotency_key="k", fingerprint="f") == first.but(replay=True)
    world.wait(2 * limits.RECEIPT_SECONDS)
    assert world.enqueue(idempotency_key="k", fingerprint="f").replay, "the last 2,000 stay"


def test_s3_a_full_memory_refuses_new_work_and_forgets_no_key() -> None:
    world = running()
    for number in range(limits.RECEIPTS_MAX):
        world.end()
        receipt = world.enqueue(idempotency_key=f"k{number}", fingerprint="f")
        if receipt.status == "rejected":
            break
    assert code(receipt) == "session_busy"
    assert world.enqueue(idempotency_key="k0", fingerprint="f").replay
    assert world.interrupt().status == "accepted", "S-95: a control is never refused for room"
    world.resume(next(iter(world.state.holds)))
    world.wait(limits.RECEIPT_SECONDS + 1)
    assert world.enqueue(idempotency_key="new", fingerprint="f").status == "accepted"


def test_s3_a_rejection_binds_no_key() -> None:
    world = running(queue_limit=1)
    world.enqueue()
    refused = world.enqueue(idempotency_key="k", fingerprint="f")
    assert code(refused) == "queue_full"
    world.end()
    assert world.enqueue(idempotency_key="k", fingerprint="f").status == "accepted"


def test_s3_a_rejection_can_be_read_for_a_quarter_of_an_hour() -> None:
    world = World()
    refused = world.resume(None)
    world.wait(limits.OUTCOME_SECONDS - 1)
    world.enqueue()
    assert world.receipt(refused.request_id) == refused


def test_s3_however_many_rejections_come_each_can_be_read() -> None:
    world = World()
    refused = world.resume(None)
    for _ in range(limits.OUTCOMES_MAX):
        world.resume(None)
    assert world.receipt(refused.request_id) == refused


def test_s10_one_turn_at_a_time_first_in_first_out() -> None:
    world = running()
    world.enqueue()
    world.enqueue()
    assert world.statuses() == ["running", "queued", "queued"]
    world.end()
    assert world.statuses() == ["completed", "running", "queued"]
    world.end()
    world.end()
    order = [world.state.turn_id(n) for n in (1, 2, 3)]
    assert [e.turn_id for e in world.events if e.kind == "turn.running"] == order


def test_s11_enqueue_is_accepted_under_a_hold_and_rejected_while_closing() -> None:
    world = running()
    world.interrupt()
    assert world.enqueue().status == "accepted"
    world.close()
    assert code(world.enqueue()) == "session_closing"
    world.end("stopped")
    assert code(world.enqueue()) == "session_closed"


def test_s12_a_failed_turn_fails_alone() -> None:
    world = running()
    world.enqueue()
    world.end("failed")
    assert world.statuses() == ["failed", "running"]
    assert world.state.process.epoch == 1, "the Process goes on"


def test_s13_a_first_dispatch_that_nobody_took_goes_back_to_the_front() -> None:
    world = running()
    world.enqueue()
    world.lose("not_taken")
    assert world.last("session.process_stopped").data == {"process_epoch": 1, "reason": "host_gone"}
    assert world.state.process.failures == 0
    world.start()
    assert world.statuses() == ["running", "queued"]
    epochs = [e.data["process_epoch"] for e in world.events if e.kind == "turn.running"]
    assert epochs == [1, 2]


def test_s26_a_host_that_did_not_take_a_turn_is_told_to_throw_its_process_away() -> None:
    world = running()
    world.lose("not_taken")
    told = world.step(steps.StopProcess)
    assert (told.epoch, told.queue, told.abandon) == (1, "host-1", True)
    world.settle(steps.StopProcess)
    assert world.kinds().count("session.process_stopped") == 1


def test_s13_after_a_roll_over_it_is_no_first_dispatch_any_more() -> None:
    world = running()
    world.roll_over()
    world.lose("not_taken")
    assert world.last("turn.interrupted").data["reason"] == "execution_lost"


def test_s13_a_dispatch_that_never_left_the_run_is_still_the_first() -> None:
    world = running()
    world.roll_over(begun=[])
    world.lose("refused")
    assert world.statuses() == ["queued"]


def test_s13_s56_a_stopped_turn_is_not_put_back() -> None:
    world = running()
    world.interrupt(1)
    world.lose("refused")
    assert world.last("turn.interrupted").data["reason"] == "interrupt"


def test_s15_output_stands_in_order_before_the_end() -> None:
    world = running()
    world.write("one ")
    world.end(facts=[hosting.OutputWritten(content=(TextPart(text="two"),))])
    assert world.kinds()[-3:] == ["turn.output", "turn.output", "turn.completed"]
    assert world.state.turns[1].output_bytes == 7


def test_s15_a_report_that_comes_twice_counts_once() -> None:
    world = running()
    world.say(hosting.OutputWritten(content=(TextPart(text="a"),)), first=1)
    both = [hosting.OutputWritten(content=(TextPart(text=t),)) for t in "ab"]
    world.say(*both, first=1)
    assert world.kinds().count("turn.output") == 2


def test_s16_nothing_of_an_abandoned_process_appears() -> None:
    world = running(stop_deadline=2)
    world.interrupt(1)
    world.wait(2)
    before = world.state.last_sequence
    world.say(hosting.OutputWritten(content=(TextPart(text="late"),)), epoch=1)
    assert world.state.last_sequence == before


def test_s17_a_turn_past_its_duration_is_stopped_and_its_process_too() -> None:
    world = running(max_turn_duration=60)
    world.enqueue()
    world.wait(60)
    assert world.step(steps.StopTurn).reason == "turn_deadline_elapsed"
    world.end("stopped")
    assert world.last("turn.interrupted").data["reason"] == "turn_deadline_elapsed"
    assert world.statuses() == ["interrupted", "queued"]
    world.settle(steps.StopProcess)
    assert world.last("session.process_stopped").data["reason"] == "turn_deadline_elapsed"
    assert world.state.process.failures == 0
    world.start()
    assert world.statuses() == ["interrupted", "running"]


def test_s18_state_is_committed_by_completed_and_failed_turns_alone() -> None:
    world = running()
    for _ in range(3):
        world.enqueue()
    world.end(state={"n": 1})
    world.end("failed", state={"n": 2})
    assert world.state.committed == {"n": 2}
    world.interrupt(3)
    world.end("stopped", state={"n": 3})
    assert world.state.committed == {"n": 2}


def test_s20_the_second_process_says_why_it_was_made() -> None:
    world = running()
    world.enqueue()
    world.end("died", detail="it exited")
    world.wait(1)
    world.start()
    recovery = [e.data["recovery"] for e in world.events if e.kind == "session.process_started"]
    assert recovery == [{"kind": "initial"}, {"kind": "reconstructed", "reason": "process_failed"}]


def test_s21_a_dead_process_ends_its_turn_first() -> None:
    world = running()
    world.end("died", detail="it exited")
    assert world.kinds()[-2:] == ["turn.interrupted", "session.process_failed"]
    assert world.last("turn.interrupted").data == {"reason": "process_failed"}
    assert world.last("session.process_failed").data == {
        "process_epoch": 1,
        "reason": "process_failed",
        "detail": "it exited",
        "hold_id": None,
    }


def test_s22_init_failures_leave_the_turn_queued_and_back_off() -> None:
    world = World("work")
    world.fail_init()
    assert world.statuses() == ["queued"]
    assert world.machine.outstanding() == []
    world.wait(0.9)
    assert world.machine.outstanding() == []
    world.wait(0.1)
    world.fail_init()
    world.wait(1.9)
    assert world.machine.outstanding() == []
    world.wait(0.1)
    world.start()
    assert world.statuses() == ["running"]
    assert world.state.process.epoch == 3


def test_s22_a_host_lost_during_init_is_not_counted() -> None:
    world = World("work")
    world.lose("suspected", steps.StartProcess)
    assert world.state.process.failures == 0
    assert "session.process_failed" not in world.kinds()
    world.wait(1)
    world.start()
    assert world.statuses() == ["running"]


def test_s25_a_start_that_a_leaving_host_refuses_goes_to_another_at_once() -> None:
    world = World("work")
    world.lose("refused", steps.StartProcess)
    assert world.step(steps.StartProcess).epoch == 2
    world.start()
    assert world.statuses() == ["running"]
    assert world.state.process.failures == 0
    (began,) = [event for event in world.events if event.kind == "session.process_started"]
    assert began.data["recovery"] == {"kind": "initial"}, "nothing was lost"


def test_s23_the_third_failure_in_a_row_holds() -> None:
    world = World("work")
    for pause in (1, 2, 0):
        world.fail_init()
        world.wait(pause)
    failed = [e.data["hold_id"] for e in world.events if e.kind == "session.process_failed"]
    assert failed[:2] == [None, None]
    assert failed[2] in world.state.holds
    world.wait(3600)
    assert world.machine.outstanding() == [], "nothing starts under a hold"
    world.resume(failed[2])
    assert world.state.process.failures == 0
    world.start()
    assert world.statuses() == ["running"]


def test_s23_only_a_turn_that_its_handler_ended_resets_the_count() -> None:
    world = running()
    for _ in range(6):
        world.enqueue()
    world.end("died")
    world.wait(1)
    world.start()
    world.interrupt(2)
    world.end("stopped")
    assert world.state.process.failures == 1, "an interrupted Turn neither counts nor resets"
    world.end("failed")
    assert world.state.process.failures == 0


def test_s6_an_agent_that_the_worker_does_not_know_holds_at_once() -> None:
    world = World("work")
    world.fail_init("agent_not_found")
    hold_id = world.last("session.process_failed").data["hold_id"]
    assert list(world.state.holds) == [hold_id]


def test_s24_a_missed_heartbeat_is_a_suspicion_and_the_host_is_asked_once_more() -> None:
    world = running()
    world.lose("suspected")
    step = world.step(steps.RunTurn)
    assert (step.attach, step.first) == (True, False)
    assert world.statuses() == ["running"]
    world.end()
    assert world.statuses() == ["completed"]


def test_s24_a_lost_host_ends_the_turn_and_then_the_process() -> None:
    world = running()
    world.enqueue()
    world.lose("suspected")
    world.lose("not_taken")
    assert world.kinds()[-2:] == ["turn.interrupted", "session.process_failed"]
    assert world.last("turn.interrupted").data["reason"] == "execution_lost"
    world.wait(1)
    world.start()
    assert world.statuses() == ["interrupted", "running"], "not replayed; the queue goes on"


def test_s24_every_outage_is_a_suspicion_of_its_own_as_long_as_the_host_is_heard() -> None:
    world = running()
    world.lose("unheard")
    for _ in range(3):
        world.lose("suspected")
        assert world.step(steps.RunTurn).attach
    world.lose("unheard")
    assert world.last("turn.interrupted").data["reason"] == "execution_lost"


def test_s25_a_worker_that_shuts_down_is_no_failure() -> None:
    world = running()
    world.enqueue()
    world.end(process="worker_shutdown")
    assert world.kinds()[-2:] == ["turn.completed", "session.process_stopped"]
    world.start()
    world.end()
    world.say(hosting.ProcessGone(reason="worker_shutdown"))
    assert world.state.process.status == "none"
    assert world.state.process.failures == 0
    world.enqueue()
    assert world.step(steps.StartProcess).epoch == 3


def test_s22_a_process_that_makes_room_is_hibernated() -> None:
    world = running()
    world.end()
    world.say(hosting.ProcessGone(reason="hibernated"))
    assert world.last("session.process_stopped").data == {"process_epoch": 1, "reason": "hibernated"}
    assert world.state.process.failures == 0
    world.enqueue()
    world.start()
    assert world.statuses() == ["completed", "running"]


def test_s80_s81_pages_give_every_event_once_and_in_order() -> None:
    world = running()
    for number in range(50):
        world.write(str(number))
    seen: list[int] = []
    after, more = 0, True
    while more:
        page = world.page(after, limit=7)
        seen += [record.sequence for record in page.records]
        after, more = page.next_after, page.has_more
    assert seen == list(range(1, world.state.last_sequence + 1))


def test_s81_a_page_ends_at_a_mebibyte_and_is_never_empty() -> None:
    world = running()
    world.store_works = False
    for _ in range(4):
        world.write("x" * 700_000)
    page = world.page(3)
    assert len(page.records) == 1
    assert page.has_more


def test_s95_inputs_past_the_room_are_refused_before_any_wall() -> None:
    world = World()
    world.store_works = False
    receipts = [world.enqueue("x" * 200_000) for _ in range(5)]
    assert [code(r) for r in receipts] == [None, None, None, "session_busy", "session_busy"]
    assert world.cancel().status == "accepted"


def test_the_largest_state_fits_in_one_payload() -> None:
    """Everything at its limit at once, and what is carried stays under Temporal's 2 MiB."""
    from pydantic_core import to_json

    world = World()
    number = 0
    while (
        world.enqueue("x" * 150, idempotency_key=f"{number}" * 40, fingerprint="f" * 20).status != "rejected"
    ):
        number += 1
    for _ in range(limits.OUTCOMES_MAX):
        world.resume(None)
    world.state.committed = "s" * (limits.STATE_BYTES - 2)
    world.start()
    while world.state.queue and len(world.state.receipts) < limits.RECEIPTS_MAX:
        world.end(result="r" * 1000)
        number += 1
        world.enqueue("x" * 150, idempotency_key=f"{number}" * 40, fingerprint="f" * 20)
    carried = world.machine.carry([])
    assert len(to_json(carried, exclude_none=True)) < 2 * limits.MIB


def test_s3_a_command_delivered_twice_counts_once() -> None:
    world = World()
    command = commands.Enqueue(request_id=world.request_id(), input=(TextPart(text="once"),))
    first = world.give(command)
    world.now += timedelta(seconds=5)
    assert world.give(command) == first
    assert world.state.turns_admitted == 1
