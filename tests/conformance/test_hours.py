"""Minutes that are past their time become hours: sums of queues, last measurements of pods."""

from collections import Counter
from datetime import datetime, timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import HostId
from forge_jobs.model.metrics import HOUR, MINUTE, Histogram, LatencySample, MetricBucket, PodMinute
from forge_jobs.model.processes import PodGauges, PodLease
from forge_jobs.model.retention import Kept
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    MICROSECOND,
    QUEUE,
    cleaned_up,
    done,
    enqueue_one,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio

KEPT = Kept(minutes=2 * HOUR, hours=3 * DAY)


def gauges(running: int) -> PodGauges:
    return PodGauges(running=running)


def to_the_hour(clock: ManualClock) -> datetime:
    """Go to the begin of an hour."""
    now = clock.now()
    start = now.replace(minute=0, second=0, microsecond=0) + HOUR
    clock.advance(start - now)
    return start


async def measured(storage: Storage, host_id: HostId, minute: datetime, *buckets: int) -> None:
    histogram = Histogram(dict(Counter(buckets)))
    sample = LatencySample(queue=QUEUE, minute=minute, processing=histogram, total=histogram)
    await storage.jobs.add_latencies(host_id, [sample])


async def busy_hours(storage: Storage, clock: ManualClock, count: int) -> datetime:
    """Record work of two pods in three minutes of each hour. Return the first minute."""
    start = to_the_hour(clock)
    leases = [await register(storage), await register(storage)]
    for hour in range(count):
        for minute in (0, 17, 59):
            clock.advance(start + hour * HOUR + minute * MINUTE - clock.now())
            for number, lease in enumerate(leases):
                await enqueue_one(storage)
                again = await register(storage, host_id=lease.host_id)
                await run_one(storage, again, done())
                await measured(storage, lease.host_id, clock.now(), hour, 100 + minute)
                await storage.procs.record_gauges(again, clock.now(), gauges(minute + number))
    clock.advance(start + count * HOUR - clock.now())
    return start


async def read(storage: Storage, start: datetime) -> list[MetricBucket]:
    return await storage.jobs.metrics(QUEUE, start, start + DAY)


def sums(buckets: list[MetricBucket]) -> tuple[Counter[str], Counter[int], Counter[int]]:
    counts, processing, total = Counter[str](), Counter[int](), Counter[int]()
    for each in buckets:
        counts.update(each.counts)
        processing.update(each.processing.counts)
        total.update(each.total.counts)
    return counts, processing, total


