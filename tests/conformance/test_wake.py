"""wait_for_work and wake: wake-ups shorten a wait and are not lost."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import anyio
import anyio.to_thread
import pytest

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueChange, Wake
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    QUEUE,
    claim_one,
    done,
    enqueue_one,
    finish,
    new_job,
    only,
    register,
)
from tests.support.situations import a_job

pytestmark = pytest.mark.anyio

LONG = timedelta(seconds=30)
SHORT = timedelta(milliseconds=20)
MINE = frozenset({QUEUE})


async def quiet(storage: Storage) -> None:
    """Take every hint that is there."""
    while await storage.jobs.wait_for_work(MINE, SHORT):
        pass


async def wake_of(storage: Storage, wanted: Callable[[Wake], bool]) -> Wake:
    """Return the first wake-up that is wanted. Others may come before."""
    with anyio.fail_after(20):
        while not wanted(wake := await storage.jobs.wait_for_work(MINE, LONG)):
            pass
    return wake


async def test_nothing_new_is_an_empty_wake(storage: Storage, lease: PodLease) -> None:
    await quiet(storage)
    assert await storage.jobs.wait_for_work(MINE, SHORT) == Wake()


async def enqueues(storage: Storage, lease: PodLease) -> None:
    await enqueue_one(storage)


async def releases(storage: Storage, lease: PodLease) -> None:
    claimed = await storage.jobs.heartbeat(lease, [], LONG)
    await storage.jobs.release(claimed.unknown)


async def requeues(storage: Storage, lease: PodLease) -> None:
    [job] = (await storage.jobs.list(JobFilter())).jobs
    assert (await storage.jobs.requeue(only(job.id))).changed


async def runs_now(storage: Storage, lease: PodLease) -> None:
    [job] = (await storage.jobs.list(JobFilter())).jobs
    assert (await storage.jobs.run_now(only(job.id))).changed


Act = Callable[[Storage, PodLease], Awaitable[None]]


@pytest.mark.parametrize(
    ("status", "act"),
    [
        (None, enqueues),
        (JobStatus.IN_PROGRESS, releases),
        (JobStatus.DEAD, requeues),
        (JobStatus.FAILED, runs_now),
    ],
)
@pytest.mark.parametrize("order", ["waiting", "before"])
@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_work_that_comes_wakes_whoever_waits(
    storage: Storage,
    lease: PodLease,
    *,
    status: JobStatus | None,
    act: Act,
    order: str,
    where: str,
) -> None:
    if status is not None:
        await a_job(storage, lease, status)
    async with await storage.reopen() as other:
        await quiet(storage)
        actor = other if where == "elsewhere" else storage
        if order == "before":
            await act(actor, lease)
            await wake_of(storage, lambda wake: QUEUE in wake.queues)
            return
        async with anyio.create_task_group() as group:
            group.start_soon(wake_of, storage, lambda wake: QUEUE in wake.queues)
            await anyio.lowlevel.checkpoint()
            await act(actor, lease)


async def test_a_hint_survives_a_wait_that_was_given_up(storage: Storage) -> None:
    await quiet(storage)
    for _ in range(20):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(storage.jobs.wait_for_work, MINE, LONG)
                await anyio.lowlevel.checkpoint()
                scope.cancel()
    await enqueue_one(storage)
    wake = await wake_of(storage, lambda wake: QUEUE in wake.queues)
    assert QUEUE in wake.queues


async def test_no_hint_is_lost_between_two_calls(storage: Storage, lease: PodLease) -> None:
    await quiet(storage)
    for _ in range(30):
        await enqueue_one(storage)
        await wake_of(storage, lambda wake: QUEUE in wake.queues)
        await claim_one(storage, lease)


async def test_a_cancel_of_a_running_job_asks_for_a_beat(storage: Storage, lease: PodLease) -> None:
    job_id = await a_job(storage, lease, JobStatus.IN_PROGRESS)
    async with await storage.reopen() as other:
        await quiet(storage)
        await other.jobs.cancel(only(job_id))
        await wake_of(storage, lambda wake: wake.beat)


@pytest.mark.parametrize("edit", ["pause", "resume", "set"])
async def test_an_edit_of_a_queue_asks_for_a_beat(
    storage: Storage, lease: PodLease, edit: str
) -> None:
    await quiet(storage)
    if edit == "set":
        await storage.config.set_queue(QUEUE, QueueChange(max_workers=5))
    else:
        await storage.config.set_paused(QUEUE, edit == "pause")
    await wake_of(storage, lambda wake: wake.beat)


async def test_the_end_of_a_parent_is_told(storage: Storage, lease: PodLease) -> None:
    parent = await enqueue_one(storage)
    await enqueue_one(storage, after=(After(parent),))
    claimed = await claim_one(storage, lease)
    await quiet(storage)
    await finish(storage, claimed, done())
    await wake_of(storage, lambda wake: wake.handover)


async def test_a_pod_that_comes_is_told_to_the_coordinator(storage: Storage) -> None:
    async with await storage.reopen() as other:
        await quiet(storage)
        await register(other)
        await wake_of(storage, lambda wake: wake.fleet)


async def test_a_ring_from_any_thread_wakes(storage: Storage) -> None:
    await quiet(storage)
    given = Wake(queues=MINE, handover=True)
    async with anyio.create_task_group() as group:
        group.start_soon(wake_of, storage, lambda wake: wake.handover and QUEUE in wake.queues)
        await anyio.lowlevel.checkpoint()
        await anyio.to_thread.run_sync(storage.jobs.wake, given)


async def test_rings_before_the_wait_are_added_up(storage: Storage) -> None:
    await quiet(storage)
    storage.jobs.wake(Wake(queues=MINE))
    storage.jobs.wake(Wake(beat=True))
    seen = {"queue": False, "beat": False}
    with anyio.fail_after(20):
        while not all(seen.values()):
            wake = await storage.jobs.wait_for_work(MINE, LONG)
            seen["queue"] |= QUEUE in wake.queues
            seen["beat"] |= wake.beat


async def test_a_call_that_fails_stores_nothing_to_wake_for(
    storage: Storage, lease: PodLease
) -> None:
    stored = new_job(delay=DAY)
    await storage.jobs.enqueue([stored])
    await quiet(storage)
    with pytest.raises(Exception, match=stored.id):
        await storage.jobs.enqueue([new_job(), new_job(id=stored.id, kind="other")])
    assert await storage.jobs.wait_for_work(MINE, SHORT) == Wake()


class Waiter:
    """A waiter beside others on one bundle."""


async def test_every_waiter_of_a_bundle_gets_every_hint(storage: Storage, lease: PodLease) -> None:
    waiters = [Waiter(), Waiter(), None]
    for waiter in waiters:
        while await storage.jobs.wait_for_work(MINE, SHORT, waiter):
            pass
    for _ in range(10):
        await enqueue_one(storage)
        for waiter in waiters:
            with anyio.fail_after(20):
                while QUEUE not in (await storage.jobs.wait_for_work(MINE, LONG, waiter)).queues:
                    pass


async def test_waiters_that_wait_together_are_woken_together(storage: Storage) -> None:
    waiters = [Waiter(), Waiter()]

    async def woken(waiter: Waiter) -> None:
        while not (await storage.jobs.wait_for_work(MINE, LONG, waiter)).handover:
            pass

    for waiter in waiters:
        while await storage.jobs.wait_for_work(MINE, SHORT, waiter):
            pass
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for waiter in waiters:
                group.start_soon(woken, waiter)
            await anyio.lowlevel.checkpoint()
            storage.jobs.wake(Wake(handover=True))
