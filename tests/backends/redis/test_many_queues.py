"""A store of a thousand queues: every step stays short, and a job costs what it costs among few."""

from datetime import timedelta

import pytest
from redis.asyncio import Redis

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.transitions import Finalization
from forge_jobs.storage.protocols import Storage
from tests.backends.redis.test_script_steps import each_step_short
from tests.support.factories import DAY, LEASE, claim, cleaned_up, done, new_job, register

pytestmark = [pytest.mark.anyio, pytest.mark.long]

QUEUES = tuple(f"queue.{number:04}" for number in range(1_000))
BUSY = QUEUES[500]
LONG_AGO = timedelta(seconds=100)


async def filled(storage: Storage, queues: tuple[str, ...]) -> None:
    """Store two jobs in each queue."""
    for start in range(0, len(queues), 100):
        some = queues[start : start + 100]
        await storage.jobs.enqueue([new_job(queue=queue) for queue in some for _ in range(2)])


async def commands_of_a_job(storage: Storage, client: Redis) -> int:
    """Enqueue, claim and end a job. Return the commands of the server."""
    lease = await register(storage, queues=(BUSY,))
    numbers = []
    # The first round finds scripts that the server does not know.
    for _ in range(2):
        async with each_step_short(client) as steps:
            await storage.jobs.enqueue([new_job(queue=BUSY, priority=9)])
            [job] = await claim(storage, lease, queue=BUSY)
            await storage.jobs.finalize([Finalization(claim=job.claim, transition=done())])
        numbers.append(sum(steps))
    return numbers[-1]


async def test_a_job_costs_as_much_as_among_few_queues(storage: Storage, client: Redis) -> None:
    await filled(storage, (BUSY,))
    among_few = await commands_of_a_job(storage, client)
    await filled(storage, QUEUES)
    assert await commands_of_a_job(storage, client) == among_few


async def test_passes_and_reads_over_all_of_them_are_short_steps(
    storage: Storage, client: Redis, clock: ManualClock
) -> None:
    await filled(storage, QUEUES)
    lease = await register(storage, queues=QUEUES)
    for queue in QUEUES:
        assert len(await claim(storage, lease, queue=queue)) == 1
    clock.advance(LONG_AGO)
    async with each_step_short(client) as steps:
        counted = await storage.jobs.counts()
        stale = await storage.jobs.stale_claims(LEASE, 5_000)
        page = await storage.jobs.list(JobFilter(statuses=(JobStatus.PENDING,)), limit=1_000)
        assert await storage.jobs.expire(1_000) == 0
        assert await storage.jobs.handovers(1_000) == []
        await storage.jobs.sweep(2_000)
        await storage.jobs.roll_up(1_000)
        assert len(await storage.config.queues()) == len(QUEUES)
        assert len(await storage.procs.due_kinds(list(QUEUES))) == len(QUEUES)
    assert len(steps) > 10
    for each in counted.values():
        assert (each.by_status[JobStatus.PENDING], each.by_status[JobStatus.IN_PROGRESS]) == (1, 1)
    assert len(counted) == len(page.jobs) == len(stale) == len(QUEUES)


async def test_retention_removes_what_is_due_in_each_of_them(
    storage: Storage, client: Redis, clock: ManualClock
) -> None:
    await filled(storage, QUEUES)
    cancelled = 0
    while cancelled < 2 * len(QUEUES):
        which = JobFilter(statuses=(JobStatus.PENDING,))
        cancelled += len((await storage.jobs.cancel(which, limit=1_000)).changed)
    clock.advance(400 * DAY)
    async with each_step_short(client):
        assert await cleaned_up(storage, 5_000) >= 2 * len(QUEUES)
    assert not (await storage.jobs.list(JobFilter(), limit=1)).jobs
