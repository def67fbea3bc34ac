"""Defining Agents, and finding those that modules define."""

import importlib
import inspect
import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypedDict, TypeVar, Unpack

from pydantic import ValidationError

from turnhold.agents.blocking import SyncContext, SyncTurn
from turnhold.agents.context import Context
from turnhold.agents.errors import AgentLoadError
from turnhold.agents.turn import Turn
from turnhold.session.creation import Config

Handler = Callable[[Turn, Context], Awaitable[Any]] | Callable[[SyncTurn, SyncContext], Any]
InitHook = Callable[[Context], Awaitable[Any]] | Callable[[SyncContext], Any]
_Hook = TypeVar("_Hook", bound=InitHook)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

log = logging.getLogger(__name__)


class Settings(TypedDict, total=False):
    """What an Agent may set for its Sessions. Durations are seconds or ISO 8601; None means none."""

    close_after_idle: float | str | None
    hibernate_after_idle: float | str | None
    max_turn_duration: float | str | None
    stop_deadline: float | str
    init_timeout: float | str
    queue_limit: int
    retain_events: int | None
    retain_for: float | str | None


class AgentDefinition:
    """An Agent: its handler, its `init` hook, and the settings that it makes explicitly.

    Raises AgentLoadError for a bad name or settings, and for a handler that no Turn could call.
    """

    def __init__(self, name: str, handler: Handler, settings: Settings) -> None:
        if not _NAME.fullmatch(name):
            raise AgentLoadError(
                f"bad Agent name {name!r}: lower-case letters, digits, '.', '_' and '-', at most 64"
            )
        if unknown := sorted(set(settings) - set(Config.model_fields)):
            raise AgentLoadError(f"Agent {name!r} has no setting {unknown[0]!r}")
        try:
            config = Config.model_validate(settings)
        except ValidationError as error:
            first = error.errors()[0]
            setting = ".".join(map(str, first["loc"]))
            raise AgentLoadError(f"Agent {name!r}, setting {setting!r}: {first['msg']}") from None
        if fault := _fault(handler, "turn", "ctx"):
            raise AgentLoadError(f"Agent {name!r}: a handler {fault}")
        self.name = name
        self.handler = handler
        self.init_hook: InitHook | None = None
        self.settings: dict[str, Any] = {key: getattr(config, key) for key in settings}
        self.description = inspect.getdoc(handler) or ""

    def init(self, hook: _Hook) -> _Hook:
        """Decorator: what `hook(ctx)` returns becomes `ctx.process` of every Turn (S-20)."""
        if self.init_hook is not None:
            raise AgentLoadError(f"Agent {self.name!r} has two init hooks")
        if fault := _fault(hook, "ctx"):
            raise AgentLoadError(f"Agent {self.name!r}: an init hook {fault}")
        self.init_hook = hook
        return hook

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"


def agent(name: str, **settings: Unpack[Settings]) -> Callable[[Handler], AgentDefinition]:
    """Decorator: the Turn handler of the Agent `name`, an `async def` or a plain `def`.

    Raises AgentLoadError where the name is missing (a bare `@agent`); the rest as AgentDefinition.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AgentLoadError('an Agent needs a name: @agent("my-agent")')
    return lambda handler: AgentDefinition(name, handler, settings)


def _fault(function: Callable[..., Any], *takes: str) -> str | None:
    """Why `function` cannot be called with `takes`, after its name in a sentence; None when it can."""
    if not callable(function):
        return "is a function"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "returns, it does not yield" + ("; use turn.output.pipe" if "turn" in takes else "")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins have none
        return None
    try:
        signature.bind(*takes)
    except TypeError:
        return f"takes ({', '.join(takes)}), not {signature}"
    return None


def load_agents(modules: Iterable[str]) -> dict[str, AgentDefinition]:
    """The Agents that `modules` define, by name. The working directory is importable.

    Raises AgentLoadError, one line, for what is no module's name, a module that cannot be imported
    or defines no Agent, and for two Agents of one name.
    """
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.insert(0, os.getcwd())
    found: dict[str, AgentDefinition] = {}
    where: dict[str, str] = {}
    for module in modules:
        mine = _defined_in(module)
        if not mine:
            file = getattr(sys.modules[module], "__file__", None) or "no file"
            raise AgentLoadError(f"module {module!r} ({file}) defines no Agent")
        for definition in mine:
            if found.get(definition.name, definition) is not definition:
                raise AgentLoadError(
                    f"two Agents are named {definition.name!r}: in {where[definition.name]!r} and {module!r}"
                )
            found[definition.name] = definition
            where.setdefault(definition.name, module)
    if not found:
        log.warning("there are no Agents: TURNHOLD_AGENTS names no module")
    return found


def _defined_in(module: str) -> list[AgentDefinition]:
    if module.startswith(".") or module.endswith(".py") or any(mark in module for mark in r"/\:"):
        raise AgentLoadError(f"{module!r} is not a module name, such as my_agents")
    try:
        members = vars(importlib.import_module(module))
    except AgentLoadError as error:
        raise AgentLoadError(f"module {module!r}: {error}") from None
    except (Exception, SystemExit) as error:
        raise AgentLoadError(
            f"cannot import Agent module {module!r}: {type(error).__name__}: {error}"
        ) from error
    return list(dict.fromkeys(m for m in members.values() if isinstance(m, AgentDefinition)))
