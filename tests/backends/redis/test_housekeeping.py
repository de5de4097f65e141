"""The keys beside the jobs: locators, indexes, handovers of parents. All of them go."""

from datetime import timedelta

import pytest
from redis.asyncio import Redis

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, JobStatus, Unique
from forge_jobs.model.metrics import HOUR
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Delivery
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.base.places import Places
from forge_jobs.storage.redis.jobs import cleanup
from forge_jobs.storage.redis.keys import OLD_HASHES, old_hash
from tests.support.factories import (
    DAY,
    QUEUE,
    cleaned_up,
    done,
    enqueue_one,
    get_job,
    new_job,
    only,
    register,
    run_one,
)
from tests.support.redis_databases import KEYS

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage)


async def locators(client: Redis) -> set[str]:
    """The ids that have one."""
    bases = Places(KEYS).old_bases()
    found = [job_id for base in bases for job_id in await client.hkeys(f"{base}:ids")]
    return {bytes(job_id).decode() for job_id in found if not isinstance(job_id, str)}


def an_id_swept_last() -> JobId:
    """Return an id whose locator is not in the first step of the sweep for dangling locators."""
    last = OLD_HASHES - 1
    return next(job_id for job_id in iter(new_job_id, None) if old_hash(job_id) == last)


async def write_dangling(client: Redis, clock: ManualClock, queue: str = QUEUE) -> JobId:
    """Write the locator of a job that was never stored, as left by an enqueue that was cut off."""
    job_id = new_job_id()
    value = f"{queue}\n{clock.time_us() // 1_000_000}"
    await client.hset(Places(KEYS).of(job_id), job_id, value)
    return job_id


async def a_whole_sweep(storage: Storage) -> None:
    for _ in range(16):
        await storage.jobs.cleanup(100)
        await storage.jobs.sweep(100)


# -- locators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["retention", "operator"])
async def test_the_locator_of_a_removed_job_goes_a_little_later(
    storage: Storage, lease: PodLease, client: Redis, clock: ManualClock, by: str
) -> None:
    job_id = await enqueue_one(storage, id=an_id_swept_last())
    await run_one(storage, lease, done())
    if by == "operator":
        await storage.jobs.delete(only(job_id))
    else:
        clock.advance(timedelta(days=8))
        assert await cleaned_up(storage) == 1
    assert await locators(client) == {job_id}
    clock.advance(3 * MINUTE)
    await storage.jobs.cleanup(10)
    assert await locators(client) == set()
    assert await client.exists(f"{KEYS.queue(QUEUE)}:gone") == 0


async def test_locators_of_many_removed_jobs_go_at_once(
    storage: Storage, client: Redis, clock: ManualClock
) -> None:
    for _ in range(3):
        await storage.jobs.enqueue([new_job() for _ in range(1000)])
        await storage.jobs.delete(JobFilter(), limit=1000)
    assert len(await locators(client)) == 3000
    clock.advance(3 * MINUTE)
    await storage.jobs.cleanup(10)
    assert await locators(client) == set()


async def test_a_job_stored_again_under_its_id_keeps_its_locator(
    storage: Storage, client: Redis, clock: ManualClock
) -> None:
    request = new_job()
    await storage.jobs.enqueue([request])
    await storage.jobs.delete(only(request.id))
    clock.advance(3 * MINUTE)
    await storage.jobs.enqueue([request])
    clock.advance(3 * MINUTE)
    await a_whole_sweep(storage)
    assert await locators(client) == {request.id}
    assert (await get_job(storage, request.id)).status is JobStatus.PENDING
    assert await client.exists(f"{KEYS.queue(QUEUE)}:gone") == 0


async def test_a_locator_that_an_enqueue_has_just_written_stays(
    storage: Storage, client: Redis, clock: ManualClock
) -> None:
    request = new_job()
    await storage.jobs.enqueue([request])
    await storage.jobs.delete(only(request.id))
    clock.advance(3 * MINUTE)
    # The first half of an enqueue in a cluster. The job is about to be stored.
    value = f"{QUEUE}\n{clock.time_us() // 1_000_000}"
    await client.hset(Places(KEYS).of(request.id), request.id, value)
    await a_whole_sweep(storage)
    assert await locators(client) == {request.id}


