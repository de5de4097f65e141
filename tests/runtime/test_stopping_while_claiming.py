"""A stop that begins while a claim is under way."""

import asyncio

import pytest
from anyio.lowlevel import checkpoint

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.pod.stop_report import StopReport
from forge_jobs.storage.protocols import Storage
from tests.support.points import armed
from tests.support.runtimes import QUEUE, a_runtime
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

JOBS = 4


async def test_claims_that_arrive_as_the_stop_begins_are_handed_back(storage: Storage) -> None:
    handlers = HandlerRegistry()
    stops: list[asyncio.Task[StopReport]] = []

    @handlers.job("quick")
    async def quick() -> None: ...

    handle = await a_runtime(storage, handlers, workers=JOBS).start()

    async def stop_now() -> None:
        if not stops:
            stops.append(asyncio.ensure_future(handle.stop()))
            # The answer arrives in the very turn of the loop in which the stop has begun.
            while not _is_closing(handle):
                await checkpoint()

    with armed("claim:committed", stop_now):
        outcomes = await handle.enqueue_many([quick.request()] * JOBS)
        await wait_until(lambda: stops, description="a claim is on its way")
        report = await stops[0]

    jobs = await storage.jobs.get([outcome.job_id for outcome in outcomes])
    assert report.unstored == ()
    assert {(job.status, job.attempt, job.crashes) for job in jobs.values()} == {
        (JobStatus.PENDING, 0, 0)
    }


def _is_closing(handle: QueueHandle) -> bool:
    return handle._pod.queues[QUEUE]._closing
