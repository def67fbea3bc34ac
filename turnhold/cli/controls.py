"""`turnhold session interrupt, cancel, explain`: stopping a Session, and why it does not move."""

import typer

from turnhold.cli import connection, output, receipts, show
from turnhold.cli.connection import DEFAULT_URL, ApiKey, IdempotencyKey, Json, SessionId, Url
from turnhold.client import Client
from turnhold.session.views import Explanation, ReceiptView

control_commands = typer.Typer()


@control_commands.command(epilog="Example: turnhold session interrupt $SESSION")
def interrupt(
    session: SessionId,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Hold a Session and stop its running Turn; queued Turns wait until the hold is released."""

    async def work(client: Client) -> ReceiptView:
        return await client.interrupt(session, idempotency_key=idempotency_key)

    receipt = connection.call(url, api_key, work)
    stops = f"; turn {receipt.turn_id} stops" if receipt.turn_id else ""
    receipts.print_receipt(receipt, f"held by {receipt.hold_id}{stops}", as_json)
    if not as_json:
        output.note(
            f"to go on: turnhold session resume {session} --hold {receipt.hold_id}",
        )


@control_commands.command(epilog="Example: turnhold session cancel $SESSION")
def cancel(
    session: SessionId,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Close a Session at once: its running Turn and the queued ones are cancelled."""

    async def work(client: Client) -> ReceiptView:
        return await client.cancel(session, idempotency_key=idempotency_key)

    receipt = connection.call(url, api_key, work)
    receipts.print_receipt(receipt, f"session {receipt.session_status}", as_json)


@control_commands.command(epilog="Example: turnhold session explain $SESSION")
def explain(
    session: SessionId, url: Url = DEFAULT_URL, api_key: ApiKey = None, as_json: Json = False
) -> None:
    """Tell why a Session does not move, and what to do about it. Needs no worker."""

    async def work(client: Client) -> Explanation:
        return await client.explain(session)

    explanation = connection.call(url, api_key, work)
    if as_json:
        output.document(explanation)
    else:
        show.explanation(explanation)
