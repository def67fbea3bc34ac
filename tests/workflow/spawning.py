"""What hosts and callers do to Sessions that own others, without a host."""

import secrets
import uuid
from datetime import UTC, datetime
from typing import Any

from temporalio.client import Client, WorkflowHandle

from tests.harness import poll
from tests.workflow.stub_host import WAITS, read, start
from turnhold.session import commands
from turnhold.session.creation import Config, NewSession
from turnhold.session.values import TextPart
from turnhold.session.views import ReceiptView

Handle = WorkflowHandle[Any, Any]


async def running(client: Client, queue: str, **options: Any) -> Handle:
    """A root whose Turn runs until it is stopped."""
    root = await start(client, queue, WAITS, **options)
    await poll(lambda: running_turn(root), what="a running Turn")
    return client.get_workflow_handle(root.id)


async def running_turn(handle: Handle) -> str | None:
    return (await read(handle)).session.running_turn_id


async def ask(root: Handle, key: str, text: str = "", **changes: Any) -> str:
    """Ask for a Session, as a host does for the running Turn; the request's ID."""
    session = (await read(root)).session
    request_id = f"req_{secrets.token_hex(8)}"
    new = NewSession(
        agent="script",
        environment="default",
        seed=uuid.uuid4().hex,
        config=Config.resolve({"hibernate_after_idle": None}),
        key=changes.pop("session_key", None),
        input=(TextPart(text=text),) if text else (),
        request_id=f"req_{secrets.token_hex(8)}",
        created_at=datetime.now(UTC),
    )
    command = commands.Spawn(
        request_id=request_id,
        idempotency_key=key,
        fingerprint="f",
        turn_id=session.running_turn_id or "",
        epoch=session.process.epoch,
        session=new,
        **changes,
    )
    await root.signal("spawn", command)
    return request_id


async def answered(root: Handle, request_id: str) -> ReceiptView:
    async def receipt() -> ReceiptView | None:
        found = (await read(root, request_ids=(request_id,))).receipts.get(request_id)
        return found if found and found.status != "pending" else None

    return await poll(receipt, what="a receipt")


async def spawn(client: Client, root: Handle, key: str, text: str = "", **changes: Any) -> Handle:
    receipt = await answered(root, await ask(root, key, text, **changes))
    assert receipt.status == "accepted", receipt
    return client.get_workflow_handle(receipt.spawned_id or "")


async def holds(handle: Handle) -> dict[str, bool]:
    """The holds, and whether each can be released here."""
    return {hold.id: hold.can_release for hold in (await read(handle)).session.holds}


async def hold(root: Handle) -> str:
    """Interrupt it; the hold's ID."""
    request_id = f"req_{secrets.token_hex(8)}"
    await root.signal("interrupt", {"request_id": request_id})
    return (await answered(root, request_id)).hold_id or ""


async def resume(handle: Handle, hold_id: str) -> str | None:
    """Release it; the code with which that is refused."""
    request_id = f"req_{secrets.token_hex(8)}"
    await handle.signal("resume", {"hold_id": hold_id, "request_id": request_id})
    rejection = (await answered(handle, request_id)).rejection
    return rejection.code if rejection else None
