"""A host without Temporal: a link in memory, and calls as a Session makes them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from activities.host import Host
from activities.others import Spawner
from turnhold.agents.definition import AgentDefinition, agent
from turnhold.agents.errors import Refused
from turnhold.agents.sessions import SpawnedSession
from turnhold.session import hosting
from turnhold.session.commands import Command, CreatePayload
from turnhold.session.creation import Config
from turnhold.session.values import OUTPUT, Origin, Record, TextPart, text_of
from turnhold.session.views import ReceiptView, SessionView, TurnView

SESSION = "ses_test0000"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Link:
    """What Sessions were told. `down` is how many reports fail first; `gone` are ended Sessions."""

    def __init__(self) -> None:
        self.reports: list[hosting.Report] = []
        self.down = 0
        self.gone: set[str] = set()
        self.past: list[TurnView] = []
        self.expected: dict[str, int] = {}  # the epoch that a Session counts on, if not this host's

    async def report(self, session_id: str, report: hosting.Report) -> bool:
        if self.down:
            self.down -= 1
            raise ConnectionError("Temporal is away")
        if session_id in self.gone:
            return False
        self.reports.append(report)
        return True

    async def history(self, session_id: str, limit: int) -> list[TurnView]:
        return self.past[-limit:]

    async def ended(self, session_ids: Sequence[str]) -> set[str]:
        if self.down:
            self.down -= 1
            raise ConnectionError("Temporal is away")
        return self.gone & set(session_ids)

    async def expects(self, session_id: str, epoch: int) -> bool:
        if self.down:
            self.down -= 1
            raise ConnectionError("Temporal is away")
        return session_id not in self.gone and self.expected.get(session_id, epoch) == epoch

    @property
    def facts(self) -> list[hosting.Fact]:
        return [fact for report in self.reports for fact in report.facts]


class Neighbours:
    """Other Sessions, as a Turn reaches them: what was asked, and with which code they refuse."""

    def __init__(self, refuse: str | None = None) -> None:
        self.refuse = refuse
        self.asked: list[tuple[object, ...]] = []

    def _ask(self, *what: object) -> None:
        self.asked.append(what)
        if self.refuse:
            raise Refused(self.refuse, "no")

    async def spawn(
        self, turn: Spawner, what: CreatePayload, key: str, *, independent: bool
    ) -> SpawnedSession:
        self._ask("start" if independent else "spawn", what.agent, text_of(what.input or ()), key)
        return SpawnedSession(f"ses_{key.replace(' ', '_')}", "trn_first")

    async def get(self, turn: Spawner, session_id: str) -> SessionView:
        self._ask("get", session_id)
        return SessionView(
            id=session_id,
            agent="test",
            root_id=session_id,
            config=Config(),
            created_at=NOW,
            last_activity_at=NOW,
        )

    async def command(
        self, turn: Spawner, session_id: str, command: Command, payload: Record | None
    ) -> ReceiptView:
        said = command.model_dump(exclude={"request_id", "fingerprint", "caller"}, exclude_none=True)
        self._ask(command.operation, session_id, said)
        return ReceiptView(
            request_id="req_1",
            status="accepted",
            session_id=session_id,
            turn_id="trn_made",
            hold_id="hld_made" if command.operation == "interrupt" and "turn_id" not in said else None,
        )

    async def wait_turn(
        self, turn: Spawner, session_id: str, turn_id: str | None, seconds: float | None
    ) -> TurnView:
        self._ask("wait_turn", session_id, turn_id, seconds)
        return TurnView(
            id=turn_id or "trn_last",
            session_id=session_id,
            sequence=1,
            status="failed",
            origin=Origin(),
            output=(TextPart(text="said"),),
            created_at=NOW,
        )


def make_host(
    *agents: AgentDefinition,
    link: Link | None = None,
    others: Neighbours | None = None,
    max_processes: int = 10,
) -> Host:
    return Host(
        {definition.name: definition for definition in agents},
        link or Link(),
        others or Neighbours(),
        queue="q-host-1",
        deployment="unversioned",
        max_processes=max_processes,
    )


def start_call(agent_name: str = "test", epoch: int = 1, **changes: Any) -> hosting.StartProcessCall:
    session = hosting.SessionInfo(
        id=changes.pop("session_id", SESSION),
        agent=agent_name,
        environment="default",
        metadata=changes.pop("metadata", {}),
    )
    recovery = hosting.Recovery(kind="initial")
    fields = {"init_timeout": 5, "stop_deadline": 2} | changes
    return hosting.StartProcessCall(session=session, epoch=epoch, recovery=recovery, **fields)


def turn_call(text: str = "", number: int = 1, epoch: int = 1, **changes: Any) -> hosting.RunTurnCall:
    fields: dict[str, Any] = {"session_id": SESSION, "state": None, "stop_deadline": 2} | changes
    return hosting.RunTurnCall(
        epoch=epoch,
        turn_id=f"trn_{number}",
        sequence=number,
        input=(TextPart(text=text),),
        origin=Origin(),
        created_at=NOW,
        **fields,
    )


def stop_call(number: int = 1, reason: str = "interrupt") -> hosting.StopTurnCall:
    return hosting.StopTurnCall(session_id=SESSION, epoch=1, turn_id=f"trn_{number}", reason=reason)


def stop_process_call(deadline: float = 2, *, abandon: bool = False) -> hosting.StopProcessCall:
    return hosting.StopProcessCall(
        session_id=SESSION, epoch=1, reason="test", abandon=abandon, stop_deadline=deadline
    )


def written(facts: Any) -> str:
    """All output text in these facts."""
    parts = [p for f in facts if isinstance(f, hosting.OutputWritten) for p in f.content]
    return text_of(OUTPUT.validate_python(tuple(parts)))


async def run_one(
    handler: Any,
    text: str = "",
    *,
    link: Link | None = None,
    others: Neighbours | None = None,
    **changes: Any,
) -> hosting.TurnOutcome:
    """The outcome of one Turn of an Agent with this handler."""
    host = make_host(agent("test")(handler), link=link, others=others)
    assert (await host.start_process(start_call())).status == "started"
    try:
        return await host.run_turn(turn_call(text, **changes))
    finally:
        await host.stop_process(stop_process_call())
