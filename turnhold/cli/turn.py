"""`turnhold session turn …`: one Turn of a Session."""

import math
from typing import Annotated, Literal

import typer

from turnhold.cli import connection, inputs, outcome, output, show
from turnhold.cli.connection import DEFAULT_URL, ApiKey, IdempotencyKey, Json, SessionId, TurnId, Url
from turnhold.cli.inputs import InputFile, Text
from turnhold.cli.receipts import print_receipt
from turnhold.client import Client, TurnPage, Unreachable
from turnhold.session.model import TurnStatus
from turnhold.session.views import ReceiptView, TurnView

turn_commands = typer.Typer(help="Turns: one input and its outcome each.", no_args_is_help=True)


@turn_commands.command(epilog="Example: turnhold session turn ls $SESSION --status queued")
def ls(
    session: SessionId,
    after: Annotated[int, typer.Option(help="After the Turn of this number.", min=0)] = 0,
    status: Annotated[
        TurnStatus | None, typer.Option(help="queued, running, completed, failed, interrupted or cancelled.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=100)] = 20,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """List a Session's Turns in their order."""

    async def work(client: Client) -> TurnPage:
        return await client.list_turns(session, after=after, limit=limit, status=status)

    page = connection.call(url, api_key, work)
    if as_json:
        output.document(page)
    else:
        show.turns(page.turns, more=len(page.turns) == limit)


@turn_commands.command(epilog="Example: turnhold session turn get $SESSION $TURN")
def get(
    session: SessionId,
    turn: TurnId,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Show a Turn: its status, output, response and result."""

    async def work(client: Client) -> TurnView:
        return await client.turn(session, turn)

    _print(connection.call(url, api_key, work), as_json)


@turn_commands.command(epilog="Example: turnhold session turn wait $SESSION $TURN")
def wait(
    session: SessionId,
    turn: TurnId,
    timeout: Annotated[float | None, typer.Option(help="Wait at most so many seconds.", min=0)] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Wait until a Turn has ended, then show it. Exit code 4: it has not yet, after --timeout."""

    async def work(client: Client) -> TurnView:
        return await client.wait_turn(session, turn, patience=math.inf if timeout is None else timeout)

    view = connection.call(url, api_key, work)
    _print(view, as_json)
    if view.status in ("queued", "running"):
        raise typer.Exit(outcome.PENDING)


@turn_commands.command(epilog="Example: turnhold session turn interrupt $SESSION $TURN")
def interrupt(
    session: SessionId,
    turn: TurnId,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Stop a running Turn. Nothing is held: the next one starts once it has stopped."""

    async def work(client: Client) -> ReceiptView:
        return await client.interrupt_turn(session, turn, idempotency_key=idempotency_key)

    receipt = connection.call(url, api_key, work)
    print_receipt(receipt, f"turn {turn} stops", as_json)


@turn_commands.command(epilog="Example: turnhold session turn send $SESSION $TURN --text 'shorter, please'")
def send(
    session: SessionId,
    turn: TurnId,
    text: Text = None,
    input_file: InputFile = None,
    fallback: Annotated[
        Literal["enqueue"] | None, typer.Option(help="Make it a Turn where that Turn takes no messages.")
    ] = None,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Send a message to a running Turn. It is admitted then; the timeline tells what becomes of it."""
    content = inputs.text_or_file(text, input_file)
    if content is None:
        raise typer.BadParameter("give --text or --input-file")
    repeat = inputs.repeatable(idempotency_key)

    async def work(client: Client) -> ReceiptView:
        return await client.send(session, turn, content, fallback=fallback, idempotency_key=repeat)

    try:
        receipt = connection.call(url, api_key, work)
    except Unreachable as error:
        raise inputs.uncertain(error, repeat) from error
    done = f"message {receipt.message_id} sent"
    if receipt.message_id is None:
        done = f"turn {receipt.sequence} queued instead: {receipt.turn_id}"
    print_receipt(receipt, done, as_json)


def _print(view: TurnView, as_json: bool) -> None:
    if as_json:
        output.document(view)
    else:
        show.turn(view)
