"""The timeline, histograms, metrics and their roll-up: the bookkeeping half of ``JobStore``."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import HostId, new_host_id, new_job_id
from forge_jobs.model.metrics import Histogram, LatencySample, MetricBucket
from forge_jobs.model.processes import PodGauges
from forge_jobs.model.retention import Kept
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    MICROSECOND,
    QUEUE,
    SECOND,
    cleaned_up,
    done,
    enqueue_one,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


def event(at: datetime, detail: str = "", **overrides: str) -> TimelineEvent:
    return TimelineEvent(at=at, kind=EventKind.STARTED, detail=detail, **overrides)


def sample(
    minute: datetime,
    processing: dict[int, int],
    total: dict[int, int] | None = None,
    queue: str = QUEUE,
) -> LatencySample:
    return LatencySample(
        queue=queue,
        minute=minute,
        processing=Histogram(processing),
        total=Histogram(processing if total is None else total),
    )


async def add(storage: Storage, host_id: HostId, *samples: LatencySample) -> None:
    await storage.jobs.add_latencies(host_id, samples)


async def buckets(
    storage: Storage, start: datetime, length: timedelta = DAY, queue: str = QUEUE
) -> list[MetricBucket]:
    return await storage.jobs.metrics(queue, start, start + length)


async def roll_up(storage: Storage) -> int:
    """Fold all that can be folded, and return how many rows."""
    total = 0
    while folded := await storage.jobs.roll_up(100):
        total += folded
        assert total < 100_000
    return total


async def clean_up(storage: Storage) -> int:
    """A pass that folds no minutes into hours, on any store."""
    return await cleaned_up(storage, batch=100, kept=Kept(minutes=30 * DAY))


def details(found: Sequence[TimelineEvent]) -> list[str]:
    return [item.detail for item in found]


# -- timeline ----------------------------------------------------------------------------------


async def test_an_event_comes_back_as_it_was_appended(storage: Storage, clock: ManualClock) -> None:
    appended = TimelineEvent(
        at=clock.now() + MICROSECOND,
        kind=EventKind.POD_LOST,
        queue="a'b {} %s",
        job_id=new_job_id(),
        host_id=new_host_id(),
        detail="ünder <b>&amp;",
    )
    await storage.jobs.append_events([appended])
    await storage.jobs.append_events([])
    assert await storage.jobs.events() == [appended]


async def test_events_come_newest_first_up_to_the_limit(
    storage: Storage, clock: ManualClock
) -> None:
    now = clock.now()
    await storage.jobs.append_events([event(now + SECOND, "2"), event(now, "1")])
    await storage.jobs.append_events([event(now + 2 * SECOND, "3")])
    assert details(await storage.jobs.events()) == ["3", "2", "1"]
    assert details(await storage.jobs.events(limit=2)) == ["3", "2"]


async def test_of_one_instant_the_later_appended_comes_first(
    storage: Storage, clock: ManualClock
) -> None:
    await storage.jobs.append_events([event(clock.now(), str(number)) for number in range(5)])
    assert details(await storage.jobs.events()) == ["4", "3", "2", "1", "0"]


async def test_events_of_one_job_or_one_queue_alone(storage: Storage, clock: ManualClock) -> None:
    now, job_id = clock.now(), new_job_id()
    await storage.jobs.append_events(
        [
            event(now, "mine", job_id=job_id, queue="a"),
            event(now, "other", job_id=new_job_id(), queue="a"),
            event(now, "elsewhere", job_id=job_id, queue="b"),
            event(now, "of nothing"),
        ]
    )
    assert details(await storage.jobs.events(job_id=job_id)) == ["elsewhere", "mine"]
    assert details(await storage.jobs.events(queue="a")) == ["other", "mine"]
    assert details(await storage.jobs.events(job_id=job_id, queue="a")) == ["mine"]
    assert await storage.jobs.events(queue="c") == []


# -- metrics -----------------------------------------------------------------------------------


async def test_metrics_count_each_minute_apart(storage: Storage, clock: ManualClock) -> None:
    start = clock.now()
    await enqueue_one(storage)
    await enqueue_one(storage)
    clock.advance(MINUTE - MICROSECOND)
    await run_one(storage, await register(storage), done())
    clock.advance(MICROSECOND)
    await enqueue_one(storage, queue="other")
    found = await buckets(storage, start)
    assert [bucket.minute for bucket in found] == [start]
    assert (found[0].queue, dict(found[0].counts)) == (
        QUEUE,
        {"enqueued": 2, "claimed": 1, "succeeded": 1},
    )
    other = await buckets(storage, start, queue="other")
    assert [bucket.minute for bucket in other] == [start + MINUTE]


async def test_metrics_cover_a_half_open_range_oldest_first(
    storage: Storage, clock: ManualClock
) -> None:
    start = clock.now()
    for _ in range(4):
        await enqueue_one(storage)
        clock.advance(MINUTE)
    found = await storage.jobs.metrics(QUEUE, start + MINUTE, start + 3 * MINUTE)
    assert [bucket.minute for bucket in found] == [start + MINUTE, start + 2 * MINUTE]
    assert await storage.jobs.metrics(QUEUE, start + MINUTE, start + MINUTE) == []


async def test_histograms_of_all_pods_are_summed(storage: Storage, clock: ManualClock) -> None:
    start = clock.now()
    first, second = new_host_id(), new_host_id()
    await add(storage, first, sample(start, {1: 2, 300: 1}, {5: 3}))
    await add(storage, second, sample(start, {1: 1, -4: 7}, {6: 4}))
    [bucket] = await buckets(storage, start)
    assert dict(bucket.processing.counts) == {1: 3, 300: 1, -4: 7}
    assert dict(bucket.total.counts) == {5: 3, 6: 4}


async def test_histograms_of_one_pod_and_minute_are_added(
    storage: Storage, clock: ManualClock
) -> None:
    start, host = clock.now(), new_host_id()
    await add(storage, host, sample(start, {1: 2}), sample(start + MINUTE, {9: 1}))
    await add(storage, host, sample(start, {1: 2, 2: 1}), sample(start, {1: 1}, queue="b"))
    found = await buckets(storage, start)
    assert [dict(bucket.processing.counts) for bucket in found] == [{1: 4, 2: 1}, {9: 1}]
    [other] = await buckets(storage, start, queue="b")
    assert dict(other.processing.counts) == {1: 1}


async def test_histograms_added_at_once_are_all_there(storage: Storage, clock: ManualClock) -> None:
    start = clock.now()
    hosts = [new_host_id() for _ in range(4)]
    await asyncio.gather(*(add(storage, host, sample(start, {7: 1})) for host in hosts * 5))
    [bucket] = await buckets(storage, start)
    assert dict(bucket.total.counts) == {7: 20}


# -- roll-up -----------------------------------------------------------------------------------


async def busy_minutes(storage: Storage, clock: ManualClock, minutes: int) -> datetime:
    """Record work of two pods on two queues in each of some minutes. Return the first minute."""
    start = clock.now()
    for number in range(minutes):
        for _ in range(2):
            lease = await register(storage, queues=(QUEUE, "b"))
            for queue in (QUEUE, "b"):
                await enqueue_one(storage, queue=queue)
                await run_one(storage, lease, done(), queue=queue)
            measured = sample(clock.now(), {number: 1}, {number: 2, 50: 1})
            await add(storage, lease.host_id, measured)
        clock.advance(MINUTE)
    return start


async def test_metrics_are_the_same_before_and_after_a_roll_up(
    storage: Storage, clock: ManualClock
) -> None:
    start = await busy_minutes(storage, clock, 3)
    before = [await buckets(storage, start, queue=queue) for queue in (QUEUE, "b")]
    assert await roll_up(storage) > 0
    after = [await buckets(storage, start, queue=queue) for queue in (QUEUE, "b")]
    assert after == before
    assert dict(after[0][2].counts) == {"enqueued": 2, "claimed": 2, "succeeded": 2}
    assert dict(after[0][2].total.counts) == {2: 4, 50: 2}
    assert await roll_up(storage) == 0


async def test_a_minute_is_closed_when_it_is_over_and_not_before(
    storage: Storage, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    clock.advance(MINUTE - MICROSECOND)
    assert await storage.jobs.roll_up(100) == 0
    clock.advance(MICROSECOND)
    assert await storage.jobs.roll_up(100) > 0


async def test_a_roll_up_is_bounded_and_begins_with_the_oldest(
    storage: Storage, clock: ManualClock
) -> None:
    start = await busy_minutes(storage, clock, 3)
    before = await buckets(storage, start)
    folded = []
    while count := await storage.jobs.roll_up(3):
        folded.append(count)
        assert await buckets(storage, start) == before
        assert len(folded) < 1_000
    assert max(folded) == 3
    assert set(folded[:-1]) == {3}


async def test_what_arrives_after_the_roll_up_of_its_minute_is_added(
    storage: Storage, clock: ManualClock
) -> None:
    start = await busy_minutes(storage, clock, 1)
    await roll_up(storage)
    await add(storage, new_host_id(), sample(start, {0: 5}))
    [bucket] = await buckets(storage, start)
    assert dict(bucket.processing.counts) == {0: 7}
    assert await roll_up(storage) == 1
    assert await buckets(storage, start) == [bucket]


async def test_concurrent_roll_ups_change_no_sum(storage: Storage, clock: ManualClock) -> None:
    start = await busy_minutes(storage, clock, 2)
    before = await buckets(storage, start)
    await asyncio.gather(*(storage.jobs.roll_up(4) for _ in range(8)))
    assert await buckets(storage, start) == before


async def test_deleting_jobs_rewrites_no_history(storage: Storage, clock: ManualClock) -> None:
    start = await busy_minutes(storage, clock, 1)
    before = await buckets(storage, start)
    await storage.jobs.delete(JobFilter())
    assert await buckets(storage, start) == before


# -- history -----------------------------------------------------------------------------------


async def test_events_and_minutes_are_dropped_after_thirty_days(
    storage: Storage, clock: ManualClock
) -> None:
    start = clock.now()
    lease = await register(storage)
    await enqueue_one(storage, delay=90 * DAY)
    await add(storage, lease.host_id, sample(start, {1: 1}))
    await storage.procs.record_gauges(lease, start, PodGauges())
    clock.advance(30 * DAY - MICROSECOND)
    assert await clean_up(storage) == 0
    assert len(await buckets(storage, start)) == 1
    clock.advance(MICROSECOND)
    assert await clean_up(storage) > 0
    assert await buckets(storage, start) == []
    assert await storage.procs.gauges(start, start + DAY) == []
    assert len((await storage.jobs.list(JobFilter())).jobs) == 1


@pytest.mark.parametrize(
    ("given", "kept"),
    [({}, 7 * DAY), ({"kept": Kept(events=DAY)}, DAY), ({"kept": Kept(events=0 * DAY)}, 0 * DAY)],
)
async def test_events_go_at_an_age_of_their_own(
    storage: Storage, clock: ManualClock, given: dict[str, Kept], kept: timedelta
) -> None:
    start = clock.now()
    await storage.jobs.append_events([event(start, "old"), event(start + MICROSECOND, "newer")])
    if kept:
        clock.advance(kept - MICROSECOND)
        assert (await storage.jobs.cleanup(100, **given)).removed == 0
        clock.advance(MICROSECOND)
    assert (await storage.jobs.cleanup(100, **given)).removed == 1
    assert details(await storage.jobs.events()) == ["newer"]


async def test_rolled_up_minutes_are_dropped_too(storage: Storage, clock: ManualClock) -> None:
    start = await busy_minutes(storage, clock, 2)
    await roll_up(storage)
    clock.advance(30 * DAY - MINUTE)
    await clean_up(storage)
    assert [bucket.minute for bucket in await buckets(storage, start)] == []


async def test_dropping_history_is_bounded_and_begins_with_the_oldest(
    storage: Storage, clock: ManualClock
) -> None:
    start = clock.now()
    await storage.jobs.append_events([event(start + n * SECOND, str(n)) for n in range(5)])
    clock.advance(31 * DAY)
    assert (await storage.jobs.cleanup(2)).removed == 2
    assert details(await storage.jobs.events()) == ["4", "3", "2"]
    assert await clean_up(storage) == 3
