"""Inputs of Turns that wait: in the state as far as it has room, the others in the store (S-95).

The first of the queue is at hand, or is fetched before it is dispatched; what is far behind it goes to
the store. There an input is written once, and stays for as long as its Turn is retained: so one that
was fetched can be let go of again, and is once its Turn has ended.
"""

from turnhold.session import limits, steps
from turnhold.session.model import SessionState
from turnhold.session.transaction import Transaction
from turnhold.session.values import Content, encoded_bytes


def advance(tx: Transaction) -> None:
    """Set aside what is not needed soon, and fetch what is next; one step of each at a time."""
    _drop_what_is_late(tx)
    _set_aside(tx)
    _fetch(tx)


def set_aside(tx: Transaction, step: steps.SetAside) -> None:
    """The store has these inputs; what runs, or will next, keeps its own here as well."""
    state = tx.state
    behind = set(_not_needed_now(state))
    for sequence in step.turns:
        turn = state.turns.get(sequence)
        if turn is not None and not turn.settled:
            tx.change_turn(sequence, aside=True)
            if sequence in behind:
                _let_go(tx, sequence)


def fetched(tx: Transaction, step: steps.Fetch, content: Content) -> None:
    turn = tx.state.turns.get(step.turn)
    if turn is not None and turn.input_away and not turn.settled:
        tx.change_turn(step.turn, input=content)
        tx.state.inputs_bytes += turn.input_bytes


def leave(tx: Transaction, sequence: int) -> None:
    """The Turn ends."""
    turn = tx.state.turns[sequence]
    if turn.aside:
        _let_go(tx, sequence)
    else:
        tx.state.inputs_bytes -= turn.input_bytes


def is_at_hand(state: SessionState) -> bool:
    """Whether the first of the queue has its input here."""
    return not state.queue or not state.turns[state.queue[0]].input_away


def fits(state: SessionState, size: int) -> bool:
    """Whether an input or a message of `size` bytes may wait here beside what does already (S-95)."""
    return size <= _room(state) or not _waiting(state)


def _room(state: SessionState) -> int:
    """How large one more may be: their share of the state is theirs, and more if all else leaves it."""
    waiting = _waiting(state) + limits.TURN_BYTES
    left = limits.CARRIED_BYTES - limits.SPARE_BYTES - _else(state)
    return max(min(limits.QUEUED_BYTES, left), limits.QUEUED_SHARE_BYTES) - waiting


def _waiting(state: SessionState) -> int:
    messages = [encoded_bytes(message.content) for message in state.messages.values()]
    many = len(state.queue) + (state.running is not None) + len(messages)
    return state.inputs_bytes + sum(messages) + many * limits.TURN_BYTES


def _else(state: SessionState) -> int:
    """What else is large in the state; an estimate, since to measure it takes milliseconds."""
    receipts = len(state.receipts) * limits.RECEIPTS_BYTES // limits.RECEIPTS_MAX
    return state.tail_bytes + state.settled_bytes + receipts + encoded_bytes(state.committed)


def _let_go(tx: Transaction, sequence: int) -> None:
    """The store has it; here it is no longer needed."""
    tx.state.inputs_bytes -= tx.state.turns[sequence].bytes_here
    tx.change_turn(sequence, input=())


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
    """What is needed last goes first; the store may have it already."""
    state = tx.state
    if not state.queue or _under_way(state, steps.SetAside):
        return
    excess = _excess(state)
    taken: list[int] = []
    size = 0
    for sequence in reversed(_not_needed_now(state) if excess > 0 else ()):
        turn = state.turns[sequence]
        if excess <= 0 or size + turn.input_bytes > limits.SEAL_BYTES:
            break
        if turn.input_bytes < limits.ASIDE_SMALLEST_BYTES or turn.input_away:
            continue
        excess -= turn.input_bytes
        if turn.aside:
            _let_go(tx, sequence)
        else:
            size += turn.input_bytes
            taken.insert(0, sequence)
    if taken:
        tx.issue(steps.SetAside, issued_at=tx.now, turns=tuple(taken))


def _excess(state: SessionState) -> int:
    """How much of what is not needed now shall go: all but a little, or so that one more of any size fits."""
    behind = _queued(state)
    if _first_not_needed(state):
        behind -= state.turns[state.queue[0]].bytes_here
    many = behind - limits.ASIDE_KEPT_BYTES if behind > limits.ASIDE_AT_BYTES else 0
    short = limits.CONTENT_BYTES - _room(state) if behind > limits.ASIDE_LEAST_BYTES else 0
    return max(many, short)


def _not_needed_now(state: SessionState) -> list[int]:
    return state.queue[_first_not_needed(state) :]


def _first_not_needed(state: SessionState) -> int:
    """From which place in the queue: behind the next one, or with it if it has to wait and has no room."""
    return 0 if state.running is not None and not _next_has_room(state) else 1


def _next_has_room(state: SessionState) -> bool:
    """Whether the next input may be here while a Turn runs: but for the others, one more would fit still."""
    size = state.turns[state.queue[0]].input_bytes if state.queue else 0
    room = _room(state) + _queued(state)
    return size <= limits.ASIDE_LEAST_BYTES or size + limits.CONTENT_BYTES <= room


def _queued(state: SessionState) -> int:
    """Bytes of inputs in the queue."""
    turn = state.running_turn
    return state.inputs_bytes - (turn.bytes_here if turn else 0)


def _fetch(tx: Transaction) -> None:
    """Also while another Turn runs, where there is room: then the queue loses no time."""
    state = tx.state
    if state.held or is_at_hand(state) or _under_way(state, steps.Fetch):
        return
    if state.running is None or _next_has_room(state):
        tx.issue(steps.Fetch, issued_at=tx.now, turn=state.queue[0])


def _under_way(state: SessionState, kind: type[steps.SetAside | steps.Fetch]) -> bool:
    return any(isinstance(step, kind) for step in state.outstanding.values())
