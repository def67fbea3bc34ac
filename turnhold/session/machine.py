"""The session machine: commands, facts and time in; events and steps out.

Pure and deterministic: no clock, no randomness, no I/O. It is the single writer of a Session's
queue, holds and timeline. Whatever it is given is judged on a fork of the state, which is kept
whole or thrown away whole.
"""

import logging
from collections.abc import Callable, Collection
from datetime import datetime

from turnhold.session import (
    clock,
    commands,
    controls,
    headroom,
    hosting,
    ids,
    inheritance,
    limits,
    moving,
    owner,
    ownership,
    peers,
    people,
    processes,
    reading,
    receipts,
    reports,
    sealing,
    steps,
    turns,
    waiting,
)
from turnhold.session.creation import NewSession
from turnhold.session.errors import Refused, Rejection
from turnhold.session.model import Owner, SessionState
from turnhold.session.transaction import Effect, Transaction
from turnhold.session.values import Content, milliseconds
from turnhold.session.views import Judge, ReadRequest, ReadResult, ReceiptView

Handler = Callable[[Transaction, commands.Command], Effect]


class Machine:
    """One Session.

    Args:
        state: where it stands; owned by the machine from now on.
        log: where a bug is reported; the Session goes on without what met it.
    """

    def __init__(
        self,
        state: SessionState,
        *,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger] | None = None,
    ) -> None:
        self.state = state
        self.dropped: list[int] = []
        self._log = log or logging.getLogger(__name__)

    @classmethod
    def begin(
        cls,
        session_id: str,
        new: NewSession,
        now: datetime,
        *,
        owner_state: commands.OwnerState | None = None,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger] | None = None,
    ) -> "Machine":
        """A new Session, with its first Turn if it has an input (S-1, S-5)."""
        now = milliseconds(now)
        state = SessionState(
            id=session_id,
            seed=new.seed,
            agent=new.agent,
            environment=new.environment,
            key=new.key,
            metadata=new.metadata,
            config=new.config,
            caller=new.caller,
            created_at=new.created_at,
            last_activity_at=new.created_at,
            root_id=new.root_id or session_id,
            depth=new.depth,
            owner=Owner(session_id=new.owner_id) if new.owner_id else None,
        )
        machine = cls(state, log=log)

        def create(tx: Transaction) -> None:
            first = turns.admit(tx, new.input, new.caller, new.created_at) if new.input else None
            sequence = tx.state.last_sequence
            command = commands.Create(request_id=new.request_id, caller=new.caller)
            receipts.record(tx, command, new.request_id, Effect(turn=first), sequence)
            if owner_state is not None:
                inheritance.begin(tx, owner_state)

        machine._apply(now, create)
        return machine

    # --- commands -------------------------------------------------------------------------------

    def command(self, command: commands.Command, now: datetime) -> str:
        """Judge a command, once for each request ID; answers the request ID (S-3)."""
        now = milliseconds(now)
        state = self.state
        request_id = command.request_id
        if request_id is None:
            state.commands_seen += 1
            request_id = ids.numbered("req", state.seed, state.commands_seen)
        if not self._knows(request_id):
            self._decide(command.but(request_id=request_id), request_id, now)
        return request_id

    def _decide(self, command: commands.Command, request_id: str, now: datetime) -> None:
        try:
            first = receipts.first_request(self.state, command) or people.first_answer(self.state, command)
            if first is not None:
                self._note(request_id, now, replay_of=first)
            elif isinstance(command, commands.AnswerAsk) and people.comes_late(self.state, command, now):
                self._defer(command, request_id, now)
            else:
                self._accept(command, request_id, now)
        except Refused as refused:
            self._note(request_id, now, rejection=refused.rejection())
        except Exception:
            self._log.exception("a command met a bug and was rejected: %s", command.operation)
            bug = Rejection(code="internal_error", detail="The command could not be judged; nothing changed.")
            self._note(request_id, now, rejection=bug)

    def _defer(self, command: commands.AnswerAsk, request_id: str, now: datetime) -> None:
        """Keep an answer that comes late until `_judge_late` (S-43)."""
        turns.find(self.state, command.turn_id)
        first = people.first_late(self.state, command)
        if first is not None:
            self._note(request_id, now, replay_of=first)
            return
        tx = Transaction(self.state.fork(), now)
        people.hear_host(tx, command, request_id)
        self._keep(tx)

    def _judge_late(self, now: datetime, *, heard: bool = False) -> None:
        """Judge the answers that came late: once the host is heard, or their Ask has ended."""
        for request_id, command in list(self.state.late.items()):
            ask = self.state.asks.get(command.ask_id)
            if heard or ask is None or ask.status != "pending":
                del self.state.late[request_id]
                self._decide(command.but(sent_at=None), request_id, now)

    def _note(
        self,
        request_id: str,
        now: datetime,
        *,
        rejection: Rejection | None = None,
        replay_of: str | None = None,
    ) -> None:
        """Remember what else became of a request; the last record of a closed Session has it too."""
        receipts.record_outcome(self.state, request_id, now, rejection=rejection, replay_of=replay_of)
        if self.state.status == "closed":
            self._apply(now, sealing.advance)

    def _knows(self, request_id: str) -> bool:
        state = self.state
        judged = request_id in state.receipts or request_id in state.outcomes
        return judged or reading.waits(state, request_id)

    def _accept(self, command: commands.Command, request_id: str, now: datetime) -> None:
        tx = Transaction(self.state.fork(), now)
        receipts.admit(tx.state, command, now)
        effect = _judge(tx, command)
        sequence = tx.state.last_sequence
        clock.advance(tx)
        if not effect.deferred:
            receipts.record(tx, command, request_id, effect, sequence)
            sealing.advance(tx)  # once more: a last record that has been written lacks this command
        self._keep(tx)

    def reject(self, request_id: str, rejection: Rejection, now: datetime) -> None:
        """Record that a signal made no sense, where it at least named its request (S-91)."""
        if not self._knows(request_id):
            self._note(request_id, milliseconds(now), rejection=rejection)

    def judge(self, asked: Judge, now: datetime) -> ReceiptView:
        """What would become of a command now; nothing happens."""
        command = commands.PUBLIC[asked.operation].model_validate(asked.command)
        trial = Machine(self.state.fork(), log=self._log)
        request_id = trial.command(command, now)
        view = reading.receipt(trial.state, request_id)
        assert view is not None
        return view

    # --- facts ----------------------------------------------------------------------------------

    def process_started(self, step_id: int, result: hosting.StartProcessResult, now: datetime) -> None:
        def fact(tx: Transaction) -> None:
            step = tx.finish(step_id)
            if not isinstance(step, steps.StartProcess):
                return
            if result.status == "started":
                processes.started(tx, step, result)
            else:
                at_once = result.status == "agent_not_found"
                processes.not_started(tx, step, result.detail, at_once=at_once)

        self._apply(now, fact)

    def turn_ended(self, step_id: int, outcome: hosting.TurnOutcome, now: datetime) -> None:
        def fact(tx: Transaction) -> None:
            step = tx.finish(step_id)
            if isinstance(step, steps.RunTurn):
                reports.turn_ended(tx, step, outcome)

        self._apply(now, fact)

    def step_failed(self, step_id: int, how: steps.Failure, now: datetime) -> None:
        """A step could not be carried out, for a reason of the host or of Temporal."""

        def fact(tx: Transaction) -> None:
            match tx.finish(step_id), how:
                case steps.StartProcess() as step, "refused":
                    processes.start_refused(tx, step)
                case steps.StartProcess() as step, _:
                    processes.lost_while_starting(tx, step)
                case steps.RunTurn() as step, "not_taken" | "refused":
                    reports.turn_not_dispatched(tx, step, refused=how == "refused")
                case steps.RunTurn() as step, "suspected":
                    reports.turn_suspected(tx, step)
                case steps.RunTurn() as step, "unheard" if not step.attach:
                    reports.turn_suspected(tx, step)
                case steps.RunTurn() as step, _:
                    reports.turn_lost(tx, step)
                case steps.Seal() | steps.SetAside() | steps.Fetch(), _:
                    pass  # nothing has changed, and another one does it
                case step, _ if step is not None:
                    _settle(tx, step)
                case _:
                    pass

        self._apply(now, fact)

    def step_done(self, step_id: int, now: datetime) -> None:
        """A step that answers nothing has been carried out."""

        def fact(tx: Transaction) -> None:
            step = tx.finish(step_id)
            if step is not None:
                _settle(tx, step)

        heard = isinstance(self.state.outstanding.get(step_id), steps.FindTurn)
        self._apply(now, fact)
        if heard:
            self._judge_late(milliseconds(now), heard=True)

    def fetched(self, step_id: int, content: Content, now: datetime) -> None:
        """The store has given an input back."""

        def fact(tx: Transaction) -> None:
            step = tx.finish(step_id)
            if isinstance(step, steps.Fetch):
                waiting.fetched(tx, step, content)

        self._apply(now, fact)

    def report(self, said: hosting.Report, now: datetime) -> None:
        self._apply(now, lambda tx: reports.report(tx, said))

    def begin_run(self, deployment: str, now: datetime) -> None:
        """A run begins, on a worker of this deployment; what a move had kept waiting goes on (S-4)."""
        self._apply(now, lambda tx: moving.runs_on(tx, deployment))

    def runs_on(self, deployment: str, now: datetime) -> None:
        """A worker of this deployment is at work: `NAME:BUILD`, or `unversioned` (S-4)."""
        if deployment != self.state.deployment:
            self._apply(now, lambda tx: moving.runs_on(tx, deployment))

    def cancelled(self, now: datetime) -> None:
        """Temporal's own Cancel is a Session cancel (S-90)."""
        self._apply(now, lambda tx: controls.cancel_at_once(tx, "cancel"))

    # --- facts of other Sessions ----------------------------------------------------------------

    def start_ended(self, step_id: int, start: peers.OwnedStart, now: datetime) -> None:
        """An owned or independent Session has been started, or its ID is another's."""

        def fact(tx: Transaction) -> None:
            step = tx.finish(step_id)
            if isinstance(step, steps.StartOwned):
                ownership.start_ended(tx, step, start)

        self._apply(now, fact)

    def told(self, step_id: int, told: peers.Told, now: datetime) -> None:
        """A signal to another Session has arrived, or found that Session gone."""

        def fact(tx: Transaction) -> None:
            match tx.finish(step_id):
                case steps.SendOwnerState() as step:
                    ownership.reached(tx, step, told)
                case steps.TellOwner() if not told.reached:
                    owner.gone(tx)
                case _:
                    pass

        self._apply(now, fact)

    def looked(self, step_id: int, seen: peers.Looked, now: datetime) -> None:
        """Which of the Sessions that were looked for are no more (S-75)."""
        step = self.state.outstanding.get(step_id)

        def fact(tx: Transaction) -> None:
            match tx.finish(step_id):
                case steps.LookForOwned():
                    ownership.gone(tx, seen.ended)
                case steps.LookForOwner() as step:
                    owner.looked(tx, step, seen)
                case _:
                    pass

        self._apply(now, fact)
        if isinstance(step, steps.LookForOwner):
            self._resume(step, now)

    def _resume(self, step: steps.LookForOwner, now: datetime) -> None:
        """Judge the command that has waited for this look at the owner (S-52)."""
        if step.resume is None:
            return
        command = commands.Resume.model_validate(step.resume)
        rejection = controls.owned_by_ancestor(self.state, command.hold_id)
        if rejection is None:
            self.command(command, now)
        else:
            self.reject(command.request_id or "", rejection, now)

    def doubt(self, session_id: str, now: datetime) -> None:
        """Temporal says that an owned Session has ended, which may not have said so itself."""
        self._apply(now, lambda tx: ownership.doubt(tx, session_id))

    def owner_said(self, said: commands.OwnerState, now: datetime) -> None:
        self._apply(now, lambda tx: inheritance.inherit(tx, said))

    def owned_said(self, said: commands.OwnedReport, now: datetime) -> None:
        self._apply(now, lambda tx: ownership.owned_reported(tx, said))

    # --- time -----------------------------------------------------------------------------------

    def tick(self, now: datetime) -> None:
        self._apply(now, clock.tick)

    def next_deadline(self) -> datetime | None:
        """When to call `tick` next, if nothing else happens."""
        return clock.next_deadline(self.state)

    # --- the rest -------------------------------------------------------------------------------

    def take(self) -> list[int]:
        """The IDs of the steps dropped since the last call."""
        dropped, self.dropped = self.dropped, []
        return dropped

    def outstanding(self) -> list[steps.Step]:
        """Every step whose fact is missing: what is under way or to be begun, also by a new run."""
        return list(self.state.outstanding.values())

    @property
    def finished(self) -> bool:
        """Closed, nothing is under way any more, and the store has it all: the workflow may complete."""
        state = self.state
        return sealing.is_ending(state) and not state.outstanding and state.recorded == state.judged

    @property
    def leaving(self) -> bool:
        """The next run shall be on the current version of the workers, whichever that is (S-4)."""
        return moving.leaving(self.state)

    def read(self, request: ReadRequest, now: datetime, used: headroom.Used | None = None) -> ReadResult:
        result = reading.read(self.state, request)
        if request.headroom and used is not None and self.state.status != "closed":
            measured = headroom.left(self.state, used)
            result = result.but(session=result.session.but(headroom=measured))
        if request.judge is not None:
            result = result.but(judged=self.judge(request.judge, now))
        return result

    def carry(self, begun: Collection[int]) -> SessionState:
        """The state as the next run gets it, once it `may_be_carried`.

        `begun` are the outstanding steps that this run has handed to Temporal: a Turn among them
        may have begun, so its next dispatch is no first one (S-13).
        """
        state = self.state.fork()
        for step_id, step in state.outstanding.items():
            if isinstance(step, steps.RunTurn) and step_id in begun:
                state.outstanding[step_id] = step.but(first=False)
        ownership.unwatch(state)
        if self.leaving:
            state.moving_to = None
        sealing.trim(state, sealing.carried_bytes(state))
        return state

    @property
    def may_be_carried(self) -> bool:
        """Whether the next run can be handed the state: it is small enough for one payload."""
        return sealing.carried_bytes(self.state) <= limits.CARRIED_BYTES

    def _apply(self, now: datetime, change: Callable[[Transaction], None]) -> None:
        tx = Transaction(self.state.fork(), milliseconds(now))
        try:
            change(tx)
            clock.advance(tx)
        except Exception:
            self._log.exception("a fact met a bug and was dropped")
            return
        self._keep(tx)

    def _keep(self, tx: Transaction) -> None:
        self.state = tx.state
        self.dropped += tx.dropped
        self._judge_late(tx.now)


