"""`turnhold session …`: create, look, feed, follow, release, close (`controls` has the stops)."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from pydantic_core import from_json

from turnhold.cli import connection, follow, inputs, outcome, output, show, tree
from turnhold.cli.ask import ask_commands
from turnhold.cli.connection import DEFAULT_URL, ApiKey, IdempotencyKey, Json, SessionId, Url
from turnhold.cli.controls import control_commands
from turnhold.cli.inputs import InputFile, Text
from turnhold.cli.receipts import print_receipt
from turnhold.cli.turn import turn_commands
from turnhold.client import Client, Created, Problem, TurnholdError, Unreachable
from turnhold.session.views import EventPage, EventView, ReceiptView, SessionListed, SessionView, TurnView

session_commands = typer.Typer(help="Sessions: one conversation with an Agent each.", no_args_is_help=True)
session_commands.add_typer(turn_commands, name="turn")
session_commands.add_typer(ask_commands, name="ask")
session_commands.add_typer(control_commands)

_READS_AT_ONCE = 20

Follow = Annotated[bool, typer.Option("--follow", help="Print the Turn's output until it has ended.")]


def _pairs(option: str, words: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise typer.BadParameter(f"{option} takes NAME=VALUE")
        pairs[name] = value
    return pairs


def _value(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return text


@session_commands.command(epilog="Example: turnhold session create script --text 'say hello' --follow")
def create(
    agent: Annotated[str, typer.Argument(help="The Agent's name.")],
    text: Text = None,
    input_file: InputFile = None,
    key: Annotated[str | None, typer.Option(help="A name of your own, unique for the Agent.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; may be repeated.")] = None,
    config: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, e.g. max_turn_duration=PT1H; may be repeated.")
    ] = None,
    idempotency_key: IdempotencyKey = None,
    follow_turn: Follow = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Create a Session; with --text or --input-file its first Turn starts at once."""
    input = inputs.text_or_file(text, input_file)
    if follow_turn and input is None:
        raise typer.BadParameter("--follow needs --text or --input-file: there is no Turn to follow")
    named = _pairs("--metadata", metadata or ())
    settings = {name: _value(value) for name, value in _pairs("--config", config or ()).items()}
    repeat = inputs.repeatable(idempotency_key)

    async def work(client: Client) -> Created:
        return await client.create_session(
            agent,
            input=input,
            key=key,
            metadata=named or None,
            config=settings or None,
            idempotency_key=repeat,
        )

    try:
        created = connection.call(url, api_key, work)
    except Unreachable as error:
        raise inputs.uncertain(error, repeat) from error
    session, turn = created.session, created.turn
    if follow_turn and turn is not None:
        if not as_json:
            output.note(f"session {session.id}")
        turn = _follow(url, api_key, session.id, turn.id, since=0, quiet=as_json)
        session = connection.call(url, api_key, lambda client: client.session(session.id))
    if as_json:
        output.document({"session": session, "turn": turn})
    elif not follow_turn:
        again = " (as before: an exact retry)" if created.replay else ""
        output.say(f"session  {session.id}{again}")
        if turn is not None:
            output.say(f"turn     {turn.id}")


