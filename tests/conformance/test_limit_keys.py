"""Full keys of a limit: the numbers, the holders, and the jobs that wait."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import NewJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import LimitHolders, LimitKey
from forge_jobs.storage.protocols import Storage
from tests.support.factories import QUEUE, claim, done, finish, new_job, register

pytestmark = pytest.mark.anyio

NAME = "hosts"


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    lease = await register(storage, lease_for=timedelta(hours=1))
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    return lease


async def enqueue(storage: Storage, key: str, count: int = 1, **fields: Any) -> Sequence[JobId]:
    fields = {"limit_name": NAME, **fields}
    jobs: list[NewJob] = [new_job(limit_key=key, **fields) for _ in range(count)]
    await storage.jobs.enqueue(jobs)
    return [job.id for job in jobs]


async def test_keys_at_which_jobs_wait_are_listed_with_their_numbers(
    storage: Storage, lease: PodLease
) -> None:
    await enqueue(storage, "b", 3)
    await enqueue(storage, "ä", 2)
    await enqueue(storage, "", 2)
    await enqueue(storage, "alone")
    await enqueue(storage, "b", 2, limit_name="of another name")
    await claim(storage, lease, limit=20)

    assert await storage.config.limit_keys(QUEUE, NAME) == [
        LimitKey(key="", running=1, waiting=1),
        LimitKey(key="b", running=1, waiting=2),
        LimitKey(key="ä", running=1, waiting=1),
    ]
    assert await storage.config.limit_keys(QUEUE, "of another name") == []
    assert await storage.config.limit_keys("no such queue", NAME) == []


async def test_keys_are_answered_in_pages(storage: Storage, lease: PodLease) -> None:
    names = [f"host {number}" for number in range(7)]
    for name in names:
        await enqueue(storage, name, 2)
    await claim(storage, lease, limit=20)

    found: list[str] = []
    after: str | None = None
    for length in (3, 3, 1, 0):
        page = await storage.config.limit_keys(QUEUE, NAME, after=after, limit=3)
        assert len(page) == length
        found += [each.key for each in page]
        after = found[-1]

    assert found == names


async def test_waiting_jobs_of_a_key_are_counted_up_to_a_thousand(
    storage: Storage, lease: PodLease
) -> None:
    await enqueue(storage, "many", 1_500)
    for _ in range(3):
        await claim(storage, lease)

    assert await storage.config.limit_keys(QUEUE, NAME) == [
        LimitKey(key="many", running=1, waiting=1_000)
    ]


async def test_the_jobs_of_a_key_are_answered_in_the_order_in_which_they_come(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 2})
    first = await enqueue(storage, "b")
    await claim(storage, lease)
    second, late, later = await enqueue(storage, "b", 3)
    [urgent] = await enqueue(storage, "b", priority=-1)
    await enqueue(storage, "another", 3)
    taken = await claim(storage, lease, limit=20)

    found = await storage.config.limit_holders(QUEUE, NAME, "b")
    assert found == LimitHolders(running=(*first, urgent), waiting=(second, late, later))
    few = await storage.config.limit_holders(QUEUE, NAME, "b", limit=1)
    assert few == LimitHolders(running=tuple(first), waiting=(second,))
    assert await storage.config.limit_holders(QUEUE, NAME, "free") == LimitHolders()

    [first_now] = await enqueue(storage, "b", priority=-2)
    await claim(storage, lease)
    found = await storage.config.limit_holders(QUEUE, NAME, "b")
    assert found.waiting == (first_now, second, late, later)
    await storage.jobs.cancel(JobFilter(ids=(first_now,)))

    [ended] = [one for one in taken if one.claim.job_id == urgent]
    await finish(storage, ended, done())
    await claim(storage, lease, limit=20)
    found = await storage.config.limit_holders(QUEUE, NAME, "b")
    assert found == LimitHolders(running=(*first, second), waiting=(late, later))
