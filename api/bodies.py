"""Request bodies: the payloads of the commands, with unknown fields refused."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic_core import to_json

from api.parameters import NoNul
from turnhold.session import ids
from turnhold.session.commands import EnqueuePayload, FullContent, ResumePayload
from turnhold.session.creation import Config, Metadata, SessionKey
from turnhold.session.values import Record


class EnqueueBody(EnqueuePayload):
    model_config = ConfigDict(extra="forbid")


class ResumeBody(ResumePayload):
    model_config = ConfigDict(extra="forbid")


class EmptyBody(Record):
    """Nothing: the command has no payload. The body may be absent."""

    model_config = ConfigDict(extra="forbid")


class ConfigBody(Config):
    """What this Session does differently from its Agent; an explicit `null` means none."""

    model_config = ConfigDict(extra="forbid")


class CreateBody(Record):
    """A new Session. Without `input` it has no Turn yet."""

    model_config = ConfigDict(extra="forbid")

    agent: str
    input: FullContent | None = None
    key: Annotated[SessionKey, NoNul] | None = None
    config: ConfigBody | None = None
    metadata: Metadata = Field(default_factory=dict)

    def fingerprint(self) -> str:
        """Equal for every way of writing the same creation.

        Settings that were left out are left out here too: what they resolve to is the Agent's
        affair, and may change between a request and its retry.
        """
        overrides: dict[str, Any] = (
            self.config.model_dump(mode="json", exclude_unset=True) if self.config else {}
        )
        return ids.digest(
            to_json(self.but(config=None).model_dump(mode="json") | {"config": overrides}).decode()
        )
