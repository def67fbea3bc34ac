"""`turnhold key …`: the file with the API keys' hashes. It talks to no server."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from turnhold import keys
from turnhold.cli import outcome, output
from turnhold.cli.connection import Json

key_commands = typer.Typer(help="API keys.", no_args_is_help=True)

_RESTART = "An API that is running reads the file when it is started again."

KeysFile = Annotated[Path, typer.Option(envvar="TURNHOLD_KEYS_FILE", help="The file that the API reads.")]
Permissions = Annotated[
    list[str] | None,
    typer.Option(
        "--permission",
        help=f"What it may do, of {', '.join(keys.PERMISSIONS)}; may be repeated. Default: all.",
    ),
]
Environment = Annotated[str, typer.Option(help="The tenant whose Sessions it sees.")]


@key_commands.command(epilog="Example: turnhold key new ci --keys-file keys.json")
def new(
    name: Annotated[str, typer.Argument(help="Who will use it; shows as the caller.")],
    keys_file: KeysFile,
    environment: Environment = "default",
    permissions: Permissions = None,
    as_json: Json = False,
) -> None:
    """Make an API key: print it this once, and add its hash to the keys file."""
    secret = keys.generate()
    try:
        stored = keys.StoredKey.model_validate(
            {
                "name": name,
                "environment": environment,
                "sha256": keys.digest(secret),
                "permissions": permissions or keys.PERMISSIONS,
            }
        )
        keys.add(keys_file, stored)
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"{first['loc'][0]}: {first['msg']}") from error
    except keys.KeysFileError as error:
        raise outcome.CommandFailed(str(error)) from error
    if as_json:
        output.document({"key": secret, **_document(stored)})
        return
    output.say(secret)
    output.note(f"Added {name} to {keys_file}. The key is not stored: keep it now.")
    output.note(_RESTART)


@key_commands.command(epilog="Example: turnhold key ls --keys-file keys.json")
def ls(keys_file: KeysFile, as_json: Json = False) -> None:
    """List the API keys of the file: names and rights; the keys themselves are stored nowhere."""
    try:
        stored = keys.load(keys_file)
    except keys.KeysFileError as error:
        raise outcome.CommandFailed(str(error)) from error
    if as_json:
        output.document({"keys": [_document(key) for key in stored]})
        return
    everything = set(keys.PERMISSIONS)
    output.table(
        ("NAME", "ENVIRONMENT", "MAY"),
        [
            (
                key.name,
                key.environment,
                "everything" if everything <= {*key.permissions} else ", ".join(key.permissions) or "nothing",
            )
            for key in stored
        ],
    )


@key_commands.command(epilog="Example: turnhold key rm ci --keys-file keys.json")
def rm(
    name: Annotated[str, typer.Argument(help="The key's name.")],
    keys_file: KeysFile,
    environment: Environment = "default",
    as_json: Json = False,
) -> None:
    """Remove an API key from the file."""
    try:
        removed = keys.remove(keys_file, name, environment)
    except keys.KeysFileError as error:
        raise outcome.CommandFailed(str(error)) from error
    if as_json:
        output.document(_document(removed))
        return
    output.say(f"Removed {name} from {keys_file}.")
    output.note(_RESTART)


def _document(key: keys.StoredKey) -> dict[str, object]:
    return key.model_dump(exclude={"sha256"})
