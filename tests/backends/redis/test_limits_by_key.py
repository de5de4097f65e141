"""Limits by key on Redis: what they cost, how they wake, and what the sweep mends."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from redis.asyncio import Redis

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim, ClaimedJob, Hold, JobStatus, NewJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Finalization
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim,
    counters,
    done,
    finish,
    get_job,
    new_job,
    register,
)
from tests.support.redis_databases import KEYS

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
NAME = "hosts"


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    lease = await register(storage, lease_for=HOUR)
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    return lease


def key_of(name: str) -> str:
    return f"{KEYS.queue(QUEUE)}:{name}"


def of_key(key: str, count: int = 1, **fields: Any) -> list[NewJob]:
    return [new_job(limit_name=NAME, limit_key=key, **fields) for _ in range(count)]


def ids_of(claims: Sequence[ClaimedJob]) -> list[JobId]:
    return [one.claim.job_id for one in claims]


async def end(storage: Storage, claims: Sequence[ClaimedJob]) -> None:
    assert all(await storage.jobs.finalize([Finalization(one.claim, done()) for one in claims]))


async def commands(client: Redis) -> int:
    """How many commands the server has run, those of scripts too, but for looks at this number."""
    stats: dict[str, Any] = await client.info("commandstats")
    return sum(each["calls"] for name, each in stats.items() if name != "cmdstat_info")


async def cost_of(
    client: Redis, storage: Storage, lease: PodLease, jobs: Sequence[NewJob]
) -> tuple[int, int, int]:
    """The commands to store, to claim and to end the jobs."""
    counts = [await commands(client)]
    await storage.jobs.enqueue(jobs)
    counts.append(await commands(client))
    claims = await claim(storage, lease, limit=len(jobs))
    counts.append(await commands(client))
    assert len(claims) == len(jobs)
    await end(storage, claims)
    counts.append(await commands(client))
    stored, claimed, ended = (after - before for before, after in pairwise(counts))
    return stored, claimed, ended


async def test_a_limit_with_room_costs_few_commands(
    storage: Storage, client: Redis, lease: PodLease
) -> None:
    size = 100
    # The scripts are known from here on.
    await cost_of(client, storage, lease, [new_job() for _ in range(size)])
    without = await cost_of(client, storage, lease, [new_job() for _ in range(size)])
    limited = [new_job(limit_name=NAME, limit_key=f"{n}") for n in range(size)]
    costs = await cost_of(client, storage, lease, limited)
    # The permit is looked at and written with the job, read and used at the claim, and left at the
    # end.
    more = [(after - before) / size for before, after in zip(without, costs, strict=True)]
    assert [round(each) for each in more] == [2, 2, 1]


async def test_jobs_of_full_keys_in_front_cost_later_claims_nothing(
    storage: Storage, client: Redis, lease: PodLease, clock: ManualClock
) -> None:
    async def cost() -> int:
        clock.advance(MICROSECOND)
        await storage.jobs.enqueue([new_job()])
        before = await commands(client)
        claims = await claim(storage, lease, limit=1)
        found = await commands(client) - before
        await end(storage, claims)
        return found

    await cost()
    alone = await cost()
    for number in range(20):
        await storage.jobs.enqueue(of_key(f"{number}", 50))
    clock.advance(MICROSECOND)
    while len(await claim(storage, lease, limit=20)) > 0:
        pass
    assert (await storage.jobs.counts())[QUEUE].by_status["pending"] == 980
    assert await cost() == alone


async def test_of_expired_jobs_on_hold_none_stands_before_others(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.jobs.enqueue(of_key("a"))
    [first] = await claim(storage, lease, limit=1)
    await storage.jobs.enqueue(of_key("a", 150, expires_at=clock.now() + SECOND))
    clock.advance(MICROSECOND)
    [last] = of_key("a")
    await storage.jobs.enqueue([last])
    assert not await claim(storage, lease, limit=2)
    clock.advance(2 * SECOND)
    await end(storage, [first])
    assert ids_of(await claim(storage, lease, limit=2)) == [last.id]


async def test_a_job_of_an_unknown_kind_keeps_no_other_of_its_key_waiting(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    other = await register(storage, kinds=(KIND, "tests.gone"), lease_for=SECOND)
    jobs = [of_key("a", kind=kind, priority=n) for n, kind in enumerate((KIND, "tests.gone", KIND))]
    await storage.jobs.enqueue([job for [job] in jobs])
    [first] = await claim(storage, other, limit=1)
    assert not await claim(storage, other, limit=3, kinds=(KIND, "tests.gone"))
    clock.advance(2 * SECOND)
    # Its next job is of the kind that no pod knows by now.
    await end(storage, [first])
    assert not await claim(storage, lease, limit=1)
    [last] = await claim(storage, lease, limit=1)
    assert last.kind == KIND


async def test_what_no_claim_uses_is_given_back_by_the_sweep(
    storage: Storage, client: Redis, lease: PodLease
) -> None:
    [job] = of_key("a")
    await storage.jobs.enqueue([job])
    await client.zadd(key_of(f"using:{NAME}\na"), {"a job of which the end was lost": 1})
    assert not await claim(storage, lease, limit=1)
    assert (await get_job(storage, job.id)).hold is Hold.LIMIT
    await storage.jobs.sweep(1_000)
    assert ids_of(await claim(storage, lease, limit=1)) == [job.id]


async def test_a_change_of_a_limit_that_died_half_way_is_finished_by_the_sweep(
    storage: Storage, client: Redis, lease: PodLease
) -> None:
    jobs = [job for number in range(250) for job in of_key(f"{number}", 2)]
    await storage.jobs.enqueue(jobs)
    claims = await claim(storage, lease, limit=500)
    assert len(claims) == 250
    await client.hset(key_of("at_most"), NAME, "2")
    await storage.jobs.sweep(1_000)
    claims += await claim(storage, lease, limit=500)
    assert sorted(ids_of(claims)) == sorted(job.id for job in jobs)


async def test_many_jobs_and_keys_are_made_ready_in_steps(
    storage: Storage, lease: PodLease
) -> None:
    jobs = [*of_key("a", 450), *(job for number in range(220) for job in of_key(f"{number}", 2))]
    await storage.jobs.enqueue(jobs)
    claims: list[ClaimedJob] = []
    while more := await claim(storage, lease, limit=500):
        claims += more
    assert len(claims) == 221
    await storage.config.set_limit(QUEUE, NAME, 300)
    claims += await claim(storage, lease, limit=1_000)
    assert len(claims) == 300 + 440
    await storage.config.delete_limit(QUEUE, NAME)
    claims += await claim(storage, lease, limit=1_000)
    assert sorted(ids_of(claims)) == sorted(job.id for job in jobs)


@pytest.mark.parametrize("name", [f"using:{NAME}\na", "at_most"])
async def test_a_key_of_another_type_lets_jobs_of_limits_wait_and_no_others(
    storage: Storage, client: Redis, lease: PodLease, name: str
) -> None:
    [first] = of_key("a")
    await storage.jobs.enqueue([first])
    claims = await claim(storage, lease, limit=1)
    await client.rename(key_of(name), key_of("aside"))
    await client.set(key_of(name), "spoilt")
    [second], plain = of_key("a"), new_job()
    await storage.jobs.enqueue([second, plain])
    assert ids_of(await claim(storage, lease, limit=3)) == [plain.id]
    await end(storage, claims)
    assert not await claim(storage, lease, limit=3)
    await client.delete(key_of(name))
    await client.rename(key_of("aside"), key_of(name))
    await storage.jobs.sweep(1_000)
    assert ids_of(await claim(storage, lease, limit=3)) == [second.id]


async def test_a_list_of_another_type_is_named_and_nothing_is_lost(
    storage: Storage, client: Redis, lease: PodLease, clock: ManualClock
) -> None:
    jobs = of_key("a", 2)
    await storage.jobs.enqueue(jobs)
    await client.set(key_of("parks"), "spoilt")
    with pytest.raises(Unavailable):
        await claim(storage, lease, limit=2)
    assert f"{key_of('parks')} does not hold" in storage.health().unreadable[QUEUE]
    await client.delete(key_of("parks"))
    clock.advance(2 * SECOND)
    [first] = await claim(storage, lease, limit=2)
    await finish(storage, first, done())
    [second] = await claim(storage, lease, limit=2)
    assert {first.claim.job_id, second.claim.job_id} == {job.id for job in jobs}


async def test_claims_of_a_step_that_a_key_of_another_type_ends_are_counted(
    storage: Storage, client: Redis, lease: PodLease, clock: ManualClock
) -> None:
    """The first round of the step claims a job of each key, and the second one meets the key."""
    jobs = [*of_key("a", 2), *of_key("b", 2)]
    await storage.jobs.enqueue(jobs)
    await client.set(key_of(f"parked:{NAME}\nb"), "spoilt")
    with pytest.raises(Unavailable):
        await claim(storage, lease, limit=3)
    await client.delete(key_of(f"parked:{NAME}\nb"))
    clock.advance(2 * SECOND)
    found = [await get_job(storage, job.id) for job in jobs]
    held = [
        Claim(QUEUE, job.id, job.token, lease.host_id)
        for job in found
        if job.status is JobStatus.IN_PROGRESS
    ]
    assert len(held) == 2
    assert await storage.jobs.release(held) == [True, True]
    assert await counters(storage) == {"enqueued": 4, "claimed": 2, "released": 2}


async def test_the_end_of_a_claim_wakes_who_waits_for_the_next_job(
    storage: Storage, lease: PodLease
) -> None:
    await storage.jobs.enqueue(of_key("a", 2))
    [first] = await claim(storage, lease, limit=2)
    queues = frozenset({QUEUE})
    while (await storage.jobs.wait_for_work(queues, timedelta(milliseconds=50))).queues:
        pass  # of what came before
    await finish(storage, first, done())
    assert (await storage.jobs.wait_for_work(queues, 30 * SECOND)).queues == queues
