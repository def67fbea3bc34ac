"""The public objects for people: what matters of each, in few words, every ID whole."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_core import to_json
from rich.text import Text

from turnhold.cli.output import fields, say, styled, table
from turnhold.session.model import TurnError
from turnhold.session.questions import ChoiceControl, Control
from turnhold.session.values import OUTPUT, Output, TextPart, text_of
from turnhold.session.views import (
    AskView,
    Cause,
    Clearing,
    EventView,
    Explanation,
    ReceiptView,
    SessionListed,
    SessionView,
    TurnView,
)

_LONGEST = 160
_CONTROL: TypeAdapter[Control] = TypeAdapter(Control)
_COLOURS = {
    "open": "green",
    "closing": "yellow",
    "closed": "dim",
    "queued": "cyan",
    "running": "blue",
    "completed": "green",
    "failed": "red",
    "interrupted": "yellow",
    "cancelled": "dim",
    "accepted": "green",
    "rejected": "red",
    "pending": "yellow",
}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_KINDS = {
    "turn.completed": "green",
    "turn.failed": "red",
    "turn.interrupted": "yellow",
    "turn.cancelled": "yellow",
    "session.process_failed": "red",
    "session.closed": "bold",
}


def status(word: str) -> Text:
    return Text(word, style=_COLOURS.get(word, ""))


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago, in one unit."""
    seconds = max(0.0, ((now or datetime.now(UTC)) - moment).total_seconds())
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    return f"{int(seconds // size)} {unit} ago"


def one_line(text: str) -> str:
    """At most so much of a text, on one line."""
    text = text.rstrip("\n").replace("\n", " ⏎ ")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def content_text(content: Output) -> str:
    """Text and JSON parts as one text."""
    return "".join(part.text if isinstance(part, TextPart) else _json(part.value) for part in content)


def sessions(
    listed: Sequence[tuple[str, SessionListed]], counted: Mapping[str, SessionView], next_cursor: str | None
) -> None:
    """A line for each Session, behind the branches of a tree that lead to it.

    `counted` are the Sessions that are not closed, as far as a worker answered for them.
    """
    if not listed:
        say("No Sessions.", "dim")
        return
    table(
        ("SESSION", "AGENT", "KEY", "STATUS", "WAITS FOR", "TURNS", "ACTIVE"),
        [
            (
                styled(branches, "dim").append_text(styled(session.id)),
                styled(session.agent),
                styled(session.key or "-"),
                status(session.status),
                ", ".join(_waits(session)) or "-",
                "-" if session.status == "closed" else _at_work(counted.get(session.id)),
                ago(session.last_activity_at),
            )
            for branches, session in listed
        ],
    )
    if next_cursor:
        say(f"more: --cursor {next_cursor}", "dim")


def _waits(session: SessionListed) -> list[str]:
    return [word for word, true in (("resume", session.held), ("answer", session.asking)) if true]


def _at_work(view: SessionView | None) -> str:
    """What a Session has to do; `?` if no worker can tell."""
    if view is None:
        return "?"
    running = "running" if view.running_turn_id else ""
    queued = f"{view.queued_turns} queued" if view.queued_turns else ""
    return ", ".join(filter(None, (running, queued))) or "-"


def session(view: SessionView) -> None:
    how = f" ({view.closed_how})" if view.closed_how else ""
    fields(
        (
            ("session", view.id),
            ("agent", view.agent),
            ("key", view.key),
            ("status", status(view.status).append(how)),
            ("turns", _turns_line(view)),
            ("running", view.running_turn_id),
            ("process", _process_line(view)),
            ("deployment", view.deployment),
            ("owner", view.parent_id),
            ("metadata", ", ".join(f"{k}={v}" for k, v in view.metadata.items()) or None),
            ("created", ago(view.created_at)),
            ("last active", ago(view.last_activity_at)),
            ("last event", str(view.last_event_sequence)),
        )
    )
    for hold in view.holds:
        say(styled(f"held by {hold.id} ({hold.kind})", "yellow"))
        where = view.id if hold.can_release else hold.session_id
        say(f"  turnhold session resume {where} --hold {hold.id}", "dim")


