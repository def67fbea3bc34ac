"""What a person gives with a command: a text or a file, and the key that makes a repetition exact."""

import sys
import uuid
from pathlib import Path
from typing import Annotated

import typer

from turnhold.client import Unreachable

Text = Annotated[str | None, typer.Option("--text", help="What is given.")]
InputFile = Annotated[
    Path | None,
    typer.Option("--input-file", help="The same from a file; - for stdin.", allow_dash=True, dir_okay=False),
]


def text_or_file(text: str | None, file: Path | None) -> str | None:
    """The text that was given, either way; None where none was."""
    if text is not None and file is not None:
        raise typer.BadParameter("give --text or --input-file, not both")
    if file is None:
        return text
    try:
        raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return raw.decode()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file} is not UTF-8 text") from error


def repeatable(key: str | None) -> str:
    """Whatever gives a Session something has a key, so that a lost answer can be asked for again."""
    return key or f"cli-{uuid.uuid4().hex}"


def uncertain(error: Unreachable, key: str) -> Unreachable:
    """The error, with how to go on where it is not known whether the command took effect."""
    if not error.uncertain:
        return error
    return Unreachable(
        f"{error}\nIt may have been accepted; repeating it with --idempotency-key {key} is safe."
    )
