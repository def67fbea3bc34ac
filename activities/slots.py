"""Process slots: a host asks for new Processes only while it has room for one."""

import asyncio
import threading

from temporalio.worker import (
    CustomSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
)

from activities.host import Host


class ProcessSlots(CustomSlotSupplier):
    """Permits for starts of Processes. A permit is a start under way, or a poll for one.

    Permits and Processes together never exceed the host's `max_processes`, so that a start is
    never taken that would have to wait here while another host is free (S-22).
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._taking = threading.Lock()
        self._permits = 0
        self._changed = asyncio.Event()
        host.on_change = self._changed.set

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        while (permit := self.try_reserve_slot(ctx)) is None:
            self._changed.clear()
            await self._changed.wait()
        return permit

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """Also called on a thread of the SDK's, where a Session's own worker may start its Process."""
        host = self._host
        with self._taking:
            if host.draining or self._permits + host.occupied >= host.max_processes:
                return None
            self._permits += 1
        return SlotPermit()

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        pass

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """Called on a thread of the SDK's."""
        self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        with self._taking:
            self._permits -= 1
        self._changed.set()