def _turns_line(view: SessionView) -> str:
    return f"{view.turns_admitted} admitted, {view.queued_turns} queued"


def _process_line(view: SessionView) -> str | None:
    process = view.process
    if not process.epoch or view.status == "closed":
        return None
    failures = process.consecutive_failures
    return f"epoch {process.epoch}, {process.status}" + (
        f", {failures} failures in a row" if failures else ""
    )


def explanation(view: Explanation) -> None:
    """Whether the Session moves; then each cause with what would clear it."""
    if view.moving:
        say(styled("It moves: a Turn is at work, or will be without anybody's action.", "green"))
    else:
        say(styled("It does not move.", "yellow"))
    for cause in view.causes:
        line = styled(cause.code, "bold")
        if cause.since is not None:
            line.append(f", for {ago(cause.since).removesuffix(' ago')}", style="not bold dim")
        if cause.until is not None:
            line.append(f", until {cause.until.astimezone():%H:%M:%S} at the latest", style="not bold dim")
        say(line)
        say(f"  {cause.message}")
        if cause.clear is not None:
            say(f"  {_clearing(cause, cause.clear)}", "dim")


def _clearing(cause: Cause, call: Clearing) -> str:
    """The command that clears a cause; where there is none yet, the request."""
    session_id = call.path.split("/")[3]
    match cause.code:
        case "asking" if cause.ask_id is not None:
            choose = "--select" if b"selected" in to_json(call.body) else "--text"
            return f"turnhold session ask answer {session_id} {cause.turn_id} {cause.ask_id} {choose} …"
        case "held":
            return f"turnhold session resume {session_id} --hold {cause.hold_id}"
        case "queued_behind":
            return f"turnhold session turn interrupt {session_id} {cause.turn_id}"
        case "nothing_to_do":
            return f"turnhold session enqueue {session_id} --text …"
        case "closing_on_owned":
            return f"turnhold session cancel {session_id}"
        case _:
            return f"{call.method} {call.path} {_json(call.body)}"


def asks(session_id: str, listed: tuple[AskView, ...]) -> None:
    """One line each; then the command that answers each one that waits."""
    if not listed:
        say("No questions.", "dim")
        return
    table(
        ("ASK", "STATUS", "QUESTION", "ANSWER"),
        [(styled(ask.id), status(ask.status), one_line(ask.prompt), _answer_line(ask)) for ask in listed],
    )
    for ask in listed:
        if ask.status == "pending":
            given = "--select ID" if isinstance(ask.control, ChoiceControl) else "--text TEXT"
            say(f"turnhold session ask answer {session_id} {ask.turn_id} {ask.id} {given}", "dim")


def _answer_line(ask: AskView) -> str:
    """What was answered and by whom, or what may be."""
    if ask.answer is None:
        return f"({allowed(ask.control)})" if ask.status == "pending" else "-"
    words = [*(ask.answer.selected or ()), *([ask.answer.text] if ask.answer.text else [])]
    by = ask.answered_by
    who = f" ({':'.join(filter(None, (by.kind, by.id)))})" if by else ""
    return one_line(", ".join(words)) + who


def allowed(control: Control) -> str:
    """What answers a question, in words."""
    if not isinstance(control, ChoiceControl):
        return "text"
    which = "any of" if control.multiple else "one of"
    return one_line(f"{which}: {', '.join(option.id for option in control.options)}") + (
        ", or text" if control.allow_text else ""
    )


