"""Durable agent sessions on Temporal: what the author of an Agent imports."""

from turnhold.agents.blocking import SyncContext, SyncTurn
from turnhold.agents.content import JsonPart, TextPart
from turnhold.agents.context import Context
from turnhold.agents.controls import Option, Reply, choice, text
from turnhold.agents.definition import AgentDefinition, agent
from turnhold.agents.errors import AgentLoadError, AskCancelled, MessageRejected, Refused
from turnhold.agents.past import PastTurn
from turnhold.agents.sessions import SpawnedSession
from turnhold.agents.turn import Message, Turn

__all__ = [
    "AgentDefinition",
    "AgentLoadError",
    "AskCancelled",
    "Context",
    "JsonPart",
    "Message",
    "MessageRejected",
    "Option",
    "PastTurn",
    "Refused",
    "Reply",
    "SpawnedSession",
    "SyncContext",
    "SyncTurn",
    "TextPart",
    "Turn",
    "agent",
    "choice",
    "text",
]
