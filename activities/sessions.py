"""What a Session asks of Temporal about other Sessions."""

from collections.abc import Callable
from typing import Any

from temporalio import activity

from turnhold.session.peers import EndedCall, Looked, MadeByCall, Started, StartSessionCall
from turnhold.temporal import names
from turnhold.temporal.failures import Failure
from turnhold.temporal.gateway import Gateway


class SessionActivities:
    """For the queue that every worker of Sessions serves: where a Session goes on, they are."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @property
    def all(self) -> list[Callable[..., Any]]:
        return [self.start_session, self.made_by, self.ended_sessions]

    @activity.defn(name=names.START_SESSION)
    async def start_session(self, call: StartSessionCall) -> Started:
        """Start a Session that nobody owns: on the current deployment, once for each spawn key (S-70)."""
        try:
            await self._gateway.create(call.new, call.session_id, idempotency_key=call.key)
        except Failure as failure:
            if failure.code != "session_key_conflict":
                raise
            return Started(ours=False)
        return Started(ours=True)

    @activity.defn(name=names.MADE_BY)
    async def made_by(self, call: MadeByCall) -> Started:
        return Started(ours=await self._gateway.made_by(call.session_id, call.caller, call.key))

    @activity.defn(name=names.ENDED_SESSIONS)
    async def ended_sessions(self, call: EndedCall) -> Looked:
        ended = await self._gateway.ended(call.session_ids, unsaid=call.unsaid)
        return Looked(ended=tuple(sorted(ended)))
