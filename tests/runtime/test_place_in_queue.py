"""A deploy costs a running job nothing of its place in the queue."""

import anyio
import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import Cause
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended, job_because, seconds

pytestmark = pytest.mark.anyio


async def test_a_job_that_a_stop_interrupted_runs_before_the_backlog(storage: Storage) -> None:
    handlers = HandlerRegistry()
    order: list[int] = []
    started = anyio.Event()

    @handlers.job("work")
    async def work(number: int) -> None:
        order.append(number)
        if len(order) == 1:
            started.set()
            await anyio.sleep_forever()

    async with a_runtime(storage, handlers).start() as first:
        jobs = [await first.enqueue(work.request(number)) for number in range(6)]
        await started.wait()
        await first.stop(seconds(0))
    await job_because(storage, jobs[0].job_id, Cause.INTERRUPTED)

    async with a_runtime(storage, handlers).start():
        for job in jobs:
            await ended(storage, job.job_id)
    assert order == [0, 0, 1, 2, 3, 4, 5]
