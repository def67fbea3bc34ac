"""`turnhold demo`: one conversation from beginning to end, on a stack of its own.

Everything shown is real: the commands go through the public API, and the timeline comes from the
live stream as it happens.
"""

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import FrameType

from rich.text import Text

from turnhold.cli import output, show
from turnhold.cli.children import StackError
from turnhold.cli.stack import Plan, Stack
from turnhold.client import Client, Gap
from turnhold.session.views import EventView

_PATIENCE = 45.0
_AGENT = "script"


def run_demo() -> None:
    """Starts a stack in a temporary folder, holds the conversation, stops everything.

    Raises:
        StackError: something did not happen as it should; the logs are kept.
    """
    folder = Path(tempfile.mkdtemp(prefix="turnhold-demo-"))
    stack = Stack(Plan(folder))
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    started = time.monotonic()
    try:
        output.say("turnhold demo: one conversation with a scripted Agent, on a real Temporal server", "bold")
        output.say()
        output.say("Starting Temporal, a worker and the API …", "dim")
        stack.start()
        output.say(f"Ready after {time.monotonic() - started:.1f} s.", "dim")
        asyncio.run(_Conversation(stack.api_url, stack.check).hold())
        output.say()
        output.say("Stopping everything …", "dim")
    except StackError as error:
        stack.stop()
        raise StackError(f"{error}\nthe logs are in {folder / 'logs'}") from error
    except BaseException:
        stack.stop()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    stack.stop()
    shutil.rmtree(folder, ignore_errors=True)
    output.say(f"Done in {time.monotonic() - started:.0f} s. Yours to play with: turnhold dev", "bold green")


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class _Conversation:
    def __init__(self, url: str, check: Callable[[], None]) -> None:
        self._url = url
        self._check = check
        self._seen: list[EventView] = []
        self._news = asyncio.Event()
        self._numbers: dict[str, int] = {}

    async def hold(self) -> None:
        async with Client(self._url) as client:
            self._step("Create a Session. Its first Turn starts at once; output arrives as it is written.")
            created = await client.create_session(
                _AGENT,
                input="say Hello! I am an Agent.\nsleep 0.4\nsay What I remember outlives my process.\n"
                "set city Lisbon\nrespond Nice to meet you.",
                metadata={"made-by": "turnhold demo"},
                idempotency_key="demo",
            )
            session = created.session.id
            async with self._watching(client, session):
                await self._turn_ended(1)
                await self._remember(client, session)
                await self._fail_alone(client, session)
                await self._steer(client, session)
                await self._ask(client, session)
                await self._interrupt(client, session)
                hold = await self._crash(client, session)
                await self._release(client, session, hold)
                self._step("Close the Session: the last event of every timeline.")
                await client.close(session)
                await self._until(lambda event: event.kind == "session.closed")
            await self._verify(client, session)

    async def _remember(self, client: Client, session: str) -> None:
        self._step("The next Turn, in the same process, with the state that the first one left.")
        await client.enqueue(session, "get city\nepoch")
        await self._turn_ended(2)

    async def _fail_alone(self, client: Client, session: str) -> None:
        self._step("A Turn that raises fails alone. The one behind it in the queue runs all the same.")
        await client.enqueue(session, "say Let me look that up.\nsleep 0.5\nfail the database said no")
        await client.enqueue(session, "say Still here.")
        await self._turn_ended(4)

    async def _steer(self, client: Client, session: str) -> None:
        self._step("A Turn may take messages while it runs. One that it cannot use it rejects, and says why.")
        receipt = await client.enqueue(session, "listen 60")
        turn = receipt.turn_id or ""
        await self._until(lambda event: event.kind == "turn.running" and self._number(event) == 5)
        await self._listens(client, session, turn)
        for text in ("keep it short, please", "reject that", "done"):
            await client.send(session, turn, text)
        await self._turn_ended(5)

    async def _listens(self, client: Client, session: str, turn: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not (await client.turn(session, turn)).accepts_messages:
            if time.monotonic() > deadline:
                raise StackError("the Turn should take messages by now")
            await asyncio.sleep(0.02)

    async def _ask(self, client: Client, session: str) -> None:
        self._step("A Turn may ask a person, and wait: for hours, across restarts of all but its own worker.")
        await client.enqueue(session, "choose Shall I publish it? | publish,discard\nsay As you wish.")
        asked = await self._until(lambda event: event.kind == "ask.created")
        (ask,) = await client.asks(session, status="pending")
        self._step(
            "The demo answers, as you would:",
            f"turnhold session ask answer {session} {asked.turn_id} {ask.id} --select publish",
        )
        await client.answer(session, ask.turn_id, ask.id, selected=["publish"])
        await self._turn_ended(6)

    async def _interrupt(self, client: Client, session: str) -> None:
        self._step(
            "Stop! An interrupt of the Session ends the running Turn and holds the queue behind it.",
            f"turnhold session interrupt {session}",
        )
        await client.enqueue(session, "say I shall think about that for a minute.\nsleep 60")
        await client.enqueue(session, "get city\nsay That was quick.")
        await self._until(lambda event: event.kind == "turn.output" and self._number(event) == 7)
        receipt = await client.interrupt(session)
        await self._turn_ended(7)
        self._step("Why does it not move?", f"turnhold session explain {session}")
        explanation = await client.explain(session)
        output.say()
        show.explanation(explanation)
        if [cause.hold_id for cause in explanation.causes] != [receipt.hold_id]:
            raise StackError("the Session should be held by the interrupt, and by nothing else")
        self._step("So release that hold; the queue goes on, and nothing is run again.")
        await client.resume(session, receipt.hold_id or "")
        await self._turn_ended(8)

    async def _crash(self, client: Client, session: str) -> str:
        self._step(
            "Now the Agent's process dies under three Turns in a row, and is made anew each time.",
            "After the third the Session holds: Turn 12 stays queued until somebody has looked.",
        )
        await client.enqueue(session, "sleep 0.5\ncrash")
        await client.enqueue(session, "crash")
        await client.enqueue(session, "crash")
        await client.enqueue(session, "get city\nsay Back again.")
        failed = await self._until(
            lambda event: event.kind == "session.process_failed" and event.data.get("hold_id") is not None
        )
        view = await client.session(session)
        if view.queued_turns != 1 or [hold.id for hold in view.holds] != [failed.data["hold_id"]]:
            raise StackError("the Session should be held, with one Turn in its queue")
        return view.holds[0].id

    async def _release(self, client: Client, session: str, hold: str) -> None:
        self._step(
            "Somebody has looked, and releases the hold; the queue goes on, and the state is still there:",
            f"turnhold session resume {session} --hold {hold}",
        )
        await client.resume(session, hold)
        await self._turn_ended(12)

    async def _verify(self, client: Client, session: str) -> None:
        kept: list[EventView] = []
        more = True
        while more:
            page = await client.events(session, after=len(kept), limit=1000)
            kept += page.records
            more = page.has_more
        sequences = [event.sequence for event in kept]
        if sequences != list(range(1, len(kept) + 1)) or kept != self._seen:
            raise StackError("the timeline read afterwards is not the one that the live stream showed")
        output.say()
        output.say(
            output.styled("✓ ", "bold green").append(
                f"{len(kept)} events, numbered 1 to {len(kept)} without a gap; each seen live exactly once.",
                style="not bold default",
            )
        )

    # --- watching ------------------------------------------------------------------------------

    @asynccontextmanager
    async def _watching(self, client: Client, session: str) -> AsyncGenerator[None]:
        async def watch() -> None:
            async with aclosing(client.stream(session)) as events:
                async for event in events:
                    if not isinstance(event, Gap):
                        self._show(event)
                        self._seen.append(event)
                        self._news.set()

        watching = asyncio.create_task(watch())
        try:
            yield
            await watching
        finally:
            watching.cancel()

    async def _until(self, wanted: Callable[[EventView], bool]) -> EventView:
        deadline = time.monotonic() + _PATIENCE
        while True:
            self._news.clear()
            found = next((event for event in self._seen if wanted(event)), None)
            if found is not None:
                return found
            self._check()
            if time.monotonic() > deadline:
                raise StackError(f"nothing of what was expected happened within {_PATIENCE:g} s")
            try:
                async with asyncio.timeout(1):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _turn_ended(self, number: int) -> None:
        ends = ("turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled")
        await self._until(lambda event: event.kind in ends and self._number(event) == number)

    def _number(self, event: EventView) -> int | None:
        """Of its Turn."""
        return self._numbers.get(event.turn_id or "")

    def _show(self, event: EventView) -> None:
        number = event.data.get("sequence")
        if event.kind == "turn.queued" and event.turn_id and isinstance(number, int):
            self._numbers[event.turn_id] = number
        turn = f"Turn {self._numbers[event.turn_id]}" if event.turn_id in self._numbers else ""
        line = Text(f"  {event.sequence:>4}  {turn:<7} ", style="dim")
        line.append(f"{event.kind:<23}", style=f"not dim {show.colour(event.kind)}")
        spoken = event.kind == "turn.output"
        line.append(f"  {show.detail(event)}", style="not dim bold" if spoken else "")
        line.rstrip()
        output.say(line)

    def _step(self, *lines: str) -> None:
        output.say()
        for mark, line in zip(("▸ ", *("  ",) * len(lines)), lines, strict=False):
            output.say(output.styled(mark, "bold cyan").append(line, style="not bold default"))
