"""Workers follow the grant, and surplus slots are given back."""

import anyio
import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import QueueChange
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended, in_progress
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class RunGate:
    """Handlers that wait to be let out, and how many are inside."""

    def __init__(self) -> None:
        self.handlers = HandlerRegistry()
        self.inside = 0
        self.doors: dict[int, anyio.Event] = {}

        @self.handlers.job("enters")
        async def enters(n: int) -> None:
            self.inside += 1
            await self.doors.setdefault(n, anyio.Event()).wait()
            self.inside -= 1

        self.enters = enters

    def let_out(self, *numbers: int) -> None:
        for n in numbers:
            self.doors.setdefault(n, anyio.Event()).set()


def grant(handle: QueueHandle) -> int:
    return handle.health().queues["default"].grant


async def test_lowering_max_workers_interrupts_none_and_gives_slots_back_as_jobs_end(
    storage: Storage,
) -> None:
    hall = RunGate()
    async with a_runtime(storage, hall.handlers, 4).start() as handle:
        outcomes = await handle.enqueue_many([hall.enters.request(n) for n in range(6)])
        await wait_until(lambda: hall.inside == 4, description="four are inside")
        await storage.config.set_queue("default", QueueChange(max_workers=1))
        await wait_until(
            lambda: handle.health().queues["default"].target == 1, description="the target is 1"
        )
        assert (hall.inside, grant(handle)) == (4, 4)
        hall.let_out(0, 1)
        await wait_until(lambda: stored_grant(storage, 2), description="two slots went back")
        assert hall.inside == 2
        hall.let_out(2)
        await wait_until(lambda: stored_grant(storage, 1), description="three slots went back")
        assert hall.inside == 1
        hall.let_out(3, 4, 5)
        for outcome in outcomes:
            assert (await ended(storage, outcome.job_id)).status is JobStatus.DONE


async def stored_grant(storage: Storage, wanted: int) -> bool:
    [allocation] = await storage.procs.allocations()
    return sum(slots.grant for slots in allocation.pods.values()) == wanted


async def test_raising_max_workers_is_followed_at_once(storage: Storage) -> None:
    hall = RunGate()
    async with a_runtime(storage, hall.handlers, 1).start() as handle:
        await handle.enqueue_many([hall.enters.request(n) for n in range(3)])
        await wait_until(lambda: hall.inside == 1, description="one is inside")
        await storage.config.set_queue("default", QueueChange(max_workers=3))
        await wait_until(lambda: hall.inside == 3, description="three are inside")
        hall.let_out(0, 1, 2)


async def test_two_pods_share_and_one_takes_over_when_the_other_leaves(
    storage: Storage,
) -> None:
    first, second = RunGate(), RunGate()
    async with a_runtime(storage, first.handlers, 4).start() as one:
        await wait_until(lambda: grant(one) == 4, description="the first has all slots")
        other = await a_runtime(storage, second.handlers, 4).start()
        await wait_until(
            lambda: (grant(one), grant(other)) == (2, 2), description="they have two each"
        )
        await one.enqueue_many([first.enters.request(n) for n in range(4)])
        await wait_until(
            lambda: (first.inside, second.inside) == (2, 2), description="each runs two"
        )
        await other.stop(timeout=0)
        await wait_until(lambda: grant(one) == 4, description="the first has all slots again")
        await wait_until(lambda: first.inside == 4, description="the first runs all")
        first.let_out(0, 1, 2, 3)
    assert await in_progress(storage) == 0


async def test_a_new_kind_runs_although_pods_without_it_hold_all_slots(storage: Storage) -> None:
    # A deploy: pods of the old release hold the only slot, and those of the new one know more.
    old, new = RunGate(), RunGate()
    ran = anyio.Event()

    @new.handlers.job("added")
    async def added() -> None:
        ran.set()

    async with a_runtime(storage, old.handlers, 1).start() as first:
        await wait_until(lambda: grant(first) == 1, description="the old pod has the slot")
        async with a_runtime(storage, new.handlers, 1).start() as second:
            await second.enqueue(added.request())
            await wait_until(ran.is_set, description="the new kind runs")
            assert (grant(first), grant(second)) == (0, 1)
