"""Inputs of Turns that wait: in the state as far as it has room, the others in the store (S-95).

The first of the queue is at hand, or is fetched before it is dispatched; what is far behind it goes to
the store. There an input is written once, and stays for as long as its Turn is retained: so one that
was fetched can be let go of again, and is once its Turn has ended.
"""

from collections.abc import Iterable

from turnhold.session import limits, steps
from turnhold.session.model import SessionState, Turn
from turnhold.session.transaction import Transaction
from turnhold.session.values import Content, encoded_bytes


def advance(tx: Transaction) -> None:
    """Set aside what is not needed soon, and fetch what is next; one step of each at a time."""
    _drop_what_is_late(tx)
    _set_aside(tx)
    _fetch(tx)


def set_aside(tx: Transaction, step: steps.SetAside) -> None:
    """The store has these inputs; what is about to run, or runs, keeps its own here as well."""
    behind = set(tx.state.queue[1:])
    for sequence in step.turns:
        turn = tx.state.turns.get(sequence)
        if turn is not None and not turn.settled:
            tx.change_turn(sequence, aside=True, input=() if sequence in behind else turn.input)


def fetched(tx: Transaction, step: steps.Fetch, content: Content) -> None:
    turn = tx.state.turns.get(step.turn)
    if turn is not None and not turn.settled:
        tx.change_turn(step.turn, input=content)


def is_at_hand(state: SessionState) -> bool:
    """Whether the first of the queue has its input here."""
    return not state.queue or not state.turns[state.queue[0]].input_away


def fits(state: SessionState, size: int, most: int = limits.QUEUED_BYTES) -> bool:
    """Whether an input or a message of `size` bytes may wait here beside what does already (S-95).

    Their share of the state is theirs; beyond it they may be `most`, while all else leaves room.
    """
    unsettled = state.queue if state.running is None else [state.running, *state.queue]
    sizes = [
        *(_bytes_here(state.turns[sequence]) for sequence in unsettled),
        *(encoded_bytes(message.content) for message in state.messages.values()),
    ]
    waiting = sum(sizes) + len(sizes) * limits.TURN_BYTES
    total = waiting + size + limits.TURN_BYTES
    if not waiting or total <= limits.QUEUED_SHARE_BYTES:
        return True
    return total <= most and total + _else(state) <= limits.CARRIED_BYTES - limits.SPARE_BYTES


def _else(state: SessionState) -> int:
    """What else is large in the state; an estimate, since to measure it takes milliseconds."""
    receipts = len(state.receipts) * limits.RECEIPTS_BYTES // limits.RECEIPTS_MAX
    return state.tail_bytes + state.settled_bytes + receipts + encoded_bytes(state.committed)


def _bytes_here(turn: Turn) -> int:
    return 0 if turn.input_away else turn.input_bytes


def _drop_what_is_late(tx: Transaction) -> None:
    """Give up a step whose Turns have all left the queue."""
    state = tx.state
    for step in list(state.outstanding.values()):
        match step:
            case steps.SetAside() if not set(step.turns) & set(state.queue):
                tx.drop(steps.SetAside)
            case steps.Fetch() if step.turn not in state.queue:
                tx.drop(steps.Fetch)
            case _:
                pass


def _set_aside(tx: Transaction) -> None:
    state = tx.state
    behind = [state.turns[sequence] for sequence in state.queue[1:]]
    if sum(map(_bytes_here, behind)) <= limits.ASIDE_AT_BYTES or _under_way(state, steps.SetAside):
        return
    taken: list[int] = []
    size = 0
    for turn in _not_needed_soon(behind):
        if turn.aside:
            tx.change_turn(turn.sequence, input=())
        elif size + turn.input_bytes <= limits.SEAL_BYTES:
            size += turn.input_bytes
            taken.append(turn.sequence)
    if taken:
        tx.issue(steps.SetAside, issued_at=tx.now, turns=tuple(taken))


def _not_needed_soon(behind: Iterable[Turn]) -> Iterable[Turn]:
    """Those past the first few in the queue whose input is here and is worth an object of its own."""
    passed = 0
    for turn in behind:
        passed += _bytes_here(turn)
        if passed > limits.ASIDE_KEPT_BYTES and _bytes_here(turn) >= limits.ASIDE_SMALLEST_BYTES:
            yield turn


def _fetch(tx: Transaction) -> None:
    """Also while another Turn runs, where there is room: then the queue loses no time."""
    state = tx.state
    if state.held or is_at_hand(state) or _under_way(state, steps.Fetch):
        return
    turn = state.turns[state.queue[0]]
    if state.running is None or fits(state, turn.input_bytes, limits.FETCHED_AHEAD_BYTES):
        tx.issue(steps.Fetch, issued_at=tx.now, turn=turn.sequence)


def _under_way(state: SessionState, kind: type[steps.SetAside | steps.Fetch]) -> bool:
    return any(isinstance(step, kind) for step in state.outstanding.values())
