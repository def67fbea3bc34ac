"""A world for the machine: it settles steps as a host and Temporal would, and watches the rules."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic_core import to_json

from turnhold.session import calls, commands, hosting, ids, steps
from turnhold.session.creation import Config, NewSession
from turnhold.session.handover import SealCall, SetAsideCall
from turnhold.session.machine import Machine
from turnhold.session.model import Event, SessionState, Turn, TurnError
from turnhold.session.values import Content, TextPart
from turnhold.session.views import PageRequest, ReadRequest, ReceiptView

START = datetime(2026, 1, 1, tzinfo=UTC)
STORE_STEPS = steps.Seal | steps.SetAside | steps.Fetch
TERMINAL = {"turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled"}


class Sealed:
    """What the store was given. Repeated, it must be the same; new, it must follow."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.turns: list[Turn] = []
        self.inputs: dict[int, Content] = {}
        self.record: SessionState | None = None

    def set_aside(self, call: SetAsideCall) -> None:
        for given in call.inputs:
            known = self.inputs.setdefault(given.sequence, given.content)
            assert given.content == known, "it was written otherwise before"

    def input_of(self, turn: Turn) -> Content:
        """What a reader is shown, wherever it is."""
        return self.inputs[turn.sequence] if turn.input_away else turn.input

    def take(self, call: SealCall) -> None:
        for known, given in ((self.events, call.events), (self.turns, call.turns)):
            for item in given:
                assert item.sequence <= len(known) + 1, "a gap"
                if item.sequence > len(known):
                    assert self.record is None, "nothing new is sealed after the last record"
                    known.append(item)  # type: ignore[arg-type]
                assert item == known[item.sequence - 1], "it was written otherwise before"
        self.record = call.record or self.record


