"""What a creation decided, kept in the workflow's memo so that a retry needs no worker (S-2, S-3)."""

import json
import secrets
from collections.abc import Sequence
from typing import Any

from pydantic import Field
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from turnhold.session import ids
from turnhold.session.creation import Config, Metadata, NewSession
from turnhold.session.model import ClosedHow
from turnhold.session.values import Content, Origin, Record, Timestamp
from turnhold.session.views import HoldView, SessionView, TurnView
from turnhold.temporal import names

AGENT = SearchAttributeKey.for_keyword(names.ATTRIBUTE_AGENT)
STATUS = SearchAttributeKey.for_keyword(names.ATTRIBUTE_STATUS)
KEY = SearchAttributeKey.for_keyword(names.ATTRIBUTE_KEY)
PARENT = SearchAttributeKey.for_keyword(names.ATTRIBUTE_PARENT)
ROOT = SearchAttributeKey.for_keyword(names.ATTRIBUTE_ROOT)
ENVIRONMENT = SearchAttributeKey.for_keyword(names.ATTRIBUTE_ENVIRONMENT)
HELD = SearchAttributeKey.for_bool(names.ATTRIBUTE_HELD)
ASKING = SearchAttributeKey.for_bool(names.ATTRIBUTE_ASKING)
LAST_ACTIVITY = SearchAttributeKey.for_datetime(names.ATTRIBUTE_LAST_ACTIVITY)

TASK_SECONDS = 5.0  # a task that a killed worker has taken: its Session waits so long (S-24)
_SUMMARY_BYTES = 200  # Temporal takes 400 in a summary
_ATTRIBUTE_BYTES = 2_000  # Temporal takes 2,048 in a search attribute, with JSON's escapes


class Creation(Record):
    """The memo: what the Session was created with, but for its input."""

    agent: str
    environment: str
    seed: str
    config: Config
    key: str | None = None
    metadata: Metadata = Field(default_factory=dict)
    caller: Origin = Origin()
    idempotency_key: str | None = None
    fingerprint: str | None = None
    fingerprint_as_given: str | None = None
    request_id: str
    turn_id: str | None = None
    created_at: Timestamp
    parent_id: str | None = None
    root_id: str

    @classmethod
    def of(
        cls,
        new: NewSession,
        session_id: str,
        *,
        idempotency_key: str | None = None,
        fingerprint: str | None = None,
        fingerprint_as_given: str | None = None,
    ) -> "Creation":
        return cls(
            agent=new.agent,
            environment=new.environment,
            seed=new.seed,
            config=new.config,
            key=new.key,
            metadata=new.metadata,
            caller=new.caller,
            idempotency_key=idempotency_key,
            fingerprint=fingerprint if idempotency_key else None,
            fingerprint_as_given=fingerprint_as_given if idempotency_key else None,
            request_id=new.request_id,
            turn_id=new.first_turn_id(),
            created_at=new.created_at,
            parent_id=new.owner_id,
            root_id=new.root_id or session_id,
        )

    def uses_key_of(self, first: "Creation") -> bool:
        """Whether this is the same caller with the same idempotency key."""
        return self.idempotency_key is not None and (self.caller, self.idempotency_key) == (
            first.caller,
            first.idempotency_key,
        )

    def repeats(self, first: "Creation") -> bool:
        """Whether this asks for the same: it comes to the same, or is written alike (S-3)."""
        return (
            self.fingerprint == first.fingerprint or self.fingerprint_as_given == first.fingerprint_as_given
        )

    def session(self, session_id: str) -> SessionView:
        """The Session as it was created, before any worker has seen it."""
        turns = 0 if self.turn_id is None else 1
        return SessionView(
            id=session_id,
            agent=self.agent,
            key=self.key,
            parent_id=self.parent_id,
            root_id=self.root_id,
            metadata=self.metadata,
            config=self.config,
            created_at=self.created_at,
            last_activity_at=self.created_at,
            queued_turns=turns,
            turns_admitted=turns,
        )

    def turn(self, session_id: str, content: Content) -> TurnView | None:
        """The first Turn as it was admitted, or None."""
        if self.turn_id is None:
            return None
        return TurnView(
            id=self.turn_id,
            session_id=session_id,
            sequence=1,
            status="queued",
            origin=self.caller,
            input=content,
            output=(),
            created_at=self.created_at,
        )

    def attributes(self) -> TypedSearchAttributes:
        """The search attributes that a Session starts with."""
        pairs: list[SearchAttributePair[Any]] = [
            SearchAttributePair(AGENT, self.agent),
            SearchAttributePair(STATUS, "open"),
            SearchAttributePair(ROOT, self.root_id),
            SearchAttributePair(ENVIRONMENT, self.environment),
            SearchAttributePair(HELD, False),
            SearchAttributePair(ASKING, False),
            SearchAttributePair(LAST_ACTIVITY, self.created_at),
        ]
        if self.key is not None:
            pairs.append(SearchAttributePair(KEY, _fitting(self.key)))
        if self.parent_id is not None:
            pairs.append(SearchAttributePair(PARENT, self.parent_id))
        return TypedSearchAttributes(pairs)

    def summary(self) -> str:
        """One line for Temporal's UI."""
        text = f"{self.agent} {self.key}" if self.key else self.agent
        return text.encode()[:_SUMMARY_BYTES].decode("utf-8", "ignore")


def _fitting(key: str) -> str:
    """As much of a key as one search attribute holds: all of it, but for a key of more than 160 emoji.

    Only searches in Temporal's UI use it: which Session has a key is decided by the Session's ID.
    """
    while len(json.dumps(key)) > _ATTRIBUTE_BYTES:
        key = key[:-1]
    return key


HOLDS_KEPT = 3
"""Holds in the memo: with the largest metadata, a memo is close to the 40 KiB that Temporal allows."""


class Latest(Record):
    """Memo `turnhold_latest`: what the Session's workflow adds, so that lists and `explain` need no worker.

    Absent until it does. `holds` are the first few of them.
    """

    deployment: str | None = None
    closed_how: ClosedHow | None = None
    closed_at: Timestamp | None = None
    holds: tuple[HoldView, ...] = ()


def session_id(environment: str, agent: str, key: str | None, idempotency: Sequence[str] | None) -> str:
    """The ID that a creation must get: of its key, else of its caller and idempotency key, else random."""
    if key is not None:
        return ids.session_id(environment, "key", agent, key)
    if idempotency is not None:
        return ids.session_id(environment, "idempotency", *idempotency)
    return ids.session_id(environment, "random", secrets.token_hex(16))
