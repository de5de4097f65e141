"""The watch tells of each queue whose part of the store is silent for too long."""

from pathlib import Path

import anyio.lowlevel
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.model.ids import new_host_id
from forge_jobs.model.pod_requests import PodRequest
from forge_jobs.model.processes import Beat, Pod, PodLease
from forge_jobs.policy.liveness import Fence
from forge_jobs.runtime.heartbeat.declaration import Declaration
from forge_jobs.runtime.heartbeat.requests import Reply
from forge_jobs.runtime.heartbeat.thread import Heartbeat
from forge_jobs.runtime.shared.held_claims import HeldClaims
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage

pytestmark = pytest.mark.anyio


class FenceCalls:
    """Counts how often the handlers' loop was asked to look at the fence."""

    def __init__(self) -> None:
        self.times = 0

    def beat_arrived(self, beat: Beat, sent_at: float) -> None: ...

    def registered_again(self, lease: PodLease, at: float) -> None: ...

    def fenced(self) -> None:
        self.times += 1

    def asked(self, request: PodRequest, reply: Reply) -> None: ...

    def stacks(self) -> str:
        return ""


async def nothing_to_declare(_: Storage) -> None: ...


async def test_a_queue_that_falls_silent_as_another_returns_is_told_of(tmp_path: Path) -> None:
    clock, settings, told = ManualClock(), RuntimeSettings(), FenceCalls()
    start = clock.elapsed()
    fence = Fence(settings.lease, settings.fence_margin, start)
    pod = Pod(
        host_id=new_host_id(), label="", queues=("a", "b"), kinds=(), version="", process_id=1
    )
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db") as storage:
        lease = await storage.procs.register(pod, settings.lease)
        heartbeat = Heartbeat(
            storage=storage,
            declaration=Declaration(pod, nothing_to_declare),
            lease=lease,
            held=HeldClaims(),
            fence=fence,
            listener=told,
            requests=told,
            settings=settings,
            clock=clock,
        )
        limit = (settings.lease - settings.fence_margin).total_seconds()
        fence.renewed(start + 1, ["a"])
        fence.renewed(start + 2, ["a", "b"])
        heartbeat._check_fence(start + limit)
        await anyio.lowlevel.checkpoint()
        assert told.times == 1
        # Between two looks one is heard of again and the other is silent for too long.
        fence.renewed(start + 3, ["b"])
        heartbeat._check_fence(start + 1 + limit)
        await anyio.lowlevel.checkpoint()
        assert told.times == 2