async def test_a_locator_without_a_job_goes_once_nobody_can_be_storing_it(
    storage: Storage, lease: PodLease, client: Redis, clock: ManualClock
) -> None:
    stored = await enqueue_one(storage)
    dangling = await write_dangling(client, clock)
    of_no_queue = await write_dangling(client, clock, queue="never {stored}")
    clock.advance(2 * MINUTE - timedelta(seconds=1))
    await a_whole_sweep(storage)
    assert await locators(client) == {stored, dangling, of_no_queue}
    clock.advance(1)
    await a_whole_sweep(storage)
    assert await locators(client) == {stored}


async def test_a_job_that_is_only_located_does_not_exist(
    storage: Storage, client: Redis, clock: ManualClock
) -> None:
    job_id = await write_dangling(client, clock)
    assert await storage.jobs.get([job_id]) == {}
    assert (await storage.jobs.list(only(job_id))).jobs == ()
    outcome = await storage.jobs.cancel(only(job_id))
    assert list(outcome.refused) == [job_id]
    outcome = await storage.jobs.cancel(JobFilter(ids=(job_id,), queues=("other",)))
    assert list(outcome.refused) == [job_id]


# -- handovers -----------------------------------------------------------------------------------


async def test_news_for_children_that_are_gone_hold_up_nobody(
    storage: Storage, lease: PodLease
) -> None:
    """The children went with the last writes of a slot."""
    parent, other = await enqueue_one(storage), await enqueue_one(storage)
    gone = [new_job(after=(After(parent),)) for _ in range(500)]
    await storage.jobs.enqueue(gone)
    await storage.jobs.delete(only(*(each.id for each in gone)))
    child = await enqueue_one(storage, after=(After(other),))
    for _ in range(2):
        await run_one(storage, lease, done())
    assert await hand_over_once(storage.jobs) == 1
    assert (await get_job(storage, child)).status is JobStatus.PENDING
    assert await storage.jobs.handovers(10) == []


async def test_many_children_of_one_parent_are_told_in_batches(
    storage: Storage, lease: PodLease
) -> None:
    parent = await enqueue_one(storage)
    for _ in range(3):
        await storage.jobs.enqueue([new_job(after=(After(parent),)) for _ in range(500)])
    await run_one(storage, lease, done())
    told = []
    while news := await storage.jobs.handovers(400):
        told.append(await storage.jobs.deliver([Delivery(each, "settle") for each in news]))
    assert told == [400, 400, 400, 300]
    assert (await storage.jobs.counts())[QUEUE].due == 1500


# -- timeline ------------------------------------------------------------------------------------


async def test_of_more_events_than_a_queue_keeps_the_oldest_go(
    storage: Storage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "MOST_EVENTS", 3)
    job_id = await enqueue_one(storage)
    told = [
        TimelineEvent(
            at=clock.now() + timedelta(seconds=number % 5),
            kind=EventKind.STARTED,
            queue=QUEUE,
            job_id=job_id,
            detail=str(number),
        )
        for number in range(10)
    ]
    await storage.jobs.append_events(told)
    assert (await storage.jobs.cleanup(5)).removed == 5
    assert (await storage.jobs.cleanup(5)).removed == 2
    assert (await storage.jobs.cleanup(5)).removed == 0
    for left in (await storage.jobs.events(), await storage.jobs.events(job_id=job_id)):
        assert [event.detail for event in left] == ["9", "4", "8"]


