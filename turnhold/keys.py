"""API keys: what a caller holds, and what is stored of it.

The file is a JSON list of `{name, environment, sha256, permissions}`. A key itself is shown once,
when it is made, and is stored nowhere: it has 256 random bits, so a plain hash is enough.
"""

import contextlib
import hashlib
import os
import secrets
import tempfile
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

Permission = Literal[
    "sessions.create",
    "sessions.read",
    "sessions.send",
    "sessions.control",
    "sessions.resume",
    "asks.answer",
]
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._@-]{1,64}$")]


class StoredKey(BaseModel):
    """One key as the file holds it. `environment` is the tenant whose Sessions it sees."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: _Name
    environment: _Name = "default"
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    permissions: tuple[Permission, ...] = PERMISSIONS


class KeysFileError(Exception):
    """The keys file cannot be read or written; the message is one line for people."""


_STORED = TypeAdapter(tuple[StoredKey, ...])


def generate() -> str:
    """A fresh key. Store only `digest` of it."""
    return f"th_{secrets.token_urlsafe(32)}"


def digest(key: str) -> str:
    """What is stored of a key, and compared when a caller presents one."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def load(path: Path) -> tuple[StoredKey, ...]:
    """The keys in the file.

    Raises:
        KeysFileError: there is no such file, it is not a list of keys, or a name is there twice.
    """
    try:
        stored = _STORED.validate_json(path.read_bytes())
    except OSError as error:
        raise KeysFileError(f"cannot read the keys file {path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise KeysFileError(f"the keys file {path} is not valid: {where}: {first['msg']}") from error
    names = [(key.environment, key.name) for key in stored]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise KeysFileError(f"the keys file {path} holds {twice[1]} of {twice[0]} twice")
    return stored


def add(path: Path, key: StoredKey) -> None:
    """Adds a key to the file, which is made if it is not there, readable by its owner alone.

    Raises:
        KeysFileError: as `load`, or the name is taken, or the file cannot be written.
    """
    stored = load(path) if path.exists() else ()
    if any((other.environment, other.name) == (key.environment, key.name) for other in stored):
        raise KeysFileError(f"{path} already holds a key named {key.name} in {key.environment}")
    _write(path, (*stored, key))


def remove(path: Path, name: str, environment: str) -> StoredKey:
    """Takes a key out of the file, and answers it.

    Raises:
        KeysFileError: as `load`, or there is no such key, or the file cannot be written.
    """
    stored = load(path)
    removed = next((key for key in stored if (key.environment, key.name) == (environment, name)), None)
    if removed is None:
        raise KeysFileError(f"{path} holds no key named {name} in {environment}")
    _write(path, tuple(key for key in stored if key is not removed))
    return removed


def is_exposed(path: Path) -> bool:
    """Whether others than its owner may read or change the file."""
    with contextlib.suppress(OSError):
        return bool(path.stat().st_mode & 0o077)
    return False


def _write(path: Path, stored: tuple[StoredKey, ...]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_STORED.dump_json(stored, indent=2) + b"\n")
        Path(temporary).replace(path)
    except OSError as error:
        raise KeysFileError(f"cannot write the keys file {path}: {error.strerror}") from error