def _judge(tx: Transaction, command: commands.Command) -> Effect:
    match command:
        case commands.Enqueue():
            return _enqueue(tx, command)
        case commands.Send():
            return _send(tx, command)
        case commands.Interrupt():
            return controls.interrupt(tx, command)
        case commands.Resume():
            return controls.resume(tx, command)
        case commands.Close():
            return controls.close(tx, command)
        case commands.Cancel():
            return controls.cancel(tx, command)
        case commands.AnswerAsk():
            return _answer(tx, command)
        case commands.Spawn():
            return ownership.spawn(tx, command)
        case commands.Move():
            return moving.move(tx, command)
        case _:
            raise Refused("not_implemented", f"`{command.operation}` is not a command.")


def _enqueue(tx: Transaction, command: commands.Enqueue) -> Effect:
    owner.authorize(tx.state, command.caller)
    sequence = turns.admit(tx, command.input, command.caller)
    tx.state.admission_tokens += 1
    return Effect(turn=sequence)


def _send(tx: Transaction, command: commands.Send) -> Effect:
    """Deliver to exactly that Turn; the declared fallback is decided here, once (S-30)."""
    state = tx.state
    owner.authorize(state, command.caller)
    sequence = turns.find(state, command.turn_id)
    turns.refuse_if_closed(state)
    turn = turns.running_as(state, sequence)
    if turn is not None and turn.accepts_messages:
        turns.require_room(state, command.content)
        return people.admit_message(tx, sequence, command)
    if command.fallback == "enqueue":
        made = turns.admit(tx, command.content, command.caller)
        state.admission_tokens += 1
        return Effect(turn=made)
    if turn is None:
        raise turns.not_running(state, sequence)
    raise Refused("turn_not_accepting_messages", f"Turn {command.turn_id} {people.why_deaf(turn)}.")


def _answer(tx: Transaction, command: commands.AnswerAsk) -> Effect:
    owner.authorize(tx.state, command.caller)
    turns.find(tx.state, command.turn_id)
    return people.answer(tx, command)


def _settle(tx: Transaction, step: steps.Step) -> None:
    match step:
        case steps.StopProcess():
            processes.stopped(tx, step)
        case steps.DeliverMessage():
            people.message_handed(tx, step)
        case steps.Seal():
            sealing.sealed(tx, step)
        case steps.SetAside():
            waiting.set_aside(tx, step)
        case _:
            pass