class World:
    """One Session, a clock of its own, and whoever carries out its steps.

    As long as `store_works`, what a Turn leaves is sealed before the next thing happens.
    """

    def __init__(self, text: str = "", **config: Any) -> None:
        self.store_works = True
        self.now = START
        self.requests = 0
        self.queue = "host-1"
        self.sealed = Sealed()
        new = NewSession(
            agent="script",
            environment="default",
            seed="seed",
            config=Config.resolve(config),
            input=(TextPart(text=text),) if text else (),
            request_id=self.request_id(),
            created_at=START,
        )
        self.machine = Machine.begin("ses_test", new, self.now)

    # --- what callers do ------------------------------------------------------------------------

    def request_id(self) -> str:
        self.requests += 1
        return f"req_{self.requests:08d}"

    def give(self, command: commands.Command) -> ReceiptView:
        """Give a command; its receipt."""
        request_id = self.machine.command(command, self.now)
        self._keep_up()
        return self.receipt(request_id)

    def enqueue(self, text: str = "hi", **fields: Any) -> ReceiptView:
        return self.give(
            commands.Enqueue(request_id=self.request_id(), input=(TextPart(text=text),), **fields)
        )

    def interrupt(self, turn: int | None = None) -> ReceiptView:
        turn_id = None if turn is None else self.state.turn_id(turn)
        return self.give(commands.Interrupt(request_id=self.request_id(), turn_id=turn_id))

    def resume(self, hold_id: str | None) -> ReceiptView:
        return self.give(commands.Resume(request_id=self.request_id(), hold_id=hold_id or "hld_none"))

    def close(self) -> ReceiptView:
        return self.give(commands.Close(request_id=self.request_id()))

    def cancel(self) -> ReceiptView:
        return self.give(commands.Cancel(request_id=self.request_id()))

    def move(self, to: str) -> ReceiptView:
        return self.give(commands.Move(request_id=self.request_id(), to=to))

    def send(self, turn: int, fallback: Any = None, text: str = "note") -> ReceiptView:
        return self.give(
            commands.Send(
                request_id=self.request_id(),
                turn_id=self.state.turn_id(turn),
                content=(TextPart(text=text),),
                fallback=fallback,
            )
        )

    # --- what the world does --------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Time passes, and the machine looks at what is due, in order."""
        until = self.now + timedelta(seconds=seconds)
        while (due := self.machine.next_deadline()) is not None and due <= until:
            self.now = max(due, self.now)
            self.machine.tick(self.now)
            assert self.machine.next_deadline() != due, "a timer that changes nothing would fire for ever"
        self.now = until

    def step(self, kind: type[Any]) -> Any:
        """The outstanding step of this kind."""
        found = [s for s in self.machine.outstanding() if isinstance(s, kind)]
        assert len(found) == 1, f"{len(found)} steps {kind.__name__} are outstanding"
        return found[0]

    def start(self) -> None:
        step = self.step(steps.StartProcess)
        result = hosting.StartProcessResult(status="started", queue=self.queue, deployment="unversioned")
        self.machine.process_started(step.id, result, self.now)

    def fail_init(self, status: str = "init_failed") -> None:
        step = self.step(steps.StartProcess)
        result = hosting.StartProcessResult.model_validate({"status": status, "detail": "it raised"})
        self.machine.process_started(step.id, result, self.now)

    def end(self, how: str = "completed", **fields: Any) -> None:
        """The host's word on the running Turn."""
        step = self.step(steps.RunTurn)
        if how == "failed":
            fields.setdefault("error", TurnError(code="handler_failed", type="ValueError", message="no"))
        fields.setdefault("state", self.state.committed)
        outcome = hosting.TurnOutcome.model_validate(
            {
                "epoch": step.epoch,
                "turn_id": self.state.turn_id(step.turn),
                "first": self.state.process.next_fact,
                "how": how,
                **fields,
            }
        )
        self.machine.turn_ended(step.id, outcome, self.now)
        self._keep_up()

    def lose(self, how: steps.Failure, kind: type[Any] = steps.RunTurn) -> None:
        self.machine.step_failed(self.step(kind).id, how, self.now)

    def settle(self, kind: type[Any]) -> None:
        self.machine.step_done(self.step(kind).id, self.now)
        self._keep_up()

    def _keep_up(self) -> None:
        if self.store_works:
            self.seal()

    def seal(self, times: int = 1000) -> None:
        """The store takes what the Session hands it, and gives what it asks for."""
        for _ in range(times):
            asked = [s for s in self.machine.outstanding() if isinstance(s, STORE_STEPS)]
            if not asked:
                return
            self.ask_store(asked[0])

    def ask_store(self, step: Any, *, heard: bool = True) -> None:
        """The store does what this step wants; perhaps nobody hears of it."""
        match step:
            case steps.Seal():
                self.sealed.take(calls.seal(self.state, step))
            case steps.SetAside():
                self.sealed.set_aside(calls.set_aside(self.state, step))
            case _:
                content = self.sealed.inputs[calls.fetch(self.state, step).sequence]
                if heard:
                    self.machine.fetched(step.id, content, self.now)
                return
        if heard:
            self.machine.step_done(step.id, self.now)

    def say(self, *facts: hosting.Fact, first: int | None = None, epoch: int | None = None) -> None:
        """The host reports facts of the running Turn."""
        running = self.state.running
        self.machine.report(
            hosting.Report(
                epoch=self.state.process.epoch if epoch is None else epoch,
                first=self.state.process.next_fact if first is None else first,
                turn_id=None if running is None else self.state.turn_id(running),
                facts=facts,
            ),
            self.now,
        )
        self._keep_up()

    def write(self, text: str) -> None:
        self.say(hosting.OutputWritten(content=(TextPart(text=text),)))

    def ask_id(self, number: int = 1) -> str:
        running = self.state.running
        assert running is not None
        return ids.numbered("ask", self.state.turn_id(running), number)

    def roll_over(self, begun: Iterable[int] | None = None, deployment: str | None = None) -> None:
        """The next run gets the state as JSON, and nothing else; `deployment` is another than before."""
        outstanding = [s.id for s in self.machine.outstanding()]
        carried = self.machine.carry(outstanding if begun is None else list(begun))
        again = SessionState.model_validate_json(to_json(carried, exclude_none=True))
        assert again == carried, "the state does not survive its own JSON"
        self.machine = Machine(again)
        self.machine.begin_run(deployment or again.deployment or "unversioned", self.now)

    # --- what everybody sees --------------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        return self.machine.state

    @property
    def events(self) -> list[Event]:
        """The whole timeline: what was sealed, and the tail."""
        return [*self.sealed.events[: self.state.tail_after], *self.state.timeline]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def last(self, kind: str) -> Event:
        return next(event for event in reversed(self.events) if event.kind == kind)

    def receipt(self, request_id: str) -> ReceiptView:
        read = self.machine.read(ReadRequest(request_ids=(request_id,)), self.now)
        return read.receipts[request_id]

    def page(self, after: int = 0, limit: int = 100, **fields: Any) -> Any:
        request = PageRequest(after=after, limit=limit, **fields)
        return self.machine.read(ReadRequest(pages=(request,)), self.now).pages[0]

    def statuses(self) -> list[str]:
        return [turn.status for turn in self.state.turns.values()]


def running(text: str = "work", **config: Any) -> World:
    """A Session whose first Turn runs."""
    world = World(text, **config)
    world.start()
    assert world.state.running == 1
    return world


def code(receipt: ReceiptView) -> str | None:
    """Why it was rejected; None when it was accepted."""
    return None if receipt.rejection is None else receipt.rejection.code
