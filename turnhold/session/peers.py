"""What a Session asks of Temporal about other Sessions, and what it is told."""

from typing import Literal

from turnhold.session.creation import NewSession
from turnhold.session.values import Origin, Record


class StartSessionCall(Record):
    """Start a Session that nobody will own, once for each `key` of `new.caller`; answers `Started`."""

    session_id: str
    new: NewSession
    key: str


class MadeByCall(Record):
    """Whether this Session was started by `caller` with `key`; answers `Started`."""

    session_id: str
    caller: Origin
    key: str


class EndedCall(Record):
    """Which of these Sessions are no more; with `unsaid`, but for those that completed; answers `Looked`.

    One that completed has said to its owner that it closes.
    """

    session_ids: tuple[str, ...]
    unsaid: bool = False


class Started(Record):
    """Whether the Session is there, and by this very spawn: now or before. Else its ID is taken."""

    ours: bool


class OwnedStart(Record):
    """How the start of an owned or independent Session ended.

    `version` is that of the owner's snapshot with which this run has started it; null when an
    earlier run may have, with an older one.
    """

    how: Literal["started", "taken"]
    version: int | None = None


class Told(Record):
    """Whether a signal has reached the other Session; if not, that one is no more.

    `version` is that of the snapshot which it carried, if it did.
    """

    reached: bool
    version: int | None = None


class Looked(Record):
    """Those that were looked for and are no more."""

    ended: tuple[str, ...] = ()
