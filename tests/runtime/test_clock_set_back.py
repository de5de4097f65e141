"""Pods that died while the store's clock was an hour ahead, and the clock put right since."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs import HandlerRegistry, JobClient
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, forget
from tests.support.clocks import WrongClock
from tests.support.factories import claim_one, enqueue_one, get_job, register
from tests.support.runtimes import QUEUE, a_runtime, ended, job_when, quick_settings

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SETTINGS = quick_settings()


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
    await forget(request.param, tmp_path)


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
        # Not before a whole lease has shown that its pod is dead.
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
        a_runtime(storage, handlers, settings=SETTINGS).start(),
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
