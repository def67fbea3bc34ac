"""What a Session is created with: resolved once, by the API or an owner, and never changed after."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from turnhold.session import ids, limits
from turnhold.session.values import Content, Origin, Record, Seconds, Timestamp

StopDeadline = Annotated[Seconds, Field(ge=limits.STOP_DEADLINE_RANGE[0], le=limits.STOP_DEADLINE_RANGE[1])]


class Config(Record):
    """How a Session behaves; resolved when it is created (`resolve`), and never changed after.

    Durations are seconds; `null` means none.
    """

    close_after_idle: Seconds | None = None
    hibernate_after_idle: Seconds | None = None
    max_turn_duration: Seconds | None = None
    stop_deadline: StopDeadline = 10
    init_timeout: Seconds = 60
    queue_limit: Annotated[int, Field(ge=1, le=limits.QUEUE_LIMIT, strict=True)] = limits.QUEUE_LIMIT
    retain_events: Annotated[int, Field(ge=1, le=limits.MAX_CURSOR, strict=True)] | None = None
    retain_for: Seconds | None = None

    @classmethod
    def resolve(cls, *layers: "Config | Mapping[str, Any]") -> "Config":
        """One Config of the defaults and of what each layer sets explicitly, the last one winning.

        An explicit `null` is a setting; an omitted field is not.
        """
        resolved: dict[str, Any] = dict(_DEFAULTS)
        for layer in layers:
            resolved |= layer.model_dump(exclude_unset=True) if isinstance(layer, Config) else dict(layer)
        return cls.model_validate(resolved)


class Overrides(Config):
    """What a Session does differently from its Agent; an explicit `null` means none."""

    model_config = ConfigDict(extra="forbid")


_DEFAULTS = {"hibernate_after_idle": 900}
"""Defaults that are not `null`: an absent nullable field reads as `null`, in every record (`Record`)."""


def _metadata(pairs: dict[str, str]) -> dict[str, str]:
    if len(pairs) > limits.METADATA_PAIRS:
        raise PydanticCustomError("metadata", "at most 16 pairs")
    for key, value in pairs.items():
        if not 1 <= len(key) <= limits.METADATA_KEY_CHARS or len(value) > limits.METADATA_VALUE_CHARS:
            raise PydanticCustomError("metadata", "a key has 1 to 64 characters, a value at most 512")
    return pairs


Metadata = Annotated[dict[str, str], AfterValidator(_metadata)]
SessionKey = Annotated[
    str,
    StringConstraints(
        min_length=1,
        max_length=limits.SESSION_KEY_CHARS,
        pattern=r"^[^\x00]*$",  # NUL is no text to the databases behind Temporal
    ),
]


class NewSession(Record):
    """What a Session is started with: resolved by whoever creates it (the API, or an owner)."""

    agent: str
    environment: str
    seed: str
    config: Config
    key: str | None = None
    metadata: Metadata = Field(default_factory=dict)
    input: Content = ()
    caller: Origin = Origin()
    request_id: str
    created_at: Timestamp
    owner_id: str | None = None
    root_id: str | None = None
    depth: int = 1

    def first_turn_id(self) -> str | None:
        return ids.numbered("trn", self.seed, 1) if self.input else None
