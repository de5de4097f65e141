"""The coordinator of one pod, pass by pass."""

from forge_jobs.clock import ManualClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.model.ids import HostId, new_host_id
from forge_jobs.runtime.passes.coordinator import (
    CoordinateReport,
    CoordinatorMemory,
    coordinate_once,
    resign,
)
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.storage.protocols import Storage

SETTINGS = RuntimeSettings()


class Coordinator:
    """The coordinator of one pod, with the memory between passes."""

    def __init__(self, storage: Storage, clock: ManualClock, host_id: HostId | None = None) -> None:
        self.storage = storage
        self.host_id = host_id or new_host_id()
        self.memory = CoordinatorMemory(clock)
        self.events = EventBuffer(storage.jobs, clock=clock)

    async def once(self) -> CoordinateReport:
        return await coordinate_once(
            self.storage, self.host_id, SETTINGS, self.memory, events=self.events
        )

    async def resign(self) -> None:
        await resign(self.storage.cron, self.host_id, self.memory)


class Counted:
    """Counts the calls of a view of a store, and can act just before one of them."""

    def __init__(self, view: object) -> None:
        self._view = view
        self.calls: dict[str, int] = {}

    def __getattr__(self, name: str) -> object:
        self.calls[name] = self.calls.get(name, 0) + 1
        return getattr(self._view, name)