def turns(listed: Sequence[TurnView], *, more: bool) -> None:
    """`more`: this may not be all."""
    if not listed:
        say("No Turns.", "dim")
        return
    table(
        ("NUMBER", "TURN", "STATUS", "REASON", "CREATED"),
        [
            (
                str(turn.sequence),
                styled(turn.id),
                status(turn.status),
                styled(turn.reason or (turn.error.code if turn.error else "-")),
                ago(turn.created_at),
            )
            for turn in listed
        ],
    )
    if more:
        say(f"more: --after {listed[-1].sequence}", "dim")


def turn(view: TurnView) -> None:
    """The Turn's facts, then its output, then its response."""
    fields(
        (
            ("turn", view.id),
            ("number", str(view.sequence)),
            ("status", status(view.status)),
            ("reason", view.reason),
            ("error", _error(view.error) if view.error else None),
            ("input", one_line(text_of(view.input)) if view.input else None),
            ("result", None if view.result is None else _json(view.result)),
            ("response", content_text(view.response) if view.response else None),
        )
    )
    if view.output:
        say()
        say(content_text(view.output).rstrip("\n"))


def _error(error: TurnError) -> str:
    """What failed a Turn: code, type, and the message if there is one (S-12)."""
    return ": ".join(part for part in (error.code, error.type, error.message) if part)


def receipt(view: ReceiptView, done: str) -> None:
    """What a command did (`done` says it), or that it waits for a worker."""
    if view.status == "pending":
        say(styled("pending: ", "yellow").append("accepted for good, and done when a worker answers"))
        say(f"request  {view.request_id}", "dim")
        return
    again = " (as before: an exact retry)" if view.replay else ""
    say(done + again)


def receipt_document(view: ReceiptView) -> dict[str, Any]:
    """A receipt as the API shows it: the IDs where they apply."""
    always = {"request_id", "status", "session_id", "session_status", "event_sequence"}
    shown = view.model_dump(mode="json", exclude={"operation", "spawned_id", "replay", "rejection"})
    return {name: value for name, value in shown.items() if name in always or value is not None}


def event_line(event: EventView) -> Text:
    """One event: sequence, time, kind, and what there is to know."""
    moment = event.created_at.astimezone().strftime("%H:%M:%S")
    line = Text(f"{event.sequence:>5}  {moment}  ", style="dim")
    line.append(f"{event.kind:<24}", style=f"not dim {_KINDS.get(event.kind, '')}".rstrip())
    turn = f"  {event.turn_id}" if event.turn_id else ""
    return line.append(f"{turn}  {detail(event)}".rstrip(), style="not dim")


def event_note(event: EventView) -> Text:
    """One event between pieces of output."""
    return Text("· ", style="dim").append(
        f"{event.kind}  {event.turn_id or ''}  {detail(event)}".rstrip(), style=colour(event.kind)
    )


def colour(kind: str) -> str:
    """The style of an event of this kind: what asks for attention stands out."""
    return _KINDS.get(kind, "dim")


def detail(event: EventView) -> str:
    """What there is to know of an event beside its kind and its Turn, on one line."""
    data: dict[str, Any] = dict(event.data)
    words: list[str] = []
    if (content := data.pop("content", None)) is not None:
        words.append(one_line(content_text(OUTPUT.validate_python(content))))
    if (error := data.pop("error", None)) is not None:
        words.append(one_line(_error(TurnError.model_validate(error))))
    if (response := data.pop("response", None)) is not None:
        words.append(f'response="{one_line(content_text(OUTPUT.validate_python(response)))}"')
    if (control := data.pop("control", None)) is not None:
        words.append(f"({allowed(_CONTROL.validate_python(control))})")
    words += [f"{name}={_brief(value)}" for name, value in data.items() if value is not None]
    return " ".join(styled(word).plain for word in words)


def _brief(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict) and "kind" in value:
        origin = cast(dict[str, Any], value)
        return ":".join(
            str(part) for part in (origin["kind"], origin.get("id") or origin.get("reason")) if part
        )
    return one_line(_json(value))


def _json(value: Any) -> str:
    return to_json(value).decode("utf-8", "surrogatepass")
