"""Steps of the store's clock, under living pods and between those that died and those that come."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import HandlerRegistry, JobClient, JobContext
from forge_jobs.clock import SystemClock
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, pass_on
from tests.support.clocks import WrongClock
from tests.support.factories import claim_one, enqueue_one, get_job, register
from tests.support.runtimes import QUEUE, a_runtime, ended, job_when, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SHORT: Any = {"lease": seconds(1.5), "fence_margin": seconds(0.3)}
SETTINGS = quick_settings(**SHORT)
PATIENT = quick_settings()
"""Of a pod that keeps the lease on a loaded machine, which stalls for longer than the short one."""


JOBS = 6


@pytest.fixture
def store_clock() -> WrongClock:
    """The store's clock, an hour ahead."""
    return WrongClock(HOUR)


@pytest.fixture(params=sorted(BACKENDS))
async def storage(
    request: pytest.FixtureRequest, tmp_path: Path, store_clock: WrongClock
) -> AsyncGenerator[Storage]:
    """A fresh store on the wrong clock."""
    async with BACKENDS[request.param](tmp_path, store_clock) as opened:
        yield opened
    await pass_on(request.param, tmp_path)


async def test_a_new_pod_leads_and_runs_everything_about_a_lease_after_its_start(
    storage: Storage, store_clock: WrongClock
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("work")
    async def work() -> None: ...

    dead = await register(storage, queues=(QUEUE,), kinds=("work",), lease_for=SETTINGS.lease)
    led = await storage.cron.lead(dead.host_id, SETTINGS.leader_lease)
    lost = await enqueue_one(storage, queue=QUEUE, kind="work")
    await claim_one(storage, dead, queue=QUEUE, kinds=("work",))
    waiting = await enqueue_one(storage, queue=QUEUE, kind="work")
    store_clock.off = timedelta(0)

    started_at = store_clock.elapsed()
    async with a_runtime(storage, handlers, settings=SETTINGS).start() as handle:
        assert (await ended(storage, lost)).status is JobStatus.DONE
        assert (await ended(storage, waiting)).status is JobStatus.DONE
        # Not before a whole lease has shown that the pod is dead.
        assert store_clock.elapsed() - started_at >= SETTINGS.lease.total_seconds()
        leader = await storage.cron.leader()
        assert leader is not None
        assert (leader.host_id, leader.term) == (handle.host_id, led.term + 1)
    assert (await get_job(storage, lost)).crashes == 1
    assert (await get_job(storage, waiting)).crashes == 0


async def test_a_living_pod_goes_on_when_the_clock_is_set_back(
    storage: Storage, store_clock: WrongClock
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("work")
    async def work() -> None: ...

    async with (
        a_runtime(storage, handlers, settings=PATIENT).start(),
        JobClient(storage, handlers) as client,
    ):
        before = await client.enqueue(work.request())
        assert (await ended(storage, before.job_id)).status is JobStatus.DONE
        paused = await storage.config.set_paused(QUEUE, True)
        assert paused.paused
        due = await client.enqueue(work.request())
        store_clock.off = -HOUR
        await storage.config.set_paused(QUEUE, False)
        later = await client.enqueue(work.request().options(delay=HOUR))

        job = await job_when(storage, due.job_id, JobStatus.DONE)
        assert job.crashes == 0
        assert (await get_job(storage, later.job_id)).cause is Cause.ENQUEUED


async def test_a_step_forward_costs_the_jobs_of_the_living_no_attempt(
    storage: Storage, store_clock: WrongClock
) -> None:
    handlers = HandlerRegistry()
    runs, go_on = Counter[str](), asyncio.Event()

    @handlers.job("work")
    async def work(ctx: JobContext) -> None:
        runs[ctx.job_id] += 1
        await go_on.wait()

    # A reaper passes a few times between two beats.
    seldom = quick_settings(**SHORT, heartbeat_interval=SETTINGS.lease / 3)
    async with (
        a_runtime(storage, handlers, JOBS, settings=seldom).start() as handle,
        a_runtime(storage, handlers, JOBS, settings=SETTINGS).start() as reaping,
    ):
        ids = [(await handle.enqueue(work.request())).job_id for _ in range(JOBS)]
        await wait_until(lambda: len(runs) == JOBS, description="all run")
        await wait_until(lambda: _may_revive(reaping), description="a reaper trusts its clocks")
        store_clock.off += 4 * SETTINGS.lease
        await wait_until(
            lambda: all(runs[job_id] > 1 for job_id in ids),
            description="the pods have registered again, and run the jobs again",
        )
        go_on.set()
        jobs = [await ended(storage, job_id) for job_id in ids]
    assert {(job.status, job.crashes, job.attempt) for job in jobs} == {(JobStatus.DONE, 0, 1)}


def _may_revive(handle: QueueHandle) -> bool:
    guard = handle._pod.loops.guard
    passed = SystemClock().elapsed() - guard._undisturbed_since
    return guard._last is not None and passed > SETTINGS.lease.total_seconds()