def spans(found: list[MetricBucket] | list[PodMinute], start: datetime) -> list[tuple[int, int]]:
    """Begins after ``start`` and lengths, in minutes."""
    return [((each.minute - start) // MINUTE, each.length // MINUTE) for each in found]


async def test_an_hour_takes_the_place_of_its_minutes_when_all_of_it_is_past(
    storage: Storage, clock: ManualClock
) -> None:
    start = await busy_hours(storage, clock, 2)
    before = await read(storage, start)
    assert [length for _, length in spans(before, start)] == [1] * 6
    clock.advance(start + 3 * HOUR - MICROSECOND - clock.now())
    await cleaned_up(storage, kept=KEPT)
    assert await read(storage, start) == before
    clock.advance(MICROSECOND)
    await cleaned_up(storage, kept=KEPT)
    found = await read(storage, start)
    assert spans(found, start) == [(0, 60), (60, 1), (77, 1), (119, 1)]
    assert found[0].counts["succeeded"] == 6
    assert found[0].processing == Histogram({0: 6, 100: 2, 117: 2, 159: 2})
    assert found[1:] == before[3:]
    assert sums(found) == sums(before)


@pytest.mark.parametrize("is_rolled_up", [True, False])
@pytest.mark.parametrize("batch", [1, 7, 1_000])
async def test_sums_stay_whatever_was_rolled_up_and_however_small_the_batches(
    storage: Storage, clock: ManualClock, batch: int, is_rolled_up: bool
) -> None:
    start = await busy_hours(storage, clock, 2)
    clock.advance(4 * HOUR)
    before = sums(await read(storage, start))
    if is_rolled_up:
        while await storage.jobs.roll_up(100):
            pass
    await cleaned_up(storage, batch, KEPT)
    found = await read(storage, start)
    assert spans(found, start) == [(0, 60), (60, 60)]
    assert sums(found) == before


async def test_a_minute_that_comes_late_is_added_to_its_hour(
    storage: Storage, clock: ManualClock
) -> None:
    start = await busy_hours(storage, clock, 1)
    clock.advance(4 * HOUR)
    await cleaned_up(storage, kept=KEPT)
    lease = await register(storage)
    for minute in (0, 30):
        await measured(storage, lease.host_id, start + minute * MINUTE, 7)
    counts, processing, _ = sums(await read(storage, start))
    assert (counts["succeeded"], processing[0], processing[7]) == (6, 6, 2)
    await cleaned_up(storage, kept=KEPT)
    [hour] = await read(storage, start)
    assert (hour.minute, hour.length, hour.counts["succeeded"]) == (start, HOUR, 6)
    assert hour.processing.counts[7] == 2


@pytest.mark.parametrize("batch", [1, 1_000])
async def test_of_a_pods_hour_the_last_measurement_stays(
    storage: Storage, clock: ManualClock, batch: int
) -> None:
    start = await busy_hours(storage, clock, 2)
    clock.advance(start + 3 * HOUR - clock.now())
    before = await storage.procs.gauges(start, start + DAY)
    await cleaned_up(storage, batch, KEPT)
    found = await storage.procs.gauges(start, start + DAY)
    assert spans(found, start)[:3] == [(0, 60), (0, 60), (60, 1)]
    assert {each.gauges.running for each in found[:2]} == {59, 60}
    assert {each.host_id for each in found[:2]} == {each.host_id for each in before}
    assert found[2:] == before[6:]


async def test_a_range_is_half_open_for_hours_too(storage: Storage, clock: ManualClock) -> None:
    start = await busy_hours(storage, clock, 3)
    clock.advance(5 * HOUR)
    await cleaned_up(storage, kept=KEPT)
    found = await storage.jobs.metrics(QUEUE, start + HOUR, start + 2 * HOUR)
    assert spans(found, start) == [(60, 60)]
    of_pods = await storage.procs.gauges(start + HOUR, start + 2 * HOUR)
    assert spans(of_pods, start) == [(60, 60)] * 2


async def test_hours_go_in_their_turn(storage: Storage, clock: ManualClock) -> None:
    start = await busy_hours(storage, clock, 2)
    clock.advance(4 * HOUR)
    await cleaned_up(storage, kept=KEPT)
    clock.advance(start + 3 * DAY - MICROSECOND - clock.now())
    assert await cleaned_up(storage, kept=KEPT) == 0
    clock.advance(MICROSECOND)
    await cleaned_up(storage, kept=KEPT)
    assert spans(await read(storage, start), start) == [(60, 60)]
    assert spans(await storage.procs.gauges(start, start + DAY), start) == [(60, 60)] * 2


async def test_minutes_that_are_older_than_hours_may_be_go_at_once(
    storage: Storage, clock: ManualClock
) -> None:
    start = await busy_hours(storage, clock, 1)
    clock.advance(4 * DAY)
    await cleaned_up(storage, kept=KEPT)
    assert await read(storage, start) == []
    assert await storage.procs.gauges(start, start + DAY) == []


async def test_hours_are_of_their_queue(storage: Storage, clock: ManualClock) -> None:
    start = to_the_hour(clock)
    lease: PodLease = await register(storage, queues=(QUEUE, "b"))
    for queue in (QUEUE, "b", "b"):
        await enqueue_one(storage, queue=queue)
        await run_one(storage, lease, done(), queue=queue)
    clock.advance(timedelta(hours=4))
    await cleaned_up(storage, kept=KEPT)
    for queue, count in ((QUEUE, 1), ("b", 2)):
        [hour] = await storage.jobs.metrics(queue, start, start + DAY)
        assert (hour.queue, hour.length, hour.counts["succeeded"]) == (queue, HOUR, count)


async def test_without_a_setting_minutes_stay_as_long_as_suits_the_store(
    storage: Storage, clock: ManualClock
) -> None:
    start = await busy_hours(storage, clock, 1)
    clock.advance(start + DAY + 2 * HOUR - clock.now())
    await cleaned_up(storage)
    lengths = {length for _, length in spans(await read(storage, start), start)}
    # Redis keeps history in memory.
    assert lengths == ({60} if "redis" in str(storage) else {1})
    clock.advance(30 * DAY)
    await cleaned_up(storage)
    assert await read(storage, start) == []
