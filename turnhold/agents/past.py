"""Turns as a handler sees them afterwards."""

from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from turnhold.session.model import TurnError, TurnStatus
from turnhold.session.values import Content, Output, text_of
from turnhold.session.views import TurnView


@dataclass(frozen=True)
class PastTurn:
    """A Turn that has ended. `text` is its input's text, `output` what it wrote as text."""

    id: str
    sequence: int
    status: TurnStatus
    input: Content
    output: str
    response: Output | None
    result: JsonValue
    error: TurnError | None
    reason: str | None
    created_at: datetime
    ended_at: datetime | None

    @property
    def text(self) -> str:
        return text_of(self.input)

    @staticmethod
    def of(view: TurnView) -> "PastTurn":
        return PastTurn(
            id=view.id,
            sequence=view.sequence,
            status=view.status,
            input=view.input or (),
            output=text_of(view.output or ()),
            response=view.response,
            result=view.result,
            error=view.error,
            reason=view.reason,
            created_at=view.created_at,
            ended_at=view.ended_at,
        )
