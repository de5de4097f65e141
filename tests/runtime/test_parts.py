"""The tasks of a pod: started again when they fail, and the end when the program ends them."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import anyio
import pytest

from forge_jobs.clock import SystemClock
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId, new_host_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.pod_requests import PodRequest
from forge_jobs.model.processes import Beat, Pod, PodLease
from forge_jobs.policy.liveness import Fence
from forge_jobs.runtime.heartbeat.declaration import Declaration
from forge_jobs.runtime.heartbeat.requests import Reply
from forge_jobs.runtime.heartbeat.thread import Heartbeat
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.pod.stopping import PodStopper
from forge_jobs.runtime.queue.pool import WorkerPool
from forge_jobs.runtime.shared.held_claims import HeldClaims
from forge_jobs.storage.protocols import Storage
from tests.support.factories import get_job
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import QUEUE, a_runtime, ended, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Stage:
    """A handler that waits until stopped, and one that ends at once."""

    def __init__(self) -> None:
        self.handlers = HandlerRegistry()
        self.started, self.stopped = anyio.Event(), anyio.Event()

        @self.handlers.job("waits")
        async def waits() -> None:
            self.started.set()
            try:
                await anyio.sleep_forever()
            finally:
                self.stopped.set()

        @self.handlers.job("works")
        async def works() -> str:
            return "done"


def ending_at_once(*kinds: str) -> HandlerRegistry:
    handlers = HandlerRegistry()

    async def ends() -> str:
        return "done"

    for kind in kinds:
        handlers.job(kind)(ends)
    return handlers


async def gone(storage: Storage) -> None:
    """Wait until the store knows of no pod: the slots are free for others."""

    async def is_gone() -> bool:
        return not await storage.procs.pods()

    await wait_until(is_gone, description="the pod has given its slots up", timeout=15)


def cancel_all_since(before: set[asyncio.Task[object]]) -> None:
    """Cancel all tasks, as some programs do at their end, or by mistake. The test goes on."""
    for task in asyncio.all_tasks() - before:
        task.cancel()


@contextlib.asynccontextmanager
async def working(storage: Storage, stage: Stage) -> AsyncGenerator[tuple[QueueHandle, JobId]]:
    """A pod with a running handler, and a long lease, so that nothing is free too early."""
    settings = quick_settings(lease=seconds(60), fence_margin=seconds(1))
    handle = await a_runtime(storage, stage.handlers, settings=settings).start()
    outcome = await handle.enqueue(EnqueueRequest("waits", {}))
    await stage.started.wait()
    try:
        yield handle, outcome.job_id
    finally:
        await handle.stop()


async def test_a_pod_whose_tasks_are_all_cancelled_stops_in_good_order(storage: Storage) -> None:
    stage, before = Stage(), asyncio.all_tasks()
    async with working(storage, stage) as (handle, job_id):
        cancel_all_since(before)
        await gone(storage)
        job = await get_job(storage, job_id)
        assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)
        health = handle.health()
        assert not health.able_to_claim
        assert any("cancelled all tasks" in each for each in health.problems)
        assert (await handle.stop()).is_clean


async def test_a_pod_stops_in_good_order_at_the_end_of_asyncio_run(storage: Storage) -> None:
    job_ids: list[JobId] = []
    stage = Stage()

    async def held_open(own: Storage) -> AsyncGenerator[None]:
        # asyncio.run ends what generators hold once all tasks have ended.
        async with own:
            yield

    async def program() -> None:
        own = await storage.reopen()
        holders.append(held_open(own))
        await anext(holders[0])
        settings = quick_settings(lease=seconds(60), fence_margin=seconds(1))
        handle = await a_runtime(own, stage.handlers, settings=settings).start()
        outcome = await handle.enqueue(EnqueueRequest("waits", {}))
        job_ids.append(outcome.job_id)
        await stage.started.wait()

    holders: list[AsyncGenerator[None]] = []
    await asyncio.to_thread(lambda: asyncio.run(program()))
    assert await storage.procs.pods() == []
    job = await get_job(storage, job_ids[0])
    assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)


@pytest.mark.parametrize("part", ["listener", "reaper", f"exchange {QUEUE}"])
async def test_a_part_that_is_cancelled_ends_the_pod_in_good_order(
    storage: Storage, part: str
) -> None:
    stage = Stage()
    async with working(storage, stage) as (handle, job_id):
        [task] = [each for each in asyncio.all_tasks() if each.get_name() == f"forge-jobs {part}"]
        task.cancel()
        await gone(storage)
        job = await get_job(storage, job_id)
        assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)
        assert any(f"cancelled {part}" in each for each in handle.health().problems)


async def test_run_ends_with_1_when_a_part_was_cancelled(storage: Storage) -> None:
    codes: list[int] = []

    async def run() -> None:
        codes.append(await a_runtime(storage, Stage().handlers).run())

    def reaper() -> list[asyncio.Task[object]]:
        return [task for task in asyncio.all_tasks() if task.get_name() == "forge-jobs reaper"]

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        [task] = await wait_until(reaper, description="the pod runs")
        task.cancel()
    assert codes == [1]
    assert await storage.procs.pods() == []


async def test_a_pod_whose_storage_is_closed_gives_its_slots_up(storage: Storage) -> None:
    stage = Stage()
    async with await storage.reopen() as closing:
        settings = quick_settings(lease=seconds(60), fence_margin=seconds(1))
        handle = await a_runtime(closing, stage.handlers, settings=settings).start()
        await handle.enqueue(EnqueueRequest("waits", {}))
        await stage.started.wait()
    await gone(storage)
    await stage.stopped.wait()
    assert any("storage was closed" in each for each in handle.health().problems)
    async with a_runtime(storage, ending_at_once("waits", "works")).start() as other:
        outcome = await other.enqueue(EnqueueRequest("works", {}))
        assert await other.result(outcome.job_id, timeout=50) == "done"
    await handle.stop()
    assert handle.lost_because


async def test_run_ends_with_1_when_its_storage_is_closed(storage: Storage) -> None:
    codes: list[int] = []
    closing = await storage.reopen()

    async def run() -> None:
        codes.append(await a_runtime(closing, Stage().handlers).run())

    async def is_there() -> bool:
        return bool(await storage.procs.pods())

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await wait_until(is_there, description="the pod runs")
        await closing.aclose()
    assert codes == [1]
    await gone(storage)


async def test_the_heartbeat_gives_the_slots_up_when_the_stop_itself_is_cut_short(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: PodStopper) -> None:
        raise RuntimeError("as planted")

    monkeypatch.setattr(PodStopper, "_stop", fails)
    stage, before = Stage(), asyncio.all_tasks()
    settings = quick_settings(lease=seconds(60), fence_margin=seconds(1))
    handle = await a_runtime(storage, stage.handlers, settings=settings).start()
    await handle.enqueue(EnqueueRequest("waits", {}))
    await stage.started.wait()
    cancel_all_since(before)
    await gone(storage)
    assert stage.stopped.is_set()
    for loop in handle._pod.loops.all:
        loop.stop()
    for queue in handle._pod.queues.values():
        queue.give_up()
    await handle._pod.client.aclose()


async def test_a_lane_that_fails_is_started_again(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [RuntimeError("as planted") for _ in range(2)]
    right = WorkerPool.next_look

    def next_look(self: WorkerPool) -> object:
        if failing:
            raise failing.pop()
        return right(self)

    monkeypatch.setattr(WorkerPool, "next_look", next_look)
    async with a_runtime(storage, Stage().handlers).start() as handle:
        outcome = await handle.enqueue(EnqueueRequest("works", {}))
        assert await handle.result(outcome.job_id, timeout=50) == "done"
        assert not failing
        assert not handle.lost_because


async def test_a_part_that_waits_for_its_next_start_is_named(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def next_look(_: WorkerPool) -> None:
        raise RuntimeError("as planted")

    async with a_runtime(storage, Stage().handlers).start() as handle:
        monkeypatch.setattr(WorkerPool, "next_look", next_look)
        handle._pod.queues[QUEUE].pool.hint()
        await wait_until(
            lambda: any(
                f"exchange {QUEUE}" in each and "as planted" in each
                for each in handle.health().problems
            ),
            description="it says which part has failed",
        )
        monkeypatch.undo()
        outcome = await handle.enqueue(EnqueueRequest("works", {}))
        await ended(storage, outcome.job_id)


async def test_a_heartbeat_that_fails_is_started_again_and_keeps_the_claims(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Heartbeat._beat_on
    failing = [SystemExit(3), MemoryError(), KeyError("as planted")]

    async def beat_on(self: Heartbeat, opened: Storage) -> None:
        if failing:
            raise failing.pop()
        await right(self, opened)

    monkeypatch.setattr(Heartbeat, "_beat_on", beat_on)
    async with a_runtime(storage, Stage().handlers).start() as handle:
        outcome = await handle.enqueue(EnqueueRequest("works", {}))
        assert await handle.result(outcome.job_id, timeout=50) == "done"
        assert not failing
        assert handle.health().lost_claims == 0


async def test_handlers_are_fenced_though_the_watch_fails(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Heartbeat._check_fence
    failing = [RuntimeError("as planted")]

    def check(self: Heartbeat, elapsed: float) -> None:
        if failing:
            raise failing.pop()
        right(self, elapsed)

    monkeypatch.setattr(Heartbeat, "_check_fence", check)
    stage, faults = Stage(), Faults()
    settings = quick_settings(lease=seconds(0.6), fence_margin=seconds(0.2))
    runtime = a_runtime(faulty(storage, faults), stage.handlers, settings=settings)
    async with runtime.start() as handle:
        await handle.enqueue(EnqueueRequest("waits", {}))
        await stage.started.wait()
        faults.down = True
        await wait_until(stage.stopped.is_set, description="the handler is stopped", timeout=10)
        assert not failing
        faults.down = False


class UnheardBeats:
    """A heartbeat's calls to a loop that is closed."""

    def beat_arrived(self, beat: Beat, sent_at: float) -> None: ...

    def registered_again(self, lease: PodLease, at: float) -> None: ...

    def fenced(self) -> None: ...

    def asked(self, request: PodRequest, reply: Reply) -> None: ...

    def stacks(self) -> str:
        return ""


async def nothing_to_declare(_: Storage) -> None: ...


async def test_slots_are_given_up_when_the_event_loop_was_closed(storage: Storage) -> None:
    settings, clock = quick_settings(lease=seconds(60), fence_margin=seconds(1)), SystemClock()
    pod = Pod(host_id=new_host_id(), label="", queues=(QUEUE,), kinds=(), version="", process_id=1)
    lease = await storage.procs.register(pod, settings.lease)
    made: list[Heartbeat] = []

    async def start() -> None:
        fence = Fence(settings.lease, settings.fence_margin, clock.elapsed())
        heartbeat = Heartbeat(
            storage=storage,
            declaration=Declaration(pod, nothing_to_declare),
            lease=lease,
            held=HeldClaims(),
            fence=fence,
            listener=UnheardBeats(),
            requests=UnheardBeats(),
            settings=settings,
            clock=clock,
        )
        heartbeat.start()
        made.append(heartbeat)

    await asyncio.to_thread(lambda: asyncio.run(start()))
    await gone(storage)
    await wait_until(lambda: made[0].has_left, description="it says so")
    await wait_until(lambda: not made[0]._thread.is_alive, description="its thread has ended")
