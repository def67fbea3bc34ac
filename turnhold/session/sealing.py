"""Sealing: what is settled leaves the state for the store, the oldest first (S-80 to S-83).

A short Session never needs it before it ends. What a `Seal` takes is fixed when it is issued, and
stays in the state until the store has it: so nothing is lost however often it fails, and to repeat
it writes the same objects again.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from pydantic_core import to_json

from turnhold.session import limits, ownership, retention, steps
from turnhold.session.model import Ask, SessionState
from turnhold.session.transaction import Transaction
from turnhold.session.values import encoded_bytes


def advance(tx: Transaction) -> None:
    """Seal when enough has gathered, and everything at the end; one step at a time."""
    state = tx.state
    retention.apply(tx)
    if any(isinstance(step, steps.Seal) for step in state.outstanding.values()):
        return
    ending = is_ending(state)
    if ending and state.recorded == state.judged:
        return
    if not ending and not _tail_is_long(state) and state.settled_bytes <= limits.SETTLED_SEALED_AT_BYTES:
        if retention.is_behind(state):
            _issue(tx)
        return
    most = state.tail_bytes - (0 if ending else limits.TAIL_KEPT_BYTES)
    sizes = (encoded_bytes(event) for event in state.timeline)
    events, size = _take(sizes, min(most, limits.SEAL_BYTES), at_least_one=ending or _tail_is_long(state))
    most = state.settled_bytes - (0 if ending else limits.SETTLED_KEPT_BYTES)
    sizes = (encoded_bytes(turn) for turn in takewhile(lambda turn: turn.settled, state.turns.values()))
    turns, more = _take(sizes, min(most, limits.SEAL_BYTES - size), at_least_one=not events)
    left = len(state.timeline) - events + len(state.turns) - turns
    _issue(
        tx,
        events=(state.tail_after, state.tail_after + events),
        turns=(state.turns_after, state.turns_after + turns),
        record=state.judged if ending and not left and size + more <= limits.RECORD_BESIDE_BYTES else None,
    )


def _issue(tx: Transaction, **taken: Any) -> None:
    """A step that takes this, and removes what retention has dropped."""
    state = tx.state
    tx.issue(
        steps.Seal,
        issued_at=tx.now,
        **taken,
        retained_after=state.retained_after,
        turns_retained_after=state.turns_retained_after,
    )


def sealed(tx: Transaction, step: steps.Seal) -> None:
    """The store has it."""
    retention.note(tx.state, step)
    remove(tx.state, step)
    if step.record is not None:
        tx.state.recorded = step.record


def is_ending(state: SessionState) -> bool:
    """Closed, and nothing is under way but its own sealing."""
    under_way = any(not isinstance(step, steps.Seal) for step in state.outstanding.values())
    return state.status == "closed" and not under_way and ownership.settled(state)


def has_room(state: SessionState) -> bool:
    """Whether one more Turn may begin: not while the store does not take what earlier ones left."""
    return state.tail_bytes <= limits.TAIL_BYTES and state.settled_bytes <= limits.SETTLED_BYTES


def remove(state: SessionState, step: steps.Seal) -> None:
    """Let go of what `step` takes."""
    gone = max(step.events[1] - state.tail_after, 0)
    state.tail_bytes -= sum(encoded_bytes(event) for event in state.timeline[:gone])
    del state.timeline[:gone]
    for sequence in range(state.turns_after + 1, step.turns[1] + 1):
        state.settled_bytes -= encoded_bytes(state.turns.pop(sequence))
    on_their_way = {s.ask_id for s in state.outstanding.values() if isinstance(s, steps.AnswerAsk)}
    for ask_id, ask in list(state.asks.items()):
        if has_left(state, ask) and ask_id not in on_their_way:
            del state.asks[ask_id]


def has_left(state: SessionState, ask: Ask) -> bool:
    """Whether the sealed timeline tells all of it; it may still be here, on its way to its handler."""
    return ask.settled_event is not None and ask.settled_event <= state.tail_after


def record(state: SessionState, step: steps.Seal) -> SessionState:
    """The last record of a closed Session: its state, without what this step seals beside it."""
    last = state.fork()
    remove(last, step)
    last.outstanding.clear()
    trim(last, carried_bytes(last))
    return last


def carried_bytes(state: SessionState) -> int:
    """What the next run must be handed, beside outcomes, which go where no room is left."""
    bare = state.model_copy(update={"outcomes": {}})
    return len(to_json(bare, exclude_none=True))


def trim(state: SessionState, size: int) -> None:
    """Keep the newest outcomes that fit beside `size` bytes of all else."""
    room = limits.CARRIED_BYTES - size
    kept: list[str] = []
    for request_id in reversed(state.outcomes):
        room -= encoded_bytes(state.outcomes[request_id]) + len(request_id) + limits.ENTRY_BYTES
        if room < 0 or len(kept) == limits.OUTCOMES_MAX:
            break
        kept.append(request_id)
    state.outcomes = {request_id: state.outcomes[request_id] for request_id in reversed(kept)}


def _tail_is_long(state: SessionState) -> bool:
    return state.tail_bytes > limits.TAIL_SEALED_AT_BYTES


def _take(sizes: Iterable[int], most: int, *, at_least_one: bool) -> tuple[int, int]:
    """How many of the first of these go together, and how large they are."""
    count = taken = 0
    for size in sizes:
        if taken + size > most and not (at_least_one and not count):
            break
        count += 1
        taken += size
    return count, taken
