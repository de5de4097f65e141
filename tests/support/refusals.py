"""Expectations of a fleet whose store refuses calls for a while."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended, quick_settings, seconds
from tests.support.waiting import wait_until

Step = Callable[[], Awaitable[object]]

_HELD = range(8)
"""Jobs that run when the trouble begins. Every second one fails."""


class GatedJobs:
    """Jobs that wait at one door, and how often each has run."""

    def __init__(self) -> None:
        self.handlers = HandlerRegistry()
        self.runs: Counter[int] = Counter()
        self.door = anyio.Event()

        @self.handlers.job("works", max_attempts=1)
        async def works(n: int) -> str:
            self.runs[n] += 1
            if n in _HELD:
                await self.door.wait()
            if n % 2:
                raise ValueError(f"job {n} is odd")
            return f"result {n}"

        self.job = works


@asynccontextmanager
async def at_work(
    storage: Storage, works: GatedJobs, workers: int = 8
) -> AsyncGenerator[QueueHandle]:
    """A pod whose handlers no fence stops while the store is in trouble."""
    settings = quick_settings(lease=seconds(60), fence_margin=seconds(1))
    async with a_runtime(storage, works.handlers, workers, settings=settings).start() as handle:
        yield handle


async def is_ridden_out(
    storage: Storage, begin: Step, end: Step, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Expect that jobs end and are enqueued while the store refuses, and none is lost or run again.

    :param named: the text of health about the refusal
    """
    works = GatedJobs()
    caplog.set_level(logging.INFO, "forge_jobs.runtime")
    async with at_work(storage, works) as handle:
        ids: dict[int, JobId] = {}
        for n in _HELD:
            ids[n] = (await handle.enqueue(works.job.request(n))).job_id
        await wait_until(lambda: len(works.runs) == len(_HELD), description="all of them run")
        client = JobClient(storage, works.handlers, repeat_for=60)
        await begin()
        works.door.set()
        later = [
            asyncio.ensure_future(client.enqueue(works.job.request(n))) for n in range(100, 120)
        ]

        def is_named() -> bool:
            queue = handle._pod.queues["default"]
            return queue.failures >= 4 and any(
                named in each and each.startswith("queue") for each in handle.health().problems
            )

        await wait_until(is_named, description=f"health says: {named}")
        assert not any(task.done() for task in later)
        await end()
        for n, outcome in zip(range(100, 120), await asyncio.gather(*later), strict=True):
            ids[n] = outcome.job_id
        for n, job_id in ids.items():
            job = await ended(storage, job_id)
            assert (job.attempt, job.crashes) == (1, 0)
            if n % 2:
                assert job.status is JobStatus.DEAD
                assert [error.message for error in job.errors] == [f"job {n} is odd"]
            else:
                assert (job.status, job.result) == (JobStatus.DONE, f'"result {n}"')
        await wait_until(lambda: handle.health().able_to_claim, description="all is well again")
        assert handle.health().lost_claims == 0
        await client.aclose()
    assert set(works.runs.values()) == {1}
    told = [each for each in caplog.messages if each.startswith("queue default: ")]
    assert told[-1] == "queue default: the store answers again"
    assert len(set(told)) == len(told), "it is named once"


async def is_kept_apart(
    storage: Storage, begin: Callable[[JobId], Awaitable[object]], end: Step, named: str
) -> None:
    """Expect that the end of one job, which is refused, is kept, and that all others go on.

    :param begin: lets the store refuse the end of this job
    :param named: the text of health about the refusal
    """
    works = GatedJobs()
    async with at_work(storage, works) as handle:
        ids = {n: (await handle.enqueue(works.job.request(n))).job_id for n in (0, 2, 4)}
        await wait_until(lambda: len(works.runs) == 3, description="all of them run")
        await begin(ids[0])
        works.door.set()
        for n in (2, 4):
            assert (await ended(storage, ids[n])).result == f'"result {n}"'

        def is_named() -> bool:
            lines = handle.health().queues["default"].set_aside
            return any(f"the end of job {ids[0]}: " in line and named in line for line in lines)

        await wait_until(is_named, description=f"health says: {named}")
        for n in range(100, 140, 2):
            ids[n] = (await handle.enqueue(works.job.request(n))).job_id
            assert (await ended(storage, ids[n])).result == f'"result {n}"'
        assert handle.health().able_to_claim
        await end()
        job = await ended(storage, ids[0])
        assert (job.status, job.result, job.attempt, job.crashes) == (
            JobStatus.DONE,
            '"result 0"',
            1,
            0,
        )
    assert set(works.runs.values()) == {1}
