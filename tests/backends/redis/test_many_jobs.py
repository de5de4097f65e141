"""Counts and pages cost as many commands among many jobs as among few, and miss none."""

import pytest
from redis import Redis

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.servers import RedisServer
from tests.support.factories import DAY, KIND, QUEUE, claim, new_job, register

pytestmark = pytest.mark.anyio

FEW, MANY = 200, 4_000
PAGE = 50


async def fill(storage: Storage, count: int) -> None:
    """Some due, some later, some cancelled, of one tag."""
    for _ in range(count // 200):
        jobs = [new_job(tags=("t",), priority=n % 3, delay=DAY * (n % 2)) for n in range(200)]
        await storage.jobs.enqueue(jobs)
        await storage.jobs.cancel(JobFilter(ids=tuple(job.id for job in jobs[::4])))


async def reads(storage: Storage) -> None:
    counts = (await storage.jobs.counts())[QUEUE]
    assert counts.due > 0
    for which in (
        JobFilter(),
        JobFilter(queues=(QUEUE,), statuses=(JobStatus.CANCELLED,)),
        JobFilter(kinds=(KIND,)),
        JobFilter(tag="t", statuses=(JobStatus.PENDING, JobStatus.CANCELLED)),
    ):
        page = await storage.jobs.list(which, limit=PAGE)
        assert len(page.jobs) == PAGE
        after = await storage.jobs.list(which, cursor=page.cursor, limit=PAGE)
        assert len(after.jobs) == PAGE


async def test_counts_and_pages_cost_the_same_among_many_jobs(server: RedisServer) -> None:
    with Redis.from_url(server.url) as client:

        async def cost() -> int:
            client.config_resetstat()
            await reads(storage)
            stats = client.info("commandstats")
            return sum(each["calls"] for each in stats.values())

        async with await open_storage(server.url) as storage:
            await fill(storage, FEW)
            await reads(storage)
            among_few = await cost()
            await fill(storage, MANY)
            assert await cost() <= 1.1 * among_few


@pytest.mark.parametrize("waiting", [0, 20])
async def test_running_jobs_come_page_by_page_in_order_of_id(
    storage: Storage, waiting: int
) -> None:
    lease = await register(storage)
    jobs = [new_job(priority=n % 3) for n in range(40)]
    await storage.jobs.enqueue(jobs)
    while await claim(storage, lease, limit=7):
        pass
    jobs += [new_job() for _ in range(waiting)]
    await storage.jobs.enqueue(jobs[40:])
    which = JobFilter(statuses=(JobStatus.IN_PROGRESS, JobStatus.PENDING)[: 1 + bool(waiting)])
    listed: list[str] = []
    page = await storage.jobs.list(which, limit=7)
    while page.cursor is not None and len(listed) <= len(jobs):
        listed += (line.id for line in page.jobs)
        page = await storage.jobs.list(which, cursor=page.cursor, limit=7)
    listed += (line.id for line in page.jobs)
    assert listed == sorted((job.id for job in jobs), reverse=True)

    asked = await storage.jobs.cancel(which, limit=7)
    reached = [*asked.requested, *asked.changed]
    while asked.cursor is not None and len(reached) <= len(jobs):
        asked = await storage.jobs.cancel(which, cursor=asked.cursor, limit=7)
        reached += (*asked.requested, *asked.changed)
    assert sorted(reached) == sorted(job.id for job in jobs)
