"""Many jobs of one key in a call: on hold from the enqueue on, while their key has room.

A claim decides in the order of the queue which of them start, as if all were ready.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.model.edits import content_of
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ClaimedJob, Hold, NewJob
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
    failed,
    finish,
    get_job,
    new_job,
    register,
)

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
NAME = "tests.customers"
ROOM, BURST = 5, 150
OTHER_KIND = "tests.of_another_pod"


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    await storage.config.ensure_limits(QUEUE, {NAME: ROOM})
    lease = await register(storage, lease_for=HOUR)
    # The first call of a program for a queue has a way of its own.
    await enqueue_one(storage)
    await end_all(storage, await claim(storage, lease))
    return lease


def of_key(count: int, key: str = "a", **fields: Any) -> list[NewJob]:
    return [new_job(limit_name=NAME, limit_key=key, **fields) for _ in range(count)]


def ids_of(claims: list[ClaimedJob]) -> list[JobId]:
    return [one.claim.job_id for one in claims]


async def burst(storage: Storage, count: int = BURST, **fields: Any) -> list[JobId]:
    """Enqueue a burst and return its ids in the order of the queue."""
    jobs = of_key(count, **fields)
    await storage.jobs.enqueue(jobs)
    return sorted(one.id for one in jobs)


async def due(storage: Storage) -> int:
    """Return how many jobs a claim may have to pass."""
    return (await storage.jobs.counts((QUEUE,)))[QUEUE].due


async def held(storage: Storage, job_id: JobId) -> Hold | None:
    return (await get_job(storage, job_id)).hold


async def some_ready(storage: Storage, clock: ManualClock) -> None:
    """Let the jobs of a burst be ready for which there is room, and none be claimed."""
    other = await register(storage, kinds=(OTHER_KIND,), lease_for=SECOND / 2)
    demand = Demand(worker_ids=("w",) * ROOM, limit=ROOM, kinds=frozenset({OTHER_KIND}))
    assert not (await storage.jobs.exchange(QUEUE, (), demand, other)).claimed
    clock.advance(SECOND)
    assert await due(storage) >= ROOM


async def end_all(storage: Storage, claims: list[ClaimedJob]) -> None:
    for one in claims:
        await finish(storage, one, done())


@pytest.mark.parametrize("count", [BURST, 2_100, 10_000])
async def test_the_first_free_job_behind_a_burst_is_claimed_at_once(
    storage: Storage, lease: PodLease, clock: ManualClock, count: int
) -> None:
    ids = await burst(storage, count)
    clock.advance(MICROSECOND)
    free = [await enqueue_one(storage), await enqueue_one(storage, limit_name=NAME, limit_key="b")]
    # The ready ones are all that a claim may have to pass.
    assert await due(storage) <= ROOM + len(free)
    claims = await claim(storage, lease, limit=ROOM + len(free))
    assert sorted(ids_of(claims)) == sorted([*ids[:ROOM], *free])
    assert not await claim(storage, lease, limit=10)
    assert await due(storage) == 0


async def test_a_burst_runs_in_the_order_of_the_queue_and_never_beyond_the_limit(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    jobs = of_key(BURST, priority=1)
    first = of_key(7)
    await storage.jobs.enqueue([*jobs, *first])
    clock.advance(MICROSECOND)
    # Further jobs go behind those on hold, however few they are.
    later = [await enqueue_one(storage, limit_name=NAME, limit_key="a", priority=1)]
    expected = [*sorted(one.id for one in first), *sorted(one.id for one in jobs), *later]
    order: list[JobId] = []
    while claims := await claim(storage, lease, limit=20):
        assert len(claims) <= ROOM
        order += sorted(ids_of(claims), key=expected.index)
        await end_all(storage, claims)
    assert order == expected


async def test_with_one_slot_all_jobs_of_a_burst_come(storage: Storage, lease: PodLease) -> None:
    ids = await burst(storage)
    order: list[JobId] = []
    demand = Demand(worker_ids=("w",), limit=1, kinds=frozenset({KIND}))
    ends: list[Finalization] = []
    while claims := (await storage.jobs.exchange(QUEUE, ends, demand, lease)).claimed:
        order += ids_of(list(claims))
        ends = [Finalization(one.claim, done()) for one in claims]
    assert order == ids


async def test_a_key_with_some_jobs_in_progress_is_filled_up(
    storage: Storage, lease: PodLease
) -> None:
    await storage.jobs.enqueue(of_key(2))
    running = await claim(storage, lease, limit=9)
    ids = await burst(storage)
    assert await due(storage) <= ROOM - len(running)
    assert sorted(ids_of(await claim(storage, lease, limit=9))) == ids[: ROOM - 2]
    assert not await claim(storage, lease, limit=9)


async def test_few_jobs_more_than_there_is_room_are_ready(
    storage: Storage, lease: PodLease
) -> None:
    ids = await burst(storage, ROOM + 100)
    assert await due(storage) == len(ids)
    await storage.jobs.enqueue([one for n in range(40) for one in of_key(10, key=f"k{n}")])
    assert await due(storage) == len(ids) + 400


async def test_a_burst_behind_many_ready_jobs_is_ready_too(
    storage: Storage, lease: PodLease, clock: ManualClock, request: pytest.FixtureRequest
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(BURST)])
    clock.advance(MICROSECOND)
    await burst(storage)
    # On Redis a burst on hold costs claims nothing. On SQL each claim would decide about each job.
    is_redis = "redis" in request.node.callspec.params["storage"]
    assert await due(storage) == BURST + (ROOM if is_redis else BURST)
    assert len(await claim(storage, lease, limit=2 * BURST)) == BURST + ROOM


async def test_few_keys_of_a_queue_have_bursts_on_hold_at_once(
    storage: Storage, lease: PodLease, request: pytest.FixtureRequest
) -> None:
    ids = [(await burst(storage, 1_000, key=f"k{n}"))[-1] for n in range(24)]
    on_hold = [await held(storage, each) for each in ids].count(Hold.LIMIT)
    # Only on SQL each of them makes claims dearer, until the key is full.
    assert on_hold == (24 if "redis" in request.node.callspec.params["storage"] else 20)
    claims: list[ClaimedJob] = []
    for _ in range(40):
        claims += await claim(storage, lease, limit=20)
    assert len(claims) == 24 * ROOM


async def test_a_job_with_a_higher_priority_goes_before_the_ready_ones_of_a_burst(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    ids = await burst(storage)
    clock.advance(MICROSECOND)
    first = [await enqueue_one(storage, limit_name=NAME, limit_key="a", priority=-1) for _ in "ab"]
    last = await enqueue_one(storage, limit_name=NAME, limit_key="a")
    assert await held(storage, last) is Hold.LIMIT
    assert sorted(ids_of(await claim(storage, lease, limit=2))) == sorted(first)
    assert sorted(ids_of(await claim(storage, lease, limit=9))) == ids[: ROOM - 2]


async def test_jobs_of_a_burst_that_are_not_due_at_once_go_the_way_of_all_others(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    jobs = of_key(BURST, delay=SECOND)
    await storage.jobs.enqueue(jobs)
    assert await held(storage, jobs[0].id) is None
    clock.advance(SECOND)
    assert len(await claim(storage, lease, limit=9)) == ROOM


async def cancel(storage: Storage, ids: list[JobId], _: ManualClock) -> None:
    assert len((await storage.jobs.cancel(JobFilter(ids=tuple(ids)))).changed) == len(ids)


async def delete(storage: Storage, ids: list[JobId], _: ManualClock) -> None:
    assert len((await storage.jobs.delete(JobFilter(ids=tuple(ids)))).changed) == len(ids)


async def postpone(storage: Storage, ids: list[JobId], _: ManualClock) -> None:
    for each in ids:
        job = await get_job(storage, each)
        before = content_of(job)
        after = structs.replace(before, due_at=before.due_at + HOUR)
        await storage.jobs.edit(each, token=job.token, before=before, after=after)


_GOES = [cancel, delete, postpone]
Goes = Callable[[Storage, list[JobId], ManualClock], Awaitable[None]]


@pytest.mark.parametrize("goes", _GOES)
async def test_when_ready_jobs_of_a_burst_go_before_they_run_the_next_ones_come(
    storage: Storage, lease: PodLease, clock: ManualClock, goes: Goes
) -> None:
    ids = await burst(storage)
    await some_ready(storage, clock)
    await goes(storage, ids[:ROOM], clock)
    assert sorted(ids_of(await claim(storage, lease, limit=9))) == ids[ROOM : 2 * ROOM]


async def test_when_ready_jobs_of_a_burst_expire_the_next_ones_come(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    soon = of_key(ROOM, expires_at=clock.now() + 2 * SECOND)
    last = of_key(BURST)
    await storage.jobs.enqueue([*soon, *last])
    await some_ready(storage, clock)
    clock.advance(2 * SECOND)
    assert await storage.jobs.expire(100) == len(soon)
    expected = sorted(one.id for one in last)[:ROOM]
    assert sorted(ids_of(await claim(storage, lease, limit=9))) == expected


async def test_jobs_of_a_kind_that_no_pod_serves_keep_no_other_of_a_burst_waiting(
    storage: Storage, lease: PodLease
) -> None:
    gone, mine = of_key(ROOM, kind="tests.gone", priority=-1), of_key(BURST)
    await storage.jobs.enqueue([*gone, *mine])
    claims: list[ClaimedJob] = []
    for _ in range(4):
        claims += await claim(storage, lease, limit=9)
    assert sorted(ids_of(claims)) == sorted(one.id for one in mine)[:ROOM]


@pytest.mark.parametrize("ending", ["released", "failed", "cancelled"])
async def test_any_end_of_a_claim_brings_the_next_job_of_a_burst(
    storage: Storage, lease: PodLease, ending: str
) -> None:
    ids = await burst(storage)
    claims = await claim(storage, lease, limit=9)
    assert sorted(ids_of(claims)) == ids[:ROOM]
    [first, *_] = sorted(claims, key=lambda one: one.claim.job_id)
    if ending == "released":
        await storage.jobs.release([first.claim])
        assert ids_of(await claim(storage, lease, limit=9)) == [ids[0]]
        return
    await finish(storage, first, failed(delay=HOUR) if ending == "failed" else done())
    assert ids_of(await claim(storage, lease, limit=9)) == [ids[ROOM]]


async def test_a_raised_limit_a_lower_one_and_none_hold_for_a_burst(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    ids = await burst(storage)
    await some_ready(storage, clock)
    await storage.config.set_limit(QUEUE, NAME, 2)
    claims = await claim(storage, lease, limit=9)
    assert sorted(ids_of(claims)) == ids[:2]
    await storage.config.set_limit(QUEUE, NAME, 8)
    claims += await claim(storage, lease, limit=9)
    assert sorted(ids_of(claims)) == ids[:8]
    await storage.config.delete_limit(QUEUE, NAME)
    claims += await claim(storage, lease, limit=BURST)
    assert sorted(ids_of(claims)) == ids


async def test_a_burst_wakes_pods_that_wait(storage: Storage, lease: PodLease) -> None:
    while await storage.jobs.wait_for_work(frozenset({QUEUE}), SECOND / 50):
        pass
    await burst(storage)
    async with asyncio.timeout(60):
        while (
            QUEUE not in (await storage.jobs.wait_for_work(frozenset({QUEUE}), 30 * SECOND)).queues
        ):
            pass
    assert len(await claim(storage, lease, limit=9)) == ROOM


async def test_bursts_of_many_keys_leave_no_key_with_room_idle(
    storage: Storage, lease: PodLease
) -> None:
    keys = [f"k{n}" for n in range(60)]
    jobs = {key: of_key(BURST, key=key) for key in keys}
    for some in (keys[:10], keys[10:11], keys[11:50], keys[50:]):
        await storage.jobs.enqueue([one for key in some for one in jobs[key]])
    first = {one.id: key for key, of in jobs.items() for one in of}
    taken: list[JobId] = []
    for _ in range(60):
        taken += ids_of(await claim(storage, lease, limit=20))
    assert sorted(first[each] for each in taken) == sorted(keys * ROOM)


async def test_many_jobs_of_full_keys_in_front_are_met_once(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.set_limit(QUEUE, NAME, 1)
    for _ in range(30):
        # No burst, so that claims put them on hold.
        await storage.jobs.enqueue(
            [new_job(limit_name=NAME, limit_key=f"k{n % 7}") for n in range(100)]
        )
    clock.advance(MICROSECOND)
    behind = {await enqueue_one(storage, limit_name=NAME, limit_key=f"other {n}") for n in range(5)}
    claims: list[ClaimedJob] = []
    # About a thousand jobs are put on hold by one claim.
    for _ in range(8):
        claims += await claim(storage, lease, limit=20)
    assert len(claims) == 12
    assert behind <= {*ids_of(claims)}
    counts = (await storage.jobs.counts((QUEUE,)))[QUEUE]
    assert (counts.due, counts.held, counts.by_status["pending"]) == (0, 0, 3_005 - 12)


async def test_no_job_of_a_burst_stays_on_hold_beside_claims_ends_and_edits(
    storage: Storage, lease: PodLease
) -> None:
    is_over = asyncio.Event()

    async def work() -> int:
        ended = 0
        while not is_over.is_set():
            claims = await claim(storage, lease, limit=3)
            await end_all(storage, claims)
            ended += len(claims)
        return ended

    async def enqueue() -> int:
        for turn in range(4):
            await storage.jobs.enqueue(of_key(BURST, key=f"k{turn % 2}"))
            await storage.config.set_limit(QUEUE, NAME, turn % 3 + 1)
            await storage.jobs.enqueue(of_key(1, key=f"k{turn % 2}"))
        is_over.set()
        return 4 * (BURST + 1)

    async with asyncio.timeout(120):
        stored, *ended = await asyncio.gather(enqueue(), *(work() for _ in range(3)))
        while more := await claim(storage, lease, limit=50):
            await end_all(storage, more)
            ended.append(len(more))
    assert sum(ended) == stored
