"""Identifiers: opaque to callers, derived where the same thing must get the same ID on replay.

`ses_` Session · `trn_` Turn · `msg_` message · `ask_` Ask · `hld_` hold · `req_` command
"""

import base64
import hashlib
import re
from functools import lru_cache

_FORM = re.compile(r"(ses|trn|msg|ask|hld|req)_[0-9a-z]{8,64}")
_DIGEST = 16
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def digest(*parts: str, length: int = 20) -> str:
    """A stable lower-case hash of `parts`, five bits a character."""
    raw = hashlib.sha256(
        "\x00".join(f"{len(p)}:{p}" for p in parts).encode("utf-8", "surrogatepass")
    ).digest()
    return base64.b32encode(raw).decode().lower().rstrip("=")[:length]


def well_formed(prefix: str, value: str) -> bool:
    """Whether `value` has the form of an ID with this prefix; in a path anything else is a 404."""
    return value.startswith(prefix + "_") and _FORM.fullmatch(value) is not None


def environment_tag(environment: str) -> str:
    """The eight characters of a Session ID that say to which environment it belongs."""
    return digest("environment", environment, length=8)


def session_id(environment: str, *parts: str) -> str:
    """The ID of the Session that `parts` name: a key, an idempotency key, or something random."""
    return f"ses_{environment_tag(environment)}{digest(*parts)}"


def in_environment(session_id: str, environment: str) -> bool:
    return session_id.startswith(f"ses_{environment_tag(environment)}")


@lru_cache(4096)
def numbered(prefix: str, seed: str, number: int) -> str:
    """The ID of the `number`-th thing (from 1) of a Session. `number_of` reads it back."""
    return f"{prefix}_{digest(prefix, seed, str(number), length=_DIGEST)}{_base36(number)}"


def number_of(prefix: str, seed: str, value: str) -> int | None:
    """The number in an ID that `numbered` made of this seed, else None."""
    if not well_formed(prefix, value):
        return None
    tail = value[len(prefix) + 1 + _DIGEST :]
    if not tail or len(tail) > 12:
        return None
    number = int(tail, 36)
    return number if numbered(prefix, seed, number) == value else None


def closed_request(command: str, session: str) -> str:
    """A request ID that states its own outcome: `command` found its Session ended for good.

    Nothing can be recorded in a workflow that has completed, and the outcome of a command to a
    closed Session never changes, so the ID alone says what a look-up must answer (S-3, S-55).
    """
    return f"req_closed{command}{digest('closed', command, session)}"


def closed_request_command(request_id: str, session: str, commands: list[str]) -> str | None:
    """The command in an ID that `closed_request` made for this Session, else None."""
    return next((c for c in commands if closed_request(c, session) == request_id), None)


def _base36(number: int) -> str:
    text = ""
    while number:
        number, rest = divmod(number, 36)
        text = _BASE36[rest] + text
    return text or "0"
