"""`turnhold session ask …`: what Turns ask people, and the answers."""

from typing import Annotated

import typer

from turnhold.cli import connection, inputs, output, show
from turnhold.cli.connection import DEFAULT_URL, ApiKey, IdempotencyKey, Json, SessionId, TurnId, Url
from turnhold.cli.receipts import print_receipt
from turnhold.client import Client, Unreachable
from turnhold.session.views import AskView, ReceiptView

ask_commands = typer.Typer(help="Questions that Turns ask people.", no_args_is_help=True)


@ask_commands.command(epilog="Example: turnhold session ask ls $SESSION --status pending")
def ls(
    session: SessionId,
    turn: Annotated[str | None, typer.Option(help="Of this Turn alone.")] = None,
    status: Annotated[str | None, typer.Option(help="pending, answered or cancelled.")] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """List the questions of a Session, and how to answer those that are pending."""

    async def work(client: Client) -> tuple[AskView, ...]:
        return await client.asks(
            session,
            turn_id=turn,
            status=status,  # pyright: ignore[reportArgumentType]
        )

    found = connection.call(url, api_key, work)
    if as_json:
        output.document({"asks": found})
    else:
        show.asks(session, found)


@ask_commands.command(epilog="Example: turnhold session ask answer $SESSION $TURN $ASK --text 'Yes, do'")
def answer(
    session: SessionId,
    turn: TurnId,
    ask: Annotated[str, typer.Argument(metavar="ASK", help="The Ask's ID (ask_…).")],
    more: Annotated[list[str] | None, typer.Argument(metavar="ID", hidden=True)] = None,
    text: Annotated[str | None, typer.Option(help="An answer in words.")] = None,
    select: Annotated[
        list[str] | None, typer.Option(metavar="ID…", help="Options by their IDs; may be repeated.")
    ] = None,
    response_id: Annotated[
        str | None, typer.Option(help="Your name for this answer: the same one again changes nothing.")
    ] = None,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Answer a question. The first valid answer counts."""
    if more and not select:
        raise typer.BadParameter(f"unexpected {more[0]}: options are named with --select")
    selected = [*(select or ()), *(more or ())]
    if text is None and not selected:
        raise typer.BadParameter("give --text or --select")
    repeat = inputs.repeatable(idempotency_key)

    async def work(client: Client) -> ReceiptView:
        return await client.answer(
            session,
            turn,
            ask,
            text=text,
            selected=selected or None,
            response_id=response_id,
            idempotency_key=repeat,
        )

    try:
        receipt = connection.call(url, api_key, work)
    except Unreachable as error:
        raise inputs.uncertain(error, repeat) from error
    print_receipt(receipt, f"answered {ask}", as_json)
