"""Whatever callers, hosts and time do, in whatever order: the rules hold."""

from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.driver import STORE_STEPS, TERMINAL, World
from turnhold.session import commands, explaining, hosting, steps
from turnhold.session.machine import Machine
from turnhold.session.model import Event, TurnError
from turnhold.session.questions import Answer, TextControl
from turnhold.session.values import Content, Origin, TextPart
from turnhold.session.views import CauseCode, ReadRequest, ReceiptView


class Observer:
    """Reads the timeline as any follower does, and believes nothing else."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self.status: dict[str, str] = {}
        self.order: list[str] = []
        self.holds: set[str] = set()
        self.closed = False
        self.open_messages: dict[str, str] = {}
        self.open_asks: dict[str, str] = {}
        self.epochs: dict[str, int] = {}

    def follow(self, timeline: list[Event]) -> None:
        for event in timeline:
            if self.seen and event.sequence <= self.seen[-1].sequence:
                assert event == self.seen[event.sequence - 1], "history was rewritten"
                continue
            assert event.sequence == len(self.seen) + 1, "S-80: a gap in the sequence"
            assert not self.closed, "S-80: session.closed is the last event"
            self.seen.append(event)
            self._check(event)

    def _check(self, event: Event) -> None:
        kind, turn = event.kind, event.turn_id
        if turn is not None:
            self._check_turn(kind, turn, event.data)
        elif kind == "session.interrupt" or (kind == "session.process_failed" and event.data["hold_id"]):
            self.holds.add(event.data["hold_id"])
        elif kind == "session.resume":
            assert event.data["hold_id"] in self.holds, "S-52: a hold is released once"
            self.holds.remove(event.data["hold_id"])
        elif kind == "session.process_stopped" and event.data["reason"] == "host_gone":
            for running in [t for t, s in self.status.items() if s == "running"]:
                self.status[running] = "queued"  # S-13: back to the front
        elif kind == "session.closed":
            self.closed = True
            unsettled = [t for t, s in self.status.items() if s in ("queued", "running")]
            assert not unsettled, "a closed Session has settled its Turns"

    def _check_turn(self, kind: str, turn: str, data: dict[str, Any]) -> None:
        before = self.status.get(turn)
        assert before not in TERMINAL, f"S-16: {kind} after the Turn's end"
        if kind == "turn.queued":
            assert before is None
            assert data["sequence"] == len(self.status) + 1, "Turns are numbered as they are admitted"
            self.status[turn] = "queued"
        elif kind == "turn.running":
            assert before in ("queued", "running")
            others = [t for t, s in self.status.items() if s == "running" and t != turn]
            assert not others, "S-10: one Turn at a time"
            assert not self.holds, "S-57: no turn.running under a hold"
            if turn not in self.order:
                self.order.append(turn)
            if turn in self.epochs:
                assert data["process_epoch"] > self.epochs[turn], "S-13: only in a newer Process"
            self.epochs[turn] = data["process_epoch"]
            self.status[turn] = "running"
        elif kind in TERMINAL:
            assert turn not in self.open_messages.values(), "S-33: an open message behind a Turn's end"
            assert turn not in self.open_asks.values(), "a pending Ask behind a Turn's end"
            if kind in ("turn.completed", "turn.failed"):
                assert before == "running"
            self.status[turn] = kind
        elif kind == "message.admitted":
            self.open_messages[data["message_id"]] = turn
        elif kind in ("message.delivered", "message.rejected"):
            assert self.open_messages.pop(data["message_id"]) == turn
        elif kind == "ask.created":
            self.open_asks[data["ask_id"]] = turn
        elif kind in ("ask.answered", "ask.cancelled"):
            assert self.open_asks.pop(data["ask_id"]) == turn, "S-41: an Ask is settled once"
        else:
            assert before == "running", f"{kind} of a Turn that does not run"


class SessionMachine(RuleBasedStateMachine):
    """Random commands, facts, losses, roll-overs and time."""

    @initialize(
        text=st.sampled_from(["", "work"]),
        close=st.sampled_from([None, 30]),
        hibernate=st.sampled_from([None, 10]),
        duration=st.sampled_from([None, 20]),
        queue_limit=st.sampled_from([3, 1000]),
        retain=st.sampled_from([None, 5]),
    )
    def begin(
        self,
        text: str,
        close: int | None,
        hibernate: int | None,
        duration: int | None,
        queue_limit: int,
        retain: int | None,
    ) -> None:
        self.world = World(
            text,
            close_after_idle=close,
            hibernate_after_idle=hibernate,
            max_turn_duration=duration,
            stop_deadline=5,
            queue_limit=queue_limit,
            retain_for=retain,
        )
        self.world.store_works = False
        self.observer = Observer()
        self.receipts: dict[str, ReceiptView] = {}
        self.given: list[commands.Command] = []
        self.inputs: dict[str, Content] = {}
        if text:
            self.inputs[self.world.state.turn_id(1)] = (TextPart(text=text),)
        self.tokens = 1
        self.asked = 0
        self.messages: list[str] = []
        self.deployments = 1
        self.world.machine.runs_on("shop:1", self.world.now)
        if text:
            self.world.start()

    def _give(self, command: commands.Command) -> ReceiptView:
        assert command.request_id is not None
        before = self.world.state.last_sequence
        receipt = self.world.give(command)
        self.receipts[command.request_id] = receipt
        self.given.append(command)
        if receipt.status == "rejected":
            assert self.world.state.last_sequence == before, "a rejection changes nothing"
        elif not receipt.replay and command.operation == "enqueue":
            self.tokens += 1
        if receipt.sequence is not None and not receipt.replay:
            self.inputs[receipt.turn_id or ""] = (
                command.content if isinstance(command, commands.Send) else command.input
            )
        return receipt

    # --- callers --------------------------------------------------------------------------------

    @rule(key=st.sampled_from([None, "a", "b"]), text=st.sampled_from(["one", "two", "three" * 12]))
    def enqueue(self, key: str | None, text: str) -> None:
        command = commands.Enqueue(
            request_id=self.world.request_id(),
            idempotency_key=key,
            fingerprint=text if key else None,
            input=(TextPart(text=text),),
        )
        earlier = [
            c
            for c in self.given
            if key and c.idempotency_key == key and self.receipts[c.request_id or ""].status == "accepted"
        ]
        receipt = self._give(command)
        if earlier:
            if earlier[0].fingerprint == text:
                first = self.receipts[earlier[0].request_id or ""]
                assert receipt == first.but(replay=True), "S-3: an exact retry answers the first receipt"
            else:
                assert receipt.rejection is not None
                assert receipt.rejection.code == "idempotency_conflict"

    @rule(count=st.integers(2, 6))
    def enqueue_several(self, count: int) -> None:
        """More than the state has room for, unless the store takes some."""
        for number in range(count):
            given = (TextPart(text=f"{number} ".ljust(60, "x")),)
            self._give(commands.Enqueue(request_id=self.world.request_id(), input=given))

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """The same signal delivered twice changes nothing."""
        if not self.given:
            return
        command = data.draw(st.sampled_from(self.given))
        before = self.world.state.last_sequence
        self.world.give(command)
        assert self.world.state.last_sequence == before

    @rule(data=st.data(), fallback=st.sampled_from([None, "enqueue"]))
    def send(self, data: st.DataObject, fallback: Any) -> None:
        turn = data.draw(st.integers(1, max(self.world.state.turns_admitted, 1)))
        command = commands.Send(
            request_id=self.world.request_id(),
            turn_id=self.world.state.turn_id(turn),
            content=(TextPart(text="note"),),
            fallback=fallback,
        )
        receipt = self._give(command)
        if receipt.message_id:
            self.messages.append(receipt.message_id)
        elif receipt.status == "accepted":
            self.tokens += 1

    @rule(data=st.data())
    def interrupt_turn(self, data: st.DataObject) -> None:
        turn = data.draw(st.integers(1, max(self.world.state.turns_admitted, 1)))
        runs = self.world.state.running == turn
        receipt = self._give(
            commands.Interrupt(request_id=self.world.request_id(), turn_id=self.world.state.turn_id(turn))
        )
        assert (receipt.status == "accepted") == runs

    @rule()
    def interrupt_session(self) -> None:
        is_open = self.world.state.status == "open" and len(self.world.state.holds) < 100
        receipt = self._give(commands.Interrupt(request_id=self.world.request_id()))
        assert (receipt.status == "accepted") == is_open

    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        holds = [*self.world.state.holds, "hld_nothinghere"]
        hold_id = data.draw(st.sampled_from(holds))
        receipt = self._give(commands.Resume(request_id=self.world.request_id(), hold_id=hold_id))
        if hold_id != "hld_nothinghere":
            assert receipt.status == "accepted"
            assert hold_id not in self.world.state.holds

    @precondition(lambda self: len(self.given) > 8)
    @rule()
    def close(self) -> None:
        assert self._give(commands.Close(request_id=self.world.request_id())).status == "accepted"
        held = self.world.state.holds
        assert not (held and self.world.state.queue), "S-53: close does not wait on a hold"

    @precondition(lambda self: len(self.given) > 12)
    @rule()
    def cancel(self) -> None:
        assert self._give(commands.Cancel(request_id=self.world.request_id())).status == "accepted"
        assert self.world.state.status == "closed"

    @rule(data=st.data(), text=st.sampled_from(["yes", ""]), late=st.booleans())
    def answer(self, data: st.DataObject, text: str, late: bool) -> None:
        asks = list(self.world.state.asks)
        if not asks:
            return
        ask_id = data.draw(st.sampled_from(asks))
        ask = self.world.state.asks[ask_id]
        waiting = dict(self.world.state.late)
        receipt = self._give(
            commands.AnswerAsk(
                request_id=self.world.request_id(),
                turn_id=self.world.state.turn_id(ask.turn),
                ask_id=ask_id,
                answer=Answer(text=text),
                caller=Origin(kind="api_key", id="someone"),
                sent_at=self.world.now - timedelta(seconds=60 if late else 0),
            )
        )
        behind = [c for c in waiting.values() if c.ask_id == ask_id]
        assert (receipt.status != "rejected") == (ask.status == "pending" and text == "yes" and not behind)
        assert (receipt.status == "pending") == (receipt.status != "rejected" and late)

    # --- hosts and Temporal -----------------------------------------------------------------------

    @rule(data=st.data())
    def settle_a_step(self, data: st.DataObject) -> None:
        outstanding = self.world.machine.outstanding()
        if not outstanding:
            return
        step = data.draw(st.sampled_from(outstanding))
        machine, now = self.world.machine, self.world.now
        match step:
            case steps.StartProcess():
                status = data.draw(st.sampled_from(["started"] * 4 + ["init_failed", "suspected", "refused"]))
                if status in ("suspected", "refused"):
                    machine.step_failed(step.id, status, now)
                else:
                    result = {"status": status, "queue": "host", "deployment": "unversioned"}
                    machine.process_started(step.id, hosting.StartProcessResult.model_validate(result), now)
            case steps.RunTurn():
                self._settle_turn(step, data)
            case steps.Seal() | steps.SetAside() | steps.Fetch():
                self._settle_with_store(step, data)
            case _:
                if data.draw(st.booleans()):
                    machine.step_done(step.id, now)
                else:
                    machine.step_failed(step.id, "not_taken", now)

    def _settle_with_store(self, step: steps.Step, data: st.DataObject) -> None:
        """The store does it, or does it and nobody hears of that, or does not."""
        how = data.draw(st.sampled_from(["done", "done", "unheard", "failed"]))
        if how == "failed":
            self.world.machine.step_failed(step.id, "lost", self.world.now)
        else:
            self.world.ask_store(step, heard=how == "done")

    @rule(turns=st.integers(0, 3))
    def the_store_keeps_up(self, turns: int) -> None:
        """It does all that is asked of it, and so many Turns come to their end."""
        self.world.seal()
        for _ in range(turns):
            if any(isinstance(step, steps.RunTurn) for step in self.world.machine.outstanding()):
                self.world.end()
                self.world.seal()

    def _settle_turn(self, step: steps.RunTurn, data: st.DataObject) -> None:
        world = self.world
        how = data.draw(
            st.sampled_from(
                ["completed"] * 3
                + ["failed", "stopped", "died", "not_taken", "refused", "unheard", "suspected", "lost"]
            )
        )
        if how in ("not_taken", "refused", "unheard", "suspected", "lost"):
            world.machine.step_failed(step.id, how, world.now)
            return
        process = data.draw(st.sampled_from(["live", "live", "worker_shutdown"]))
        world.machine.turn_ended(
            step.id,
            hosting.TurnOutcome(
                epoch=step.epoch,
                turn_id=world.state.turn_id(step.turn),
                first=world.state.process.next_fact,
                facts=(hosting.OutputWritten(content=(TextPart(text="end"),)),),
                how=how,
                error=TurnError(code="handler_failed", type="E", message="m") if how == "failed" else None,
                state={"turn": step.turn},
                process=process,
            ),
            world.now,
        )

    @precondition(lambda self: self.world.state.running is not None)
    @rule()
    def listen(self) -> None:
        """The running Turn takes messages, and somebody sends one."""
        self.world.say(hosting.HandlerRegistered())
        running = self.world.state.running
        assert running is not None
        receipt = self.world.send(running)
        if receipt.message_id:
            self.messages.append(receipt.message_id)

    @precondition(lambda self: self.world.state.process.status == "live")
    @rule(
        data=st.data(),
        stale=st.booleans(),
        back=st.integers(0, 2),
        what=st.sampled_from(
            ["output", "handler", "ask", "withdraw", "start", "deliver", "reject", "return", "gone"]
        ),
    )
    def report(self, data: st.DataObject, stale: bool, back: int, what: str) -> None:
        state = self.world.state
        message = data.draw(st.sampled_from(self.messages)) if self.messages else "msg_none"
        self.asked += 1
        fact: Any = {
            "output": hosting.OutputWritten(content=(TextPart(text="x"),)),
            "handler": hosting.HandlerRegistered(),
            "ask": hosting.AskCreated(
                ask_id=f"ask_{self.asked:08d}", prompt="?", control=TextControl(), timeout=7
            ),
            "withdraw": hosting.AskWithdrawn(ask_id=f"ask_{self.asked - 1:08d}"),
            "start": hosting.MessageStarted(message_id=message),
            "deliver": hosting.MessageSettled(message_id=message),
            "reject": hosting.MessageSettled(message_id=message, reason="no"),
            "return": hosting.FunctionReturned(),
            "gone": hosting.ProcessGone(reason="worker_shutdown"),
        }[what]
        before = state.last_sequence
        first = max(state.process.next_fact - back, 1)
        self.world.say(fact, first=first, epoch=state.process.epoch - 1 if stale else None)
        if stale or first < state.process.next_fact:
            assert self.world.state.last_sequence == before, "S-16: a late or repeated fact is dropped"

    @rule(seconds=st.sampled_from([0.5, 1, 3, 11, 40]))
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    @rule(begun=st.booleans())
    def roll_over(self, begun: bool) -> None:
        before, leaving = self.world.state.last_sequence, self.world.machine.leaving
        self.deployments += leaving
        self.world.roll_over(None if begun else [], f"shop:{self.deployments}")
        moved = leaving and self.world.state.status != "closed"
        assert self.world.state.last_sequence == before + moved, "a roll-over is no event, a move is one"

    @rule()
    def move(self) -> None:
        state = self.world.state
        idle = state.running is None and (not state.queue or bool(state.holds))
        receipt = self._give(commands.Move(request_id=self.world.request_id(), to="shop:next"))
        under_way = state.moving_to is not None
        assert (receipt.status == "accepted") == (state.status != "closed" and (idle or under_way))

    # --- the rules --------------------------------------------------------------------------------

    @invariant()
    def the_rules_hold(self) -> None:
        self.observer.follow(self.world.events)
        self._the_session_agrees_with_its_timeline()
        self._receipts_never_change()
        self._what_people_said_is_on_its_way()
        self._no_input_is_lost()
        self._there_is_always_a_way_on()
        self._what_stands_still_is_explained()

    def _receipts_never_change(self) -> None:
        for request_id, receipt in self.receipts.items():
            now = self.world.receipt(request_id)
            assert now == receipt or receipt.status == "pending", "S-3"
            self.receipts[request_id] = now

    def _the_session_agrees_with_its_timeline(self) -> None:
        state = self.world.state
        assert state.closed_how is None or self.observer.closed
        if state.status != "closed":
            assert set(state.holds) == self.observer.holds
        else:
            assert not state.holds
        assert state.admission_tokens == self.tokens, "S-5"
        runs = [t for t, s in self.observer.status.items() if s == "running"]
        assert runs == ([] if state.running is None else [state.turn_id(state.running)])
        assert [state.turn_id(n) for n in state.queue] == [
            t for t, s in self.observer.status.items() if s == "queued"
        ], "S-10: first in, first out"
        assert self.observer.order == sorted(self.observer.order, key=list(self.observer.status).index), (
            "S-10: dispatched in the order of admission"
        )

    def _no_input_is_lost(self) -> None:
        """Every Turn shows what was given, and none begins without it."""
        state, sealed = self.world.state, self.world.sealed
        for sequence, turn in state.turns.items():
            assert sealed.input_of(turn) == self.inputs[state.turn_id(sequence)]
        turn = state.running_turn
        assert turn is None or not turn.input_away
        at_work = [s for s in state.outstanding.values() if isinstance(s, steps.SetAside | steps.Fetch)]
        assert len({step.kind for step in at_work}) == len(at_work), "one of each at a time"
        assert not at_work or state.queue

    def _what_people_said_is_on_its_way(self) -> None:
        state = self.world.state
        waiting = [message_id for message_id, message in state.messages.items() if not message.handed]
        handing = [s.message_id for s in state.outstanding.values() if isinstance(s, steps.DeliverMessage)]
        open_ones = [message_id for message_id in handing if message_id in state.messages]
        assert len(handing) <= 1, "S-31: one at a time"
        assert open_ones in (waiting[:1], []), "S-31: in order"
        assert handing or not waiting, "and none is forgotten"
        assert all(state.asks[c.ask_id].status == "pending" for c in state.late.values()), "S-43"
        at_work = [s for s in state.outstanding.values() if isinstance(s, steps.AnswerAsk | steps.FindTurn)]
        assert not at_work or state.running is not None

    def _there_is_always_a_way_on(self) -> None:
        """A Session that is not idle has a step under way, or a moment at which it looks again."""
        state = self.world.state
        if state.status == "closed" or not (state.running or (state.queue and not state.holds)):
            return
        machine = self.world.machine
        assert state.outstanding or machine.leaving or machine.next_deadline() is not None

    def _what_stands_still_is_explained(self) -> None:
        explanation = explaining.explain(self.world.state)
        codes = [cause.code for cause in explanation.causes]
        assert explanation.moving or codes, "S-94: it stands still, and nothing says why"
        assert codes == sorted(codes, key=get_args(CauseCode).index), "S-94: the most decisive first"

    def teardown(self) -> None:
        """Wherever it stands, a cancel and its steps' ends finish it."""
        if not hasattr(self, "world"):
            return
        self.world.cancel()
        for _ in range(1000):
            outstanding = self.world.machine.outstanding()
            if not outstanding:
                break
            if isinstance(outstanding[0], STORE_STEPS):
                self.world.seal(1)
            else:
                self.world.machine.step_done(outstanding[0].id, self.world.now)
        assert self.world.machine.finished
        self.observer.follow(self.world.events)
        assert self.observer.closed
        self._receipts_never_change()
        self._the_store_has_it_all()

    def _the_store_has_it_all(self) -> None:
        """S-83: when the workflow completes, nothing but the store is needed to read the Session."""
        sealed = self.world.sealed
        assert sealed.events == self.observer.seen
        assert [self.world.state.turn_id(turn.sequence) for turn in sealed.turns] == list(
            self.observer.status
        )
        for turn in sealed.turns:
            assert sealed.input_of(turn) == self.inputs[self.world.state.turn_id(turn.sequence)]
        assert sealed.record is not None
        ended = Machine(sealed.record)
        for request_id, receipt in self.receipts.items():
            request = ReadRequest(request_ids=(request_id,))
            assert ended.read(request, self.world.now).receipts[request_id] == receipt


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(
    max_examples=150,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("short_tails")]
