"""Wake-ups of workers, at once, and of no loop without work."""

import asyncio
from collections import Counter
from typing import Any

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import JobStatus
from forge_jobs.runtime.pod import pod
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.protocols import Storage
from tests.support.asked import asked
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import a_runtime, ended, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

RARE = quick_settings(
    heartbeat_interval=seconds(60),
    lease=seconds(600),
    reap_interval=seconds(60),
    coordinate_interval=seconds(0.05),
    claim_ahead=seconds(0),
)
"""Between two beats so much time passes that what happens did not wait for one."""


def noting_handlers() -> HandlerRegistry:
    handlers = HandlerRegistry()

    @handlers.job("nothing", keep_result=False)
    async def nothing() -> None:
        """Cost a claim and an end, and nothing else."""

    return handlers


async def settled(handle: QueueHandle, slots: int) -> None:
    """Wait until the pod has all slots, and no further beat looks for them."""
    await wait_until(
        lambda: all(queue.grant == slots for queue in handle.health().queues.values()),
        description=f"{slots} slots of each queue",
    )
    await wait_until(lambda: handle._pod._eager is None, description="the pod looks no more")


async def test_the_end_of_a_job_wakes_the_next_claim(storage: Storage) -> None:
    faults = Faults()
    handlers = noting_handlers()
    jobs = 30
    async with a_runtime(faulty(storage, faults), handlers, settings=RARE).start() as handle:
        await settled(handle, 1)
        before = faults.calls["exchange"]
        outcomes = await handle.enqueue_many([EnqueueRequest("nothing")] * jobs)
        for outcome in outcomes:
            await ended(storage, outcome.job_id)
        calls = faults.calls["exchange"] - before
    # An end and the next claim share a round trip.
    assert jobs <= calls <= jobs + 3


async def test_a_list_of_jobs_wakes_every_idle_worker_of_every_queue(storage: Storage) -> None:
    handlers = HandlerRegistry()
    meeting = asyncio.Barrier(9)

    @handlers.job("meets")
    async def meets() -> None:
        await meeting.wait()

    runtime = QueueRuntime(storage, handlers, settings=RARE).with_queues(a=3, b=3, c=3)
    async with runtime.start() as handle:
        await settled(handle, 3)
        requests = [meets.request().options(queue=queue) for queue in "abc" for _ in range(3)]
        for outcome in await handle.enqueue_many(requests):
            assert (await ended(storage, outcome.job_id)).attempt == 1


async def test_fifty_enqueues_wake_no_other_loop(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[str] = []
    handlers = noting_handlers()

    def listen_to(wakeup: Any, name: str) -> None:
        wake = wakeup.wake

        def heard() -> None:
            woken.append(name)
            wake()

        monkeypatch.setattr(wakeup, "wake", heard)

    async with a_runtime(storage, handlers, 4, settings=RARE).start() as handle:
        await settled(handle, 4)
        listen_to(handle._pod.heartbeat, "heartbeat")
        for loop in handle._pod.loops.all:
            listen_to(loop.wakeup, loop.name)
        for _ in range(50):
            outcome = await handle.enqueue(EnqueueRequest("nothing"))
        await ended(storage, outcome.job_id)
        # Last steps of the start wake a loop now and then. An enqueue that does: fifty times.
        assert len(woken) < 25, woken


async def statements_of_an_idle_pod(storage: Storage, workers: int) -> Counter[str]:
    """How often each statement or command was executed during ten beats of a pod without work."""
    faults = Faults()
    runtime = a_runtime(faulty(storage, faults), noting_handlers(), workers)
    async with runtime.start() as handle:
        await settled(handle, workers)
        with asked() as statements:
            beats = faults.calls["heartbeat"]
            await wait_until(
                lambda: faults.calls["heartbeat"] >= beats + 10, description="ten beats"
            )
    return statements


async def test_the_statements_of_an_idle_pod_do_not_grow_with_its_workers(
    storage: Storage,
) -> None:
    few = await statements_of_an_idle_pod(storage, 1)
    async with await storage.reopen() as again:
        many = await statements_of_an_idle_pod(again, 200)
    assert few, "no statement was seen"
    for text, count in many.items():
        # The loops are not in step, so a window holds one pass of each more or less.
        assert count <= 3 * few[text] + 12, text


async def test_a_hint_that_comes_during_a_claim_is_not_lost(storage: Storage) -> None:
    faults = Faults()
    handlers = HandlerRegistry()
    second_ran = anyio.Event()

    # Otherwise the end would bring the next claim along.
    @handlers.job("ends after the second")
    async def ends_after_the_second() -> None:
        await second_ran.wait()

    @handlers.job("second")
    async def second_job() -> None:
        second_ran.set()

    # With more room than jobs: a claim that fills all room is repeated anyway.
    runtime = a_runtime(faulty(storage, faults), handlers, 4, settings=RARE)
    async with runtime.start() as handle:
        await settled(handle, 4)
        faults.hold_replies("exchange")
        first = await handle.enqueue(EnqueueRequest("ends after the second"))
        await wait_until(lambda: faults.waiting["exchange"], description="a claim is under way")
        second = await handle.enqueue(EnqueueRequest("second"))
        faults.let_go("exchange")
        with anyio.fail_after(20):
            await ended(storage, first.job_id)
            await ended(storage, second.job_id)


async def test_a_cancel_does_not_wait_for_the_next_beat(storage: Storage) -> None:
    handlers = HandlerRegistry()
    started: list[str] = []

    @handlers.job("waits")
    async def waits(ctx: JobContext) -> None:
        started.append(ctx.job_id)
        await anyio.sleep_forever()

    async with (
        a_runtime(storage, handlers, settings=RARE).start() as handle,
        await storage.reopen() as elsewhere,
        JobClient(elsewhere) as other,
    ):
        await settled(handle, 1)
        # A beat that is due anyway could serve one of them.
        for count in range(1, 5):
            outcome = await handle.enqueue(EnqueueRequest("waits"))
            await until_started(started, count)
            assert (await other.cancel(outcome.job_id)).requested == 1
            assert (await ended(storage, outcome.job_id)).status is JobStatus.CANCELLED


async def until_started(started: list[str], count: int) -> None:
    """Wait until so many handlers have started."""
    await wait_until(lambda: len(started) >= count, description=f"{count} have started")


async def test_two_runtimes_on_one_storage_hear_of_every_cancel(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No beat is due for a minute, so only a hint can tell the pod that runs the job."""
    monkeypatch.setattr(pod, "_LISTEN_FOR", seconds(60))
    handlers = HandlerRegistry()
    started = asyncio.Queue[str]()

    @handlers.job("sleeps")
    async def sleeps(ctx: JobContext) -> None:
        started.put_nowait(ctx.job_id)
        await asyncio.Event().wait()

    one = QueueRuntime(storage, handlers, settings=RARE).with_queues(one=1)
    two = QueueRuntime(storage, handlers, settings=RARE).with_queues(two=1)
    async with one.start() as first, two.start() as second:
        await settled(first, 1)
        await settled(second, 1)
        for queue in ("one", "two") * 4:
            job_id = (await first.enqueue(sleeps.request(), queue=queue)).job_id
            assert await started.get() == job_id
            await first.cancel(job_id)
            assert (await ended(storage, job_id)).status is JobStatus.CANCELLED
