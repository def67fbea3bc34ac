"""Sessions that own Sessions, and a network between them that delays, reorders and repeats.

Every step of every machine becomes actions that happen one by one, in whatever order is drawn. So
signals overtake each other, starts are confirmed late, runs roll over in between, and operators
terminate whom they like.
"""

import logging
import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import to_json

from tests.unit.driver import START, Sealed
from turnhold.session import calls, commands, hosting, ownership, peers, steps
from turnhold.session.creation import Config, NewSession
from turnhold.session.machine import Machine
from turnhold.session.model import Event, SessionState, Turn
from turnhold.session.values import Origin, TextPart
from turnhold.session.views import ReadRequest, ReceiptView

ROOT = "ses_root"
Action = Callable[[], None]


class LoudLog(logging.Logger):
    """A machine that meets a bug logs it and goes on; here it is the end."""

    def exception(self, msg: object, *args: object, **kwargs: Any) -> None:  # type: ignore[override]
        raise AssertionError(str(msg) % args)


class Family:
    """All Sessions by ID. `actions` are what is under way."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self.now = START
        self.dice = dice or random.Random(0)
        self.machines: dict[str, Machine] = {}
        self.terminated: set[str] = set()
        self.actions: list[Action] = []
        self.stubborn: set[str] = set()  # whose handler does not stop
        self._runs: dict[str, int] = {}
        self._begun: dict[str, set[int]] = {}
        self.sealed: dict[str, Sealed] = {}
        self._requests = 0
        self._begin(ROOT, self._new(), None)

    # --- callers --------------------------------------------------------------------------------

    def request_id(self) -> str:
        self._requests += 1
        return f"req_{self._requests:08d}"

    def give(self, session_id: str, command: commands.Command) -> ReceiptView | None:
        """Give a command; its receipt, if it has one already."""
        command = command.but(request_id=command.request_id or self.request_id())
        machine = self.machines[session_id]
        machine.command(command, self.now)
        self._carry_out(session_id)
        return self.receipt(session_id, command.request_id or "")

    def receipt(self, session_id: str, request_id: str) -> ReceiptView | None:
        read = self.machines[session_id].read(ReadRequest(request_ids=(request_id,)), self.now)
        return read.receipts.get(request_id)

    def spawn(
        self, spawner: str, key: str | None = "k", text: str = "work", **changes: Any
    ) -> tuple[str, ReceiptView | None]:
        """Spawn for the running Turn; the request ID, and the receipt if it is there."""
        state = self.machines[spawner].state
        request_id = self.request_id()
        fields = {
            "turn_id": state.turn_id(state.running or 1),
            "epoch": state.process.epoch,
            "session": self._new(text, changes.pop("session_key", None)),
            "fingerprint": text[:64],
        } | changes
        command = commands.Spawn(request_id=request_id, idempotency_key=key, **fields)
        return request_id, self.give(spawner, command)

    def child(self, spawner: str, key: str = "k", **changes: Any) -> str:
        """Spawn, and let everything under way happen; the new Session's ID."""
        request_id, _ = self.spawn(spawner, key, **changes)
        self.settle()
        receipt = self.receipt(spawner, request_id)
        assert receipt is not None
        assert receipt.status == "accepted", receipt
        assert receipt.spawned_id
        return receipt.spawned_id

    def interrupt(self, session_id: str, **fields: Any) -> str:
        receipt = self.give(session_id, commands.Interrupt(**fields))
        assert receipt is not None
        assert receipt.hold_id, receipt
        return receipt.hold_id

    def resume(self, session_id: str, hold_id: str, **fields: Any) -> str | None:
        """Release a hold; the code with which that is refused."""
        request_id = self.request_id()
        self.give(session_id, commands.Resume(request_id=request_id, hold_id=hold_id, **fields))
        self.settle()
        receipt = self.receipt(session_id, request_id)
        assert receipt is not None
        return receipt.rejection.code if receipt.rejection else None

    # --- what happens to them -------------------------------------------------------------------

    def end_turn(self, session_id: str, how: str = "completed") -> None:
        """The running Turn's handler ends."""
        state = self.machines[session_id].state
        if session_id in self.terminated or state.running is None:
            return
        outcome = hosting.TurnOutcome.model_validate(
            {
                "epoch": state.process.epoch,
                "turn_id": state.turn_id(state.running),
                "first": state.process.next_fact,
                "how": how,
            }
        )
        step = next(s for s in state.outstanding.values() if isinstance(s, steps.RunTurn))
        self._fact(session_id, self._runs[session_id], lambda m: m.turn_ended(step.id, outcome, self.now))

    def terminate(self, session_id: str) -> None:
        """An operator ends its workflow, which says nothing of it. Its owner's run hears, if it can."""
        self.terminated.add(session_id)
        for owner_id in list(self.machines):
            self._tell_of_end(owner_id, session_id)

    def roll_over(self, session_id: str) -> None:
        """The next run gets the state as JSON, and carries out again what is outstanding."""
        machine = self.machines[session_id]
        carried = machine.carry([step.id for step in machine.outstanding()])
        again = SessionState.model_validate_json(to_json(carried, exclude_none=True))
        assert again == carried, "the state does not survive its own JSON"
        self._runs[session_id] += 1
        self.machines[session_id] = Machine(again, log=LoudLog("loud"))
        self._begun[session_id].clear()
        self._carry_out(session_id)

    def wait(self, seconds: float) -> None:
        """Time passes for all, and what is due is looked at."""
        until = self.now + timedelta(seconds=seconds)
        while (due := self._next_deadline()) is not None and due <= until:
            self.now = max(due, self.now)
            for session_id, machine in self.machines.items():
                deadline = machine.next_deadline()
                if session_id not in self.terminated and deadline and deadline <= self.now:
                    machine.tick(self.now)
                    self._carry_out(session_id)
            self.settle()
        self.now = until

    def _next_deadline(self) -> datetime | None:
        alive = [m for session_id, m in self.machines.items() if session_id not in self.terminated]
        return min((due for m in alive if (due := m.next_deadline())), default=None)

    def step(self) -> None:
        """One thing that is under way happens: any."""
        self.actions.pop(self.dice.randrange(len(self.actions)))()

    def each_step(self) -> Iterator[None]:
        """Now, and after each thing that is under way, and what comes of it, until nothing is."""
        for _ in range(100_000):
            yield
            if not self.actions:
                return
            self.step()
        raise AssertionError("they never come to rest")

    def settle(self) -> None:
        for _ in self.each_step():
            pass

    def state(self, session_id: str) -> SessionState:
        return self.machines[session_id].state

    def events(self, session_id: str) -> list[Event]:
        """The whole timeline: what was sealed, and the tail."""
        state = self.state(session_id)
        return [*self.sealed[session_id].events[: state.tail_after], *state.timeline]

    def kinds(self, session_id: str) -> list[str]:
        return [event.kind for event in self.events(session_id)]

    def turn(self, session_id: str, sequence: int) -> Turn:
        """The Turn, also one that was sealed."""
        turns = self.state(session_id).turns
        return turns[sequence] if sequence in turns else self.sealed[session_id].turns[sequence - 1]

    # --- the world ------------------------------------------------------------------------------

    def _new(self, text: str = "work", key: str | None = None) -> NewSession:
        return NewSession(
            agent="script",
            environment="default",
            seed=f"seed-{self._requests}",
            config=Config.resolve({"hibernate_after_idle": None}),
            key=key,
            input=(TextPart(text=text),),
            request_id=self.request_id(),
            created_at=self.now,
        )

    def _begin(self, session_id: str, new: NewSession, said: commands.OwnerState | None) -> None:
        self._runs[session_id] = 0
        self._begun[session_id] = set()
        self.sealed[session_id] = Sealed()
        self.machines[session_id] = Machine.begin(
            session_id, new, self.now, owner_state=said, log=LoudLog("loud")
        )
        self._carry_out(session_id)

    def _carry_out(self, session_id: str) -> None:
        begun = self._begun[session_id]
        for step in self.machines[session_id].outstanding():
            if step.id not in begun:
                begun.add(step.id)
                self._under_way(session_id, step)

    def _fact(self, session_id: str, run: int, give: Callable[[Machine], None]) -> None:
        """Something that a run waits for; a later run has asked for it anew."""
        if session_id not in self.terminated and self._runs[session_id] == run:
            give(self.machines[session_id])
            self._carry_out(session_id)

    def _later(self, *actions: Action) -> None:
        self.actions += actions

    def _under_way(self, session_id: str, step: steps.Step) -> None:
        run = self._runs[session_id]
        machine = self.machines[session_id]
        match step:
            case steps.StartProcess():
                started = hosting.StartProcessResult(status="started", queue="q", deployment="d")
                self._later(
                    lambda: self._fact(
                        session_id, run, lambda m: m.process_started(step.id, started, self.now)
                    )
                )
            case steps.StopTurn():
                self._later(lambda: self._stopped(session_id, run, step))
            case steps.StartOwned():
                self._start(session_id, run, step, ownership.snapshot(machine.state))
            case steps.SendOwnerState():
                said = ownership.snapshot(machine.state)
                self._signal(session_id, run, step, lambda m: m.owner_said(said, self.now), said.version)
            case steps.TellOwner():
                how = machine.state.closed_how
                assert how
                report = commands.OwnedReport(session_id=session_id, closed_how=how)
                self._signal(session_id, run, step, lambda m: m.owned_said(report, self.now))
            case steps.LookForOwned():
                wanted = ownership.unwatched(machine.state)
                self._later(lambda: self._look(session_id, run, step.id, wanted, self.terminated))
            case steps.LookForOwner():
                there = {s for s in self.machines if not self._ended(s)}
                ended = {step.session_id} - there
                self._later(lambda: self._look(session_id, run, step.id, (step.session_id,), ended))
            case steps.RunTurn():
                pass
            case steps.Seal():
                self._later(lambda: self._seal(session_id, run, step))
            case _:
                self._later(lambda: self._fact(session_id, run, lambda m: m.step_done(step.id, self.now)))

    def _seal(self, session_id: str, run: int, step: steps.Seal) -> None:
        if session_id not in self.terminated and self._runs[session_id] == run:
            self.sealed[session_id].take(calls.seal(self.state(session_id), step))
        self._fact(session_id, run, lambda m: m.step_done(step.id, self.now))

    def _stopped(self, session_id: str, run: int, step: steps.StopTurn) -> None:
        self._fact(session_id, run, lambda m: m.step_done(step.id, self.now))
        if session_id not in self.stubborn and self._runs[session_id] == run:
            state = self.machines[session_id].state
            if state.running == step.turn:
                self.end_turn(session_id, "stopped")

    def _start(
        self, session_id: str, run: int, step: steps.StartOwned, snapshot: commands.OwnerState
    ) -> None:
        """The child begins, and some time later the owner hears of it."""

        def begin() -> None:
            new = step.session
            known = self.machines.get(step.session_id)
            ended: peers.OwnedStart
            if known is None:
                self._begin(step.session_id, new, None if step.independent else snapshot)
                version = None if step.independent else snapshot.version
                ended = peers.OwnedStart(how="started", version=version)
            else:
                ours = known.state.caller == Origin(kind="session", id=session_id)
                ended = peers.OwnedStart(how="started" if ours else "taken")
            self._later(lambda: confirm(ended))

        def confirm(ended: peers.OwnedStart) -> None:
            self._fact(session_id, run, lambda m: m.start_ended(step.id, ended, self.now))
            self._tell_of_end(session_id, step.session_id)

        self._later(begin)

    def _tell_of_end(self, owner_id: str, session_id: str) -> None:
        """Temporal tells the run that has started a child when that ends."""
        owned = self.machines[owner_id].state.owned.values()
        watched = any(o.session_id == session_id and o.watched for o in owned)
        if watched and session_id in self.terminated:
            run = self._runs[owner_id]
            self._later(lambda: self._fact(owner_id, run, lambda m: m.doubt(session_id, self.now)))

    def _signal(
        self,
        session_id: str,
        run: int,
        step: Any,
        give: Callable[[Machine], None],
        version: int | None = None,
        *,
        again: bool = True,
    ) -> None:
        def deliver() -> None:
            there = step.session_id in self.machines and not self._ended(step.session_id)
            if there:
                give(self.machines[step.session_id])
                self._carry_out(step.session_id)
            told = peers.Told(reached=there, version=version)
            self._fact(session_id, run, lambda m: m.told(step.id, told, self.now))
            if there and again and self.dice.random() < 0.2:
                self._signal(session_id, run, step, give, version, again=False)

        self._later(deliver)

    def _ended(self, session_id: str) -> bool:
        return session_id in self.terminated or self.machines[session_id].finished

    def _look(
        self, session_id: str, run: int, step_id: int, wanted: tuple[str, ...], ended: set[str]
    ) -> None:
        seen = peers.Looked(ended=tuple(s for s in wanted if s in ended))
        self._fact(session_id, run, lambda m: m.looked(step_id, seen, self.now))


def family() -> Family:
    """A root whose Turn runs."""
    made = Family()
    made.settle()
    assert made.state(ROOT).running == 1
    return made


def code(receipt: Any) -> str | None:
    return receipt.rejection.code if receipt.rejection else None


def by(session_id: str) -> Origin:
    return Origin(kind="session", id=session_id)


def chain(made: Family, depth: int) -> list[str]:
    """A root and its descendants, one under the other."""
    found = [ROOT]
    while len(found) < depth:
        found.append(made.child(found[-1]))
    return found