@session_commands.command("ls", epilog="Example: turnhold session ls --agent script --held")
def ls(
    agent: Annotated[str | None, typer.Option(help="Of this Agent.")] = None,
    status: Annotated[str | None, typer.Option(help="open, closing or closed.")] = None,
    held: Annotated[bool | None, typer.Option("--held/--not-held", help="Waiting for a resume.")] = None,
    asking: Annotated[
        bool | None, typer.Option("--asking/--not-asking", help="Waiting for an answer.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=100)] = 20,
    cursor: Annotated[str | None, typer.Option(help="Where the last page ended.")] = None,
    as_tree: Annotated[
        bool, typer.Option("--tree", help="With the trees of owned Sessions that they stand in.")
    ] = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """List Sessions, newest first. The list may lag by seconds; `session get` never does."""

    async def work(client: Client) -> None:
        page = await client.list_sessions(
            agent=agent,
            status=status,  # pyright: ignore[reportArgumentType]
            held=held,
            asking=asking,
            limit=limit,
            cursor=cursor,
        )
        found = await tree.grow(client, page) if as_tree else page
        if as_json:
            output.document(found)
        elif isinstance(found, tree.Forest):
            lines = [line for each in found.trees for line in each.lines()]
            listed = [session for _, session in lines]
            show.sessions(lines, await _counted(client, listed), found.next_cursor)
        else:
            lines = [("", session) for session in found.sessions]
            show.sessions(lines, await _counted(client, found.sessions), found.next_cursor)

    connection.call(url, api_key, work)


async def _counted(client: Client, listed: Iterable[SessionListed]) -> dict[str, SessionView]:
    """What the list has no room for, of each Session that is not closed and that a worker answers for."""
    at_once = asyncio.Semaphore(_READS_AT_ONCE)
    found: dict[str, SessionView] = {}

    async def read(session_id: str) -> None:
        async with at_once:
            with contextlib.suppress(TurnholdError):
                found[session_id] = await client.session(session_id)

    await asyncio.gather(*(read(session.id) for session in listed if session.status != "closed"))
    return found


@session_commands.command(epilog="Example: turnhold session get $SESSION")
def get(session: SessionId, url: Url = DEFAULT_URL, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Show a Session: its status, Turns, Process and holds."""

    async def work(client: Client) -> SessionView:
        return await client.session(session)

    view = connection.call(url, api_key, work)
    if as_json:
        output.document(view)
    else:
        show.session(view)


@session_commands.command(epilog="Example: turnhold session enqueue $SESSION --text 'say more'")
def enqueue(
    session: SessionId,
    text: Text = None,
    input_file: InputFile = None,
    idempotency_key: IdempotencyKey = None,
    follow_turn: Follow = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Queue a Turn. Exit code 4: accepted, but no worker has answered yet."""
    input = inputs.text_or_file(text, input_file)
    if input is None:
        raise typer.BadParameter("give --text or --input-file")
    repeat = inputs.repeatable(idempotency_key)

    async def work(client: Client) -> ReceiptView:
        return await client.enqueue(session, input, idempotency_key=repeat)

    try:
        receipt = connection.call(url, api_key, work)
    except Unreachable as error:
        raise inputs.uncertain(error, repeat) from error
    if follow_turn and receipt.turn_id is not None and receipt.event_sequence is not None:
        since = receipt.event_sequence - 1
        turn = _follow(url, api_key, session, receipt.turn_id, since=since, quiet=as_json)
        if as_json:
            output.document(turn)
        return
    print_receipt(receipt, f"turn {receipt.sequence} queued: {receipt.turn_id}", as_json)


def _follow(
    url: str, api_key: str | None, session_id: str, turn_id: str, *, since: int, quiet: bool
) -> TurnView:
    def ignore(event: EventView) -> None:
        del event

    follow.follow(url, api_key, session_id, since=since, turn_id=turn_id, on_event=ignore if quiet else None)

    async def work(client: Client) -> TurnView:
        return await client.turn(session_id, turn_id)

    return connection.call(url, api_key, work)


@session_commands.command(epilog="Example: turnhold session events $SESSION --since 12")
def events(
    session: SessionId,
    since: Annotated[int, typer.Option(help="After this sequence.", min=0)] = 0,
    kind: Annotated[list[str] | None, typer.Option(help="Of this kind; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many. Default: all.", min=1)] = None,
    live: Annotated[bool, typer.Option("--follow", help="Go on with what happens.")] = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print one JSON object a line.")] = False,
) -> None:
    """Print a Session's timeline."""
    if as_json and (live or as_jsonl):
        raise typer.BadParameter("--json is one document: it goes with neither --follow nor --jsonl")
    if live and (kind or limit):
        raise typer.BadParameter("--follow shows everything: it goes with neither --kind nor --limit")

    def show_event(event: EventView) -> None:
        if as_jsonl:
            output.document(event, lines=True)
        else:
            output.say(show.event_line(event))

    if live:
        again = ("events", "--follow", *(("--jsonl",) if as_jsonl else ()))
        follow.follow(url, api_key, session, since=since, on_event=show_event, command=again)
        return

    async def work(client: Client) -> EventPage:
        records: list[EventView] = []
        position, more, retained_after = since, True, 0
        while more and (limit is None or len(records) < limit):
            size = 1000 if limit is None else min(1000, limit - len(records))
            page = await client.events(session, after=position, limit=size, kinds=kind or ())
            records += page.records
            position, more, retained_after = page.next_after, page.has_more, page.retained_after
        return EventPage(
            records=tuple(records), next_after=position, has_more=more, retained_after=retained_after
        )

    page = connection.call(url, api_key, work)
    if as_json:
        output.document(page)
        return
    if page.retained_after > since:
        output.note(f"events up to {page.retained_after} are no longer kept")
    for event in page.records:
        show_event(event)


@session_commands.command(epilog="Example: turnhold session attach $SESSION --since 12")
def attach(
    session: SessionId,
    since: Annotated[int, typer.Option(help="After this event sequence.", min=0)] = 0,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print events, one JSON object a line.")] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Put no questions, also at a terminal.")
    ] = False,
) -> None:
    """Follow a Session's output until it is closed. Ctrl-C leaves the Session as it is.

    Output goes to stdout, what else happens to stderr. At a terminal you are asked what a Turn
    asks; an empty line leaves it to somebody else. Nothing else is ever sent.
    """

    def show_event(event: EventView) -> None:
        output.document(event, lines=True)

    again = ("attach", *(("--jsonl",) if as_jsonl else ()), *(("--read-only",) if read_only else ()))
    follow.follow(
        url,
        api_key,
        session,
        since=since,
        on_event=show_event if as_jsonl else None,
        command=again,
        read_only=read_only,
    )


@session_commands.command(epilog="Example: turnhold session resume $SESSION --all")
def resume(
    session: SessionId,
    hold: Annotated[str | None, typer.Option(help="The hold's ID (hld_…).")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every hold that can be released.")] = False,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Release a hold, so that queued Turns go on."""
    if every == (hold is not None):
        raise typer.BadParameter("give --hold ID or --all")
    if hold is not None:
        held = hold

        async def one(client: Client) -> ReceiptView:
            return await client.resume(session, held, idempotency_key=idempotency_key)

        print_receipt(connection.call(url, api_key, one), f"released {hold}", as_json)
        return

    async def each(client: Client) -> tuple[list[ReceiptView], list[str]]:
        receipts: list[ReceiptView] = []
        kept: list[str] = []
        for held in (await client.session(session)).holds:
            if not held.can_release:
                kept.append(held.id)
                continue
            try:
                receipts.append(await client.resume(session, held.id))
            except Problem as problem:
                if problem.code != "hold_not_found":  # somebody else has just released it
                    raise
        return receipts, kept

    receipts, kept = connection.call(url, api_key, each)
    if as_json:
        output.document({"released": [show.receipt_document(receipt) for receipt in receipts], "kept": kept})
    else:
        for receipt in receipts:
            show.receipt(receipt, f"released {receipt.hold_id}")
        for held in kept:
            output.say(f"kept {held}: it cannot be released here", "yellow")
        if not receipts and not kept:
            output.say("No holds.", "dim")
    if any(receipt.status == "pending" for receipt in receipts):
        raise typer.Exit(outcome.PENDING)


@session_commands.command(epilog="Example: turnhold session close $SESSION")
def close(
    session: SessionId,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Close a Session: no new Turns, the running and the queued ones still finish."""

    async def work(client: Client) -> ReceiptView:
        return await client.close(session, idempotency_key=idempotency_key)

    receipt = connection.call(url, api_key, work)
    print_receipt(receipt, f"session {receipt.session_status}", as_json)