async def test_minutes_become_hours_after_a_day_where_nothing_else_is_said(
    storage: Storage, lease: PodLease, client: Redis, clock: ManualClock
) -> None:
    start = clock.now()
    await enqueue_one(storage)
    await run_one(storage, lease, done())
    counted = sum((await storage.jobs.metrics(QUEUE, start - DAY, start + DAY))[0].counts.values())
    clock.advance(DAY + 2 * HOUR)
    await cleaned_up(storage)
    [hour] = await storage.jobs.metrics(QUEUE, start - DAY, start + DAY)
    assert (hour.length, sum(hour.counts.values())) == (HOUR, counted)
    [key] = [key async for key in client.scan_iter(match="*:hm:*")]
    assert 30 * DAY < timedelta(milliseconds=await client.pttl(key)) <= 31 * DAY


# -- lists ---------------------------------------------------------------------------------------


async def script_calls(client: Redis) -> int:
    """How many keys all scripts so far have read as jobs."""
    stats = await client.info("commandstats")
    return int(stats.get("cmdstat_hmget", {}).get("calls", 0))


@pytest.mark.parametrize(
    "which",
    [
        JobFilter(tag="rare"),
        JobFilter(schedule="nightly"),
        JobFilter(kinds=("rare.kind",)),
        JobFilter(unique_key="k"),
        JobFilter(tag="rare", statuses=(JobStatus.PENDING,)),
    ],
    ids=["tag", "schedule", "kind", "key", "tag and status"],
)
async def test_a_list_looks_at_the_jobs_of_its_narrowest_index_only(
    storage: Storage, client: Redis, which: JobFilter
) -> None:
    rare = new_job(tags=("rare",), schedule="nightly", kind="rare.kind", unique=Unique("k"))
    many = [new_job(tags=("common",)) for _ in range(1000)]
    await storage.jobs.enqueue([*many[:500], rare, *many[500:]])
    before = await script_calls(client)
    page = await storage.jobs.list(which)
    assert [job.id for job in page.jobs] == [rare.id]
    assert await script_calls(client) - before < 10


async def test_a_filter_that_few_jobs_match_is_walked_to_its_end(storage: Storage) -> None:
    ids = []
    for queue in ("b", "a", "b", "a", "a"):
        await storage.jobs.enqueue([new_job(queue=queue, tags=("odd",)) for _ in range(300)])
        await storage.jobs.enqueue([new_job(queue=queue, kind="wanted") for _ in range(300)])
        ids.append(await enqueue_one(storage, queue=queue, kind="wanted", tags=("odd",)))
    which = JobFilter(kinds=("wanted",), tag="odd")
    found: list[JobId] = []
    cursor = None
    for _ in range(3):
        page = await storage.jobs.list(which, cursor=cursor, limit=2)
        found += (job.id for job in page.jobs)
        cursor = page.cursor
    assert (found, cursor) == (ids[::-1], None)
    assert (await storage.jobs.delete(which)).changed == tuple(ids)


async def test_a_queue_that_is_slow_to_search_loses_no_place(storage: Storage) -> None:
    older = [await enqueue_one(storage, queue="b", kind="wanted", tags=("odd",)) for _ in range(3)]
    first = await enqueue_one(storage, queue="a", kind="wanted", tags=("odd",))
    await storage.jobs.enqueue([new_job(queue="a", tags=("odd",)) for _ in range(600)])
    await storage.jobs.enqueue([new_job(queue="a", kind="wanted") for _ in range(600)])
    page = await storage.jobs.list(JobFilter(kinds=("wanted",), tag="odd"), limit=2)
    assert [job.id for job in page.jobs] == [first, older[2]]


async def test_the_timeline_of_a_job_stays_as_long_as_events_are_kept(
    storage: Storage, client: Redis
) -> None:
    """Retention removes the events. The list itself does not expire before."""
    job_id = await enqueue_one(storage)
    await storage.jobs.append_events(
        [TimelineEvent(at=await storage.cron.now(), kind=EventKind.STARTED, job_id=job_id)]
    )
    [key] = [key async for key in client.scan_iter(f"{KEYS.prefix}:*:ev:{job_id}")]
    assert await client.pttl(key) > timedelta(days=3000) / timedelta(milliseconds=1)
