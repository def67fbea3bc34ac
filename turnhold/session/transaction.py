"""One command, fact or tick while it is being judged: a fork of the state, and what comes of it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from turnhold.session.events import EventData
from turnhold.session.model import Event, Process, SessionState, Turn
from turnhold.session.steps import Step
from turnhold.session.values import Record, encoded_bytes


@dataclass(frozen=True)
class Effect:
    """What an accepted command made or touched: the parts of its receipt."""

    turn: int | None = None
    message: int | None = None
    hold_id: str | None = None
    ask_id: str | None = None
    response: str | None = None
    spawned: str | None = None
    deferred: bool = False  # a step decides: the receipt comes with its fact


class Transaction:
    """Collects changes; the machine keeps them all, or throws them all away.

    `dropped` are the IDs of outstanding steps that no longer matter.
    """

    def __init__(self, state: SessionState, now: datetime) -> None:
        self.state = state
        self.now = now
        self.dropped: list[int] = []

    def write(self, data: EventData, turn: int | None = None) -> int:
        """Append an event to the timeline; answers its sequence (S-80)."""
        state = self.state
        state.last_sequence += 1
        event = Event(
            sequence=state.last_sequence,
            created_at=self.now,
            kind=data.kind,
            turn_id=None if turn is None else state.turn_id(turn),
            data=data.json_data(),
        )
        state.timeline.append(event)
        state.tail_bytes += encoded_bytes(event)
        return state.last_sequence

    def issue(self, step: Callable[..., Step], **fields: Any) -> None:
        """Ask for a step; it stays outstanding until `finish` or `drop`."""
        self.state.steps_issued += 1
        made = step(id=self.state.steps_issued, **fields)
        self.state.outstanding[made.id] = made

    def finish(self, step_id: int) -> Step | None:
        """The outstanding step whose fact has arrived; None if it was dropped or is done."""
        return self.state.outstanding.pop(step_id, None)

    def drop(self, *kinds: type[Record]) -> None:
        """Give up the outstanding steps of these kinds: whatever comes of them is ignored."""
        for step in [s for s in self.state.outstanding.values() if isinstance(s, kinds)]:
            del self.state.outstanding[step.id]
            self.dropped.append(step.id)

    def change_turn(self, sequence: int, **changes: Any) -> Turn:
        turn = self.state.turns[sequence].but(**changes)
        self.state.turns[sequence] = turn
        return turn

    def change_process(self, **changes: Any) -> Process:
        self.state.process = self.state.process.but(**changes)
        return self.state.process
