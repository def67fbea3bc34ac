"""What a command prints when it has sent something: its receipt."""

import typer

from turnhold.cli import outcome, output, show
from turnhold.session.views import ReceiptView


def print_receipt(receipt: ReceiptView, done: str, as_json: bool) -> None:
    """Prints a receipt; a pending one ends the command with its own exit code."""
    if as_json:
        output.document(show.receipt_document(receipt))
    else:
        show.receipt(receipt, done)
    if receipt.status == "pending":
        raise typer.Exit(outcome.PENDING)
