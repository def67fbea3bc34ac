"""Our settings, all of them: `TURNHOLD_*` in the environment. Temporal's own come from `TEMPORAL_*`.

The table in the README lists the same names; a test holds the two together.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

Role = Literal["workflow", "host"]
CommaSeparated = Annotated[tuple[str, ...], NoDecode]


_PREFIX = "TURNHOLD_"
_ELSEWHERE = ("URL", "API_KEY", "SCRATCH")  # of the command line, and of the scripted Agent


class Settings(BaseSettings):
    """Configuration of the API and worker processes. Durations are seconds."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, extra="ignore")

    host: str = Field(default="127.0.0.1", description="address the API listens on")
    port: int = Field(
        default=8080, ge=0, le=65_535, description="port the API listens on; 0 for any free one"
    )
    agents: CommaSeparated = Field(default=(), description="modules that define Agents, comma-separated")
    task_queue: str = Field(default="turnhold", min_length=1, description="task queue that Sessions live on")
    store: str = Field(
        default="~/.turnhold/store",
        min_length=1,
        description="where Sessions keep what they do not carry: a folder, `s3://…`, `gs://…` or `az://…`; "
        "the same for every API and worker",
    )
    metrics_port: int | None = Field(
        default=None, ge=0, le=65_535, description="port of the worker's Prometheus metrics"
    )
    grace: float = Field(default=30, ge=0, description="how long a stopping worker lets running Turns go on")
    max_processes: int = Field(default=100, ge=1, le=10_000, description="Processes a worker keeps at once")
    cached_sessions: int = Field(
        default=1_000, ge=1, description="Sessions a worker keeps in memory; any other is replayed first"
    )
    roles: Annotated[tuple[Role, ...], NoDecode] = Field(
        default=("workflow", "host"), description="what a worker does: `workflow`, `host`, or both"
    )
    keys_file: Path | None = Field(
        default=None, description="API keys (hashes only); without it the API serves loopback"
    )
    deployment: str = Field(
        default="",
        description="worker deployment name: Sessions stay on their version; with `TURNHOLD_BUILD_ID`",
    )
    build_id: str = Field(
        default="",
        description="version of the worker within `TURNHOLD_DEPLOYMENT`, another one for each build",
    )
    receipt_timeout: float = Field(
        default=10, gt=0, le=60, description="how long the API waits for a receipt"
    )
    scratch: Path | None = Field(default=None, description="directory of the scripted Agent's `append` step")
    dev: bool = Field(default=False, description="development mode: also loads the scripted Agent")

    @field_validator("agents", "roles", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return (
            tuple(part.strip() for part in value.split(",") if part.strip())
            if isinstance(value, str)
            else value
        )

    @model_validator(mode="after")
    def _both_or_neither(self) -> "Settings":
        if bool(self.deployment) != bool(self.build_id):
            raise ValueError("TURNHOLD_DEPLOYMENT and TURNHOLD_BUILD_ID are set together or not at all")
        if not self.roles:
            raise ValueError("TURNHOLD_ROLES names no role")
        return self

    @property
    def agent_modules(self) -> tuple[str, ...]:
        """The modules to load: those named, and in development the scripted Agent's."""
        extra = ("turnhold.scripted",) if self.dev and "turnhold.scripted" not in self.agents else ()
        return (*self.agents, *extra)

    @property
    def deployment_name(self) -> str:
        """`NAME:BUILD`, or `unversioned`."""
        return f"{self.deployment}:{self.build_id}" if self.deployment else "unversioned"


def misnamed(names: Iterable[str]) -> Iterator[str]:
    """A line for each of these environment variables that looks like a setting of ours and is none."""
    known = [*_ELSEWHERE, *(field.upper() for field in Settings.model_fields)]
    for name in sorted(names):
        rest = name.upper().removeprefix(_PREFIX)
        if name.upper().startswith(_PREFIX) and rest not in known:
            nearest = get_close_matches(rest, known, n=1)
            hint = f": {_PREFIX}{nearest[0]}?" if nearest else ""
            yield f"{name} is no setting, and has no effect{hint}"
