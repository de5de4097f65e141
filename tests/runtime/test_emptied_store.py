"""A store that loses everything under a running fleet, and what the fleet brings back."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from forge_jobs.clients.schedules import schedule
from forge_jobs.handlers.limits.concurrency import Limit
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import QueueChange, QueueSettings, RateLimit
from forge_jobs.model.retries import Fixed
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, pass_on
from tests.support.emptying import empty
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import QUEUE, job_when, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

SERVED = QueueSettings(max_workers=2, retry=Fixed(seconds(7)))
NOT_SERVED = QueueSettings(max_workers=5)
LIMIT = RateLimit(3, 3600.0)


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def storage(backend: str, tmp_path: Path) -> AsyncGenerator[Storage]:
    async with BACKENDS[backend](tmp_path, None) as opened:
        yield opened
    await pass_on(backend, tmp_path)


class RunGate:
    """Counts the runs inside, now and at most. No run leaves before the doors open."""

    def __init__(self) -> None:
        self.handlers = HandlerRegistry()
        self.inside = self.most = 0
        self.doors = anyio.Event()

        @self.handlers.job("enters")
        async def enters() -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            await self.doors.wait()
            self.inside -= 1

        self.enters = enters


def declaring(storage: Storage, handlers: HandlerRegistry) -> QueueRuntime:
    runtime = QueueRuntime(
        storage,
        handlers,
        settings=quick_settings(),
        rate_limits={"upstream": LIMIT},
        ensure_schedules=[schedule("nightly", "enters", "@yearly")],
    )
    return runtime.with_queues(default=SERVED).ensure_queue("elsewhere", NOT_SERVED)


async def is_declared(storage: Storage) -> bool:
    queues = {state.name: state.settings for state in await storage.config.queues()}
    limits = {state.scope: state.limit.capacity for state in await storage.config.rate_limits()}
    return (
        queues == {QUEUE: SERVED, "elsewhere": NOT_SERVED}
        and limits == {"upstream": LIMIT.capacity}
        and [each.spec.name for each in await storage.cron.schedules()] == ["nightly"]
    )


async def has_pods(storage: Storage, count: int) -> bool:
    return len(await storage.procs.pods()) == count


async def test_a_running_fleet_declares_again_and_keeps_its_limits(
    storage: Storage, backend: str, tmp_path: Path
) -> None:
    hall = RunGate()
    async with (
        declaring(storage, hall.handlers).start() as first,
        declaring(storage, hall.handlers).start() as second,
    ):
        assert await first.rate_limit.acquire("upstream", 3)
        await wait_until(lambda: granted(first) + granted(second) == 2, description="slots")

        await empty(backend, tmp_path)

        await wait_until(lambda: has_pods(storage, 2), description="both are registered again")
        assert await is_declared(storage)
        outcomes = await first.enqueue_many([hall.enters.request()] * 6)
        await wait_until(lambda: hall.inside == 2, description="two are inside")
        [allocation] = [a for a in await storage.procs.allocations() if a.queue == QUEUE]
        assert sum(slots.grant for slots in allocation.pods.values()) == 2
        hall.doors.set()
        for outcome in outcomes:
            await job_when(storage, outcome.job_id, JobStatus.DONE)
        assert hall.most == 2
        assert await second.rate_limit.acquire("upstream", 3), "the new bucket is full"
        assert not await first.rate_limit.acquire("upstream"), "and holds no more than that"


async def test_a_pod_is_not_admitted_before_its_limits_are_there(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    faults = Faults()
    async with declaring(faulty(storage, faults), RunGate().handlers).start() as handle:
        await wait_until(lambda: granted(handle), description="slots")
        faults.hold_replies("ensure_queue")
        await storage.procs.unregister(handle._pod.services.lease)
        await wait_until(lambda: faults.waiting["ensure_queue"], description="it declares")
        assert await storage.procs.pods() == []

        declared = faults.calls["ensure_rate_limit"]
        faults.lose_replies("ensure_rate_limit", 3)
        faults.let_go("ensure_queue")

        await wait_until(lambda: has_pods(storage, 1), description="it is registered again")
        assert faults.calls["ensure_rate_limit"] == declared + 4, "it was repeated"
        assert sum("the test lost the reply" in each.message for each in caplog.records) == 1


async def test_what_operators_have_set_outlives_a_lapsed_lease(storage: Storage) -> None:
    faults = Faults()
    async with declaring(faulty(storage, faults), RunGate().handlers).start() as handle:
        await storage.config.set_queue(QUEUE, QueueChange(max_workers=7))
        await storage.config.set_rate_limit("upstream", RateLimit(9, 60.0))
        await storage.cron.delete_schedule("nightly")
        declared = faults.calls["ensure_schedule"]
        await storage.procs.unregister(handle._pod.services.lease)
        await wait_until(lambda: has_pods(storage, 1), description="it is registered again")
        # In a cluster a beat may come when the pod has left its queues and not the fleet yet.
        assert faults.calls["ensure_schedule"] - declared in (1, 2)

        [_, served] = sorted(await storage.config.queues(), key=lambda queue: queue.name == QUEUE)
        assert served.settings == structs.replace(SERVED, max_workers=7)
        [limit] = await storage.config.rate_limits()
        assert limit.limit.capacity == 9
        assert await storage.cron.schedules() == []


async def test_a_pod_that_drains_leaves_the_word_to_others(storage: Storage) -> None:
    # Else the last pods of the old release would take back what the new release has declared.
    async with declaring(storage, RunGate().handlers).start() as old:
        await old.drain(0)
        newer = QueueSettings(max_workers=6)
        await storage.config.ensure_queue(QUEUE, newer)

        await storage.procs.unregister(old._pod.services.lease)

        await wait_until(lambda: has_pods(storage, 1), description="it is registered again")
        assert newer in [queue.settings for queue in await storage.config.queues()]


def granted(handle: QueueHandle) -> int:
    return handle.health().queues[QUEUE].grant


async def test_a_pod_that_registers_again_trusts_nothing_it_has_seen(storage: Storage) -> None:
    runtime = QueueRuntime(storage, RunGate().handlers, settings=quick_settings()).with_queues(
        work=1
    )
    async with runtime.start() as handle:
        memory = handle._pod.loops.memory
        seen = await wait_until(
            lambda: memory._fleet_version, description="the slots have been looked at"
        )
        # A store that lost everything counts anew, and may come by the same version.
        handle._pod.registered_again(handle._pod.services.lease, handle._pod.plan.clock.elapsed())
        assert memory.must_look(seen)


class Release:
    """A release whose code says one number everywhere."""

    def __init__(self, number: int, *kinds: str) -> None:
        self._handlers, self._number = HandlerRegistry(), number
        for kind in kinds:
            self._handlers.job(kind, concurrency=Limit(number))(self._run)

    @staticmethod
    async def _run() -> None: ...

    def pod(self, storage: Storage) -> QueueRuntime:
        limits = {"upstream": RateLimit(self._number, 60.0)}
        runtime = QueueRuntime(
            storage, self._handlers, settings=quick_settings(), rate_limits=limits
        )
        return runtime.with_queues(default=QueueSettings(max_workers=self._number))


async def numbers_in(storage: Storage) -> tuple[dict[str, int], int, int]:
    config = storage.config
    limits = {each.name: each.at_most for each in await config.limits()}
    [rate], [queue] = await config.rate_limits(), await config.queues()
    return limits, rate.limit.capacity, queue.settings.max_workers


async def test_an_old_pod_that_was_away_leaves_the_word_to_a_younger_one(
    storage: Storage, backend: str, tmp_path: Path
) -> None:
    async with Release(5, "fetch", "gone").pod(storage).start() as old:
        async with Release(2, "fetch").pod(storage).start() as young:
            for each in (old, young):
                # As after a lease that ran out, which takes longer.
                await storage.procs.unregister(each._pod.services.lease)
                await wait_until(lambda: has_pods(storage, 2), description="both are back")
                assert await numbers_in(storage) == ({"fetch": 2, "gone": 5}, 2, 2)
            await storage.config.delete_limit(QUEUE, "gone")
            await storage.procs.unregister(old._pod.services.lease)
            await wait_until(lambda: has_pods(storage, 2), description="both are back")
            assert await numbers_in(storage) == ({"fetch": 2, "gone": 5}, 2, 2)
        await empty(backend, tmp_path)
        await wait_until(lambda: has_pods(storage, 1), description="the old one is alone")
        assert await numbers_in(storage) == ({"fetch": 5, "gone": 5}, 5, 5)
