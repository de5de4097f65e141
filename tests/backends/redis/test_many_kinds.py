"""A queue with many kinds: a claim costs its jobs, and keeps the order of the queue."""

import random
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from forge_jobs.clock import ManualClock
from forge_jobs.model.jobs import ClaimedJob, NewJob
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.backends.redis.test_script_steps import each_step_short
from tests.support.factories import DAY, QUEUE, claim, new_job, register
from tests.support.redis_databases import KEYS

pytestmark = pytest.mark.anyio

KINDS = tuple(f"kind.{number:03}" for number in range(240))
SECOND, MILLISECOND = timedelta(seconds=1), timedelta(milliseconds=1)


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage, kinds=KINDS, lease_for=DAY)


async def claimed(
    storage: Storage, lease: PodLease, limit: int, kinds: tuple[str, ...] = KINDS
) -> list[ClaimedJob]:
    return await claim(storage, lease, limit=limit, kinds=kinds)


async def test_jobs_of_many_kinds_come_in_the_order_of_the_queue(
    storage: Storage, clock: ManualClock, lease: PodLease
) -> None:
    chosen = random.Random(5)
    waiting: list[tuple[int, float, str]] = []

    async def enqueue(number: int) -> None:
        for _ in range(number):
            delay, priority = chosen.randrange(-2000, 2000), chosen.choice((-1, 0, 0, 7))
            jobs = [
                new_job(
                    kind=chosen.choice(KINDS),
                    priority=priority,
                    delay=timedelta(milliseconds=delay),
                )
                for _ in range(chosen.randrange(1, 9))
            ]
            due = clock.now().timestamp() + delay / 1000
            waiting.extend((priority, round(due, 3), job.id) for job in jobs)
            await storage.jobs.enqueue(jobs)

    for number in range(40):
        await enqueue(12)
        clock.advance(chosen.randrange(500) * MILLISECOND)
        now = clock.now().timestamp()
        due = sorted(one for one in waiting if one[1] <= now + 0.0005)
        limit = chosen.choice((1, 3, 40, 150))
        taken = await claimed(storage, lease, limit)
        assert [each.claim.job_id for each in taken] == [one[2] for one in due[:limit]]
        gone = {each.claim.job_id for each in taken}
        if number % 3 == 0:
            await storage.jobs.release([each.claim for each in taken])
        else:
            waiting = [one for one in waiting if one[2] not in gone]


async def test_a_claim_reads_the_lines_whose_jobs_may_come_first(
    storage: Storage, client: Redis, clock: ManualClock, lease: PodLease
) -> None:
    for kind in KINDS:
        await storage.jobs.enqueue([new_job(kind=kind) for _ in range(3)])
        clock.advance(SECOND)
    for limit in (1, 1, 10):
        async with each_step_short(client, 6 * limit + 25):
            taken = await claimed(storage, lease, limit)
        assert len(taken) == limit
    later = [new_job(kind=kind, delay=SECOND) for kind in KINDS]
    await storage.jobs.enqueue(later)
    while await claimed(storage, lease, 500):
        pass
    # And one that finds nothing reads none but the first.
    async with each_step_short(client, 25):
        assert await claimed(storage, lease, 10) == []


async def test_more_kinds_than_one_step_reads_are_claimed_in_steps(
    storage: Storage, client: Redis, clock: ManualClock
) -> None:
    kinds = tuple(f"kind.{number:03}" for number in range(900))
    lease = await register(storage, kinds=kinds)
    jobs = [new_job(kind=kind) for kind in kinds for _ in range(2)]
    for start in range(0, len(jobs), 300):
        await storage.jobs.enqueue(jobs[start : start + 300])
    found: list[str] = []
    async with each_step_short(client, 2_500) as steps:
        while taken := await claimed(storage, lease, 1_000, kinds):
            found += (each.claim.job_id for each in taken)
    assert len(steps) > 3
    assert sorted(found) == sorted(job.id for job in jobs)


async def test_what_an_older_program_writes_of_a_line_is_read(
    storage: Storage, client: Redis, clock: ManualClock, lease: PodLease
) -> None:
    jobs: list[NewJob] = []
    for kind in KINDS:
        jobs.append(new_job(kind=kind))
        await storage.jobs.enqueue(jobs[-1:])
        clock.advance(SECOND)
    [first] = await claimed(storage, lease, 1)
    assert first.claim.job_id == jobs[0].id
    # An older program knows priorities alone, and its job comes before the bound of the line.
    line = f"0 n {KINDS[-1]}"
    base = KEYS.queue(QUEUE)
    early = jobs[0].id
    await storage.jobs.release([first.claim])
    await client.zadd(f"{base}:lines", {line: 0, f"0 n {KINDS[0]}": 0})
    again = await claimed(storage, lease, 3)
    assert [each.claim.job_id for each in again] == [early, jobs[1].id, jobs[2].id]
    await client.zadd(f"{base}:lines", dict.fromkeys((f"0 n {kind}" for kind in KINDS[3:]), 0))
    rest: list[str] = []
    while taken := await claimed(storage, lease, 50):
        rest += (each.claim.job_id for each in taken)
    assert rest == [job.id for job in jobs[3:]]
