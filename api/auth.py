"""Who calls, and what they may do: decided from the key and the ID alone, before any look-up."""

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers

from turnhold.keys import PERMISSIONS, Permission, StoredKey, digest
from turnhold.session.errors import Refused
from turnhold.session.values import Origin

DEFAULT_ENVIRONMENT = "default"


@dataclass(frozen=True)
class Caller:
    """The caller of a request. `environment` is the tenant whose Sessions exist for it."""

    environment: str
    origin: Origin
    permissions: frozenset[Permission]

    def must(self, permission: Permission) -> None:
        """Raises Refused, `permission_denied`, unless the key has this permission."""
        if permission not in self.permissions:
            raise Refused("permission_denied", f"This key may not do that: it lacks {permission}.")


ANONYMOUS = Caller(DEFAULT_ENVIRONMENT, Origin(kind="anonymous"), frozenset(PERMISSIONS))


class Authenticator:
    """Tells callers by their keys. Without keys everybody is anonymous, and must be on this machine."""

    def __init__(self, keys: tuple[StoredKey, ...]) -> None:
        self._callers: Mapping[str, Caller] = {
            key.sha256: Caller(
                key.environment, Origin(kind="api_key", id=key.name), frozenset(key.permissions)
            )
            for key in keys
        }

    def caller(self, headers: Headers) -> Caller:
        """Who sent these headers.

        Raises:
            Refused: `unauthenticated`; `permission_denied` for a page of another origin that talks
                to an API without keys.
        """
        if not self._callers:
            if not is_loopback(_host(headers.get("host", ""))):
                raise Refused("permission_denied", "This API has no keys and answers to loopback names only.")
            return ANONYMOUS
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Refused("unauthenticated", "This API wants a key: `Authorization: Bearer …`.")
        presented = digest(key.strip())
        for stored, caller in self._callers.items():
            if hmac.compare_digest(stored, presented):
                return caller
        raise Refused("unauthenticated", "This key is not known.")


def is_loopback(host: str) -> bool:
    """Whether this name or address can only mean this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
