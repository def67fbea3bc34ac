"""The Agents that this deployment serves."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from api import problems
from api.auth import Caller
from api.parameters import NoQuery
from api.problems import described
from api.services import Wired, authenticated
from turnhold.agents.definition import AgentDefinition
from turnhold.session.creation import Config
from turnhold.session.values import Record
from turnhold.temporal.failures import Failure

router = APIRouter(prefix="/v1/agents", tags=["agents"])


class AgentView(Record):
    """An Agent; `config` is what its Sessions start from."""

    name: str
    description: str
    config: Config

    @classmethod
    def of(cls, agent: AgentDefinition) -> "AgentView":
        return cls(name=agent.name, description=agent.description, config=Config.resolve(agent.settings))


class AgentList(Record):
    agents: tuple[AgentView, ...]


@router.get("", responses=described(*problems.ALWAYS))
async def list_agents(
    wired: Wired, caller: Annotated[Caller, Depends(authenticated)], query: Annotated[NoQuery, Query()]
) -> AgentList:
    """Every Agent, by name."""
    return AgentList(agents=tuple(AgentView.of(agent) for _, agent in sorted(wired.agents.items())))


@router.get("/{name}", responses=described(*problems.ALWAYS, "agent_not_found"))
async def get_agent(
    name: str,
    wired: Wired,
    caller: Annotated[Caller, Depends(authenticated)],
    query: Annotated[NoQuery, Query()],
) -> AgentView:
    """One Agent."""
    agent = wired.agents.get(name)
    if agent is None:
        raise Failure("agent_not_found", f"There is no Agent {name}.")
    return AgentView.of(agent)
