"""Where the server is, and one call to it."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

import typer

from turnhold.client import Client

DEFAULT_URL = "http://127.0.0.1:8080"
_T = TypeVar("_T")


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise typer.BadParameter(f"{url} is not a URL such as {DEFAULT_URL}")
    return url


Url = Annotated[
    str,
    typer.Option("--url", envvar="TURNHOLD_URL", help="Where the API is.", callback=_checked),
]


def printable(value: str | None) -> str | None:
    """What goes into a header: anything else is a wrong use, told before it is sent."""
    if value is not None and not (value.isascii() and value.isprintable() and value):
        raise typer.BadParameter("takes printable ASCII characters")
    return value


ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        envvar="TURNHOLD_API_KEY",
        help="An API key, if the server wants one.",
        callback=printable,
    ),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(help="Makes a repetition of this command exact: it changes nothing.", callback=printable),
]
SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The Session's ID (ses_…).")]
TurnId = Annotated[str, typer.Argument(metavar="TURN", help="The Turn's ID (trn_…).")]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]


def client(url: str, api_key: str | None) -> Client:
    return Client(url, api_key)


def call(url: str, api_key: str | None, work: Callable[[Client], Awaitable[_T]]) -> _T:
    """Opens a client, does `work` with it, and closes it."""

    async def main() -> _T:
        async with client(url, api_key) as opened:
            return await work(opened)

    return asyncio.run(main())


def command_line(url: str, *words: str) -> str:
    """A command that a person can paste: `turnhold …`, with the URL if it is not the default."""
    where = () if url == DEFAULT_URL else ("--url", url)
    return shlex.join(("turnhold", *words, *where))
