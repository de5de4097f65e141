"""New jobs of limits that are on hold from the enqueue on, where their key has no room."""

import asyncio
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Hold
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim,
    done,
    enqueue_one,
    finish,
    new_job,
    register,
)

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
NAME = "tests.hosts"


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage, lease_for=HOUR)


async def store(storage: Storage, key: str, **fields: object) -> JobId:
    return await enqueue_one(storage, limit_name=NAME, limit_key=key, **fields)


async def holds(storage: Storage, ids: list[JobId]) -> list[Hold | None]:
    found = await storage.jobs.get(ids)
    return [found[each].hold for each in ids]


@pytest.mark.parametrize("count", [1, 3, 2_100])
async def test_a_new_job_of_a_full_key_is_on_hold_and_no_claim_has_to_meet_it(
    storage: Storage, lease: PodLease, count: int
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    await store(storage, "a")
    [running] = await claim(storage, lease, limit=2)
    for _ in range(2):
        batch = [new_job(limit_name=NAME, limit_key="a") for _ in range(count)]
        await storage.jobs.enqueue(batch)
        assert {*await holds(storage, [one.id for one in batch])} == {Hold.LIMIT}
    mixed = [new_job(limit_name=NAME, limit_key=key) for key in ("b", "a", "b")]
    mixed += [new_job(), new_job(limit_name="tests.of_no_limit", limit_key="a")]
    await storage.jobs.enqueue(mixed)
    assert await holds(storage, [one.id for one in mixed]) == [None, Hold.LIMIT, None, None, None]
    assert len(await claim(storage, lease, limit=10)) == 3
    demand = Demand(worker_ids=("w",), limit=1, kinds=frozenset({KIND}))
    end = Finalization(running.claim, done())
    assert len((await storage.jobs.exchange(QUEUE, [end], demand, lease)).claimed) == 1


async def test_a_new_job_goes_behind_those_on_hold_while_its_key_has_room(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    ids = [await store(storage, "a")]
    [running] = await claim(storage, lease, limit=2)
    for _ in range(2):
        clock.advance(MICROSECOND)
        ids.append(await store(storage, "a"))
    await finish(storage, running, done())
    clock.advance(MICROSECOND)
    ids.append(await store(storage, "a"))
    first = await store(storage, "a", priority=-1)
    assert await holds(storage, [ids[-1]]) == [Hold.LIMIT]
    order: list[JobId] = []
    while claims := await claim(storage, lease, limit=3):
        order += [one.claim.job_id for one in claims]
        for one in claims:
            await finish(storage, one, done())
    assert order == [first, *ids[1:]]


async def test_a_new_job_that_is_not_due_at_once_is_not_put_on_hold(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    parent = await store(storage, "a")
    assert len(await claim(storage, lease, limit=2)) == 1
    of_key = {"limit_name": NAME, "limit_key": "a"}
    later = [
        new_job(**of_key, delay=HOUR),
        new_job(**of_key, run_at=clock.now() + HOUR),
        new_job(**of_key, run_at=clock.now()),
        new_job(**of_key, after=(After(parent),)),
    ]
    await storage.jobs.enqueue(later)
    assert await holds(storage, [one.id for one in later]) == [None] * 4


async def test_jobs_put_on_hold_by_an_enqueue_run_when_the_limit_is_raised_or_goes(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    await store(storage, "a")
    assert len(await claim(storage, lease, limit=9)) == 1
    await storage.jobs.enqueue([new_job(limit_name=NAME, limit_key="a") for _ in range(6)])
    assert not await claim(storage, lease, limit=9)
    await storage.config.set_limit(QUEUE, NAME, 3)
    assert len(await claim(storage, lease, limit=9)) == 2
    await storage.config.delete_limit(QUEUE, NAME)
    assert len(await claim(storage, lease, limit=9)) == 4


async def test_a_job_behind_expired_ones_on_hold_starts(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    await store(storage, "a")
    [running] = await claim(storage, lease, limit=2)
    for _ in range(3):
        await store(storage, "a", expires_at=clock.now() + SECOND)
    clock.advance(2 * SECOND)
    await finish(storage, running, done())
    assert not await claim(storage, lease, limit=2)
    last = await store(storage, "a")
    assert [one.claim.job_id for one in await claim(storage, lease, limit=2)] == [last]


async def test_with_a_share_new_jobs_wait_for_their_turn_from_the_enqueue_on(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 5}, {NAME: 1})
    batch = [new_job(limit_name=NAME, limit_key="a") for _ in range(30)]
    await storage.jobs.enqueue(batch)
    clock.advance(MICROSECOND)
    other = await store(storage, "b")
    assert await holds(storage, [batch[0].id, batch[-1].id, other]) == [Hold.LIMIT] * 3
    first = await claim(storage, lease, limit=2)
    assert {one.claim.job_id for one in first} >= {other}
    assert len(await claim(storage, lease, limit=9)) == 4


async def test_a_key_with_a_turn_starts_after_many_jobs_at_once(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 5}, {NAME: 1})
    await storage.jobs.enqueue([new_job(limit_name=NAME, limit_key="a") for _ in range(2_100)])
    assert len(await claim(storage, lease, limit=9)) == 5


async def test_an_enqueue_to_a_key_with_room_wakes_the_queue_also_with_a_share(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 5}, {NAME: 1})
    while await storage.jobs.wait_for_work(frozenset({QUEUE}), SECOND / 50):
        pass
    await store(storage, "a")
    async with asyncio.timeout(60):
        while (
            QUEUE not in (await storage.jobs.wait_for_work(frozenset({QUEUE}), 30 * SECOND)).queues
        ):
            pass
    assert len(await claim(storage, lease, limit=2)) == 1


async def end_some(storage: Storage, lease: PodLease, limit: int) -> int:
    """Claim jobs, end them, and return how many."""
    claims = await claim(storage, lease, limit=limit)
    for one in claims:
        await finish(storage, one, done())
    return len(claims)


async def enqueue_some(storage: Storage, size: int) -> int:
    """Enqueue jobs of three keys call by call, and return how many."""
    for turn in range(12):
        keys = [f"k{(turn + n) % 3}" for n in range(size)]
        await storage.jobs.enqueue([new_job(limit_name=NAME, limit_key=key) for key in keys])
    return 12 * size


async def edit_limit(storage: Storage, share: int | None) -> int:
    for turn in range(8):
        await storage.config.set_limit(QUEUE, NAME, turn % 3 + 1, share)
    return 0


@pytest.mark.parametrize("share", [None, 1])
async def test_no_job_stays_on_hold_beside_enqueues_claims_ends_and_edits(
    storage: Storage, lease: PodLease, share: int | None
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1}, {} if share is None else {NAME: share})
    is_over = asyncio.Event()

    async def work() -> int:
        ended = 0
        while not is_over.is_set():
            ended += await end_some(storage, lease, 2)
        return ended

    async def call() -> int:
        calls = [enqueue_some(storage, size) for size in (1, 1, 2, 5)]
        stored = sum(await asyncio.gather(*calls, edit_limit(storage, share)))
        is_over.set()
        return stored

    async with asyncio.timeout(120):
        stored, *ended = await asyncio.gather(call(), *(work() for _ in range(3)))
        while more := await end_some(storage, lease, 50):
            ended.append(more)
    assert sum(ended) == stored
