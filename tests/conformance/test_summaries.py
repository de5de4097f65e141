"""The sums of several queues over a span of time, in one call."""

from collections import Counter
from datetime import datetime, timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import HostId
from forge_jobs.model.metrics import HOUR, MINUTE, Histogram, LatencySample, MetricBucket
from forge_jobs.model.queues import QueueSettings
from forge_jobs.model.retention import Kept
from forge_jobs.storage.protocols import Storage
from tests.support.factories import cleaned_up, done, enqueue_one, register, run_one

pytestmark = pytest.mark.anyio

QUEUES = ("a", "b", "idle")
SPAN = 6 * HOUR


async def busy(storage: Storage, clock: ManualClock, minutes: int) -> None:
    for number in range(minutes):
        for queue in ("a", "b", "other"):
            lease = await register(storage, queues=(queue,))
            await enqueue_one(storage, queue=queue)
            await run_one(storage, lease, done(), queue=queue)
            histogram = Histogram({number % 3: 1, 50: 2})
            sample = LatencySample(
                queue=queue, minute=clock.now(), processing=histogram, total=Histogram({9: 3})
            )
            assert await storage.jobs.add_latencies(lease.host_id, [sample]) == []
        clock.advance(MINUTE)


async def summed(storage: Storage, clock: ManualClock) -> dict[str, MetricBucket]:
    """Return what ``metrics`` answers, added up here."""
    since, until = clock.now() - SPAN, clock.now()
    found = {}
    for queue in QUEUES:
        counts, processing, total = Counter[str](), Counter[int](), Counter[int]()
        for each in await storage.jobs.metrics(queue, since, until):
            counts.update(each.counts)
            processing.update(each.processing.counts)
            total.update(each.total.counts)
        if counts:
            found[queue] = MetricBucket(
                queue=queue,
                minute=since,
                counts=dict(counts),
                processing=Histogram(dict(processing)),
                total=Histogram(dict(total)),
                length=SPAN,
            )
    return found


async def check(storage: Storage, clock: ManualClock, ended: int) -> None:
    since, until = clock.now() - SPAN, clock.now()
    found = await storage.jobs.summaries(QUEUES, since, until)
    assert found == await summed(storage, clock)
    assert sorted(found) == ["a", "b"]
    assert [each.counts["succeeded"] for each in found.values()] == [ended, ended]
    assert found["a"].processing.counts[50] == 2 * ended


async def test_sums_are_those_of_the_minutes_before_and_after_each_fold(
    storage: Storage, clock: ManualClock
) -> None:
    await busy(storage, clock, 4)
    await check(storage, clock, 4)
    clock.advance(2 * MINUTE)
    while await storage.jobs.roll_up(100):
        pass
    await busy(storage, clock, 2)
    await check(storage, clock, 6)
    clock.advance(3 * HOUR)
    await cleaned_up(storage, kept=Kept(minutes=HOUR))
    await busy(storage, clock, 1)
    lengths = {each.length for each in await storage.jobs.metrics("a", *_day(clock))}
    assert lengths == {HOUR, MINUTE}
    await check(storage, clock, 7)


def _day(clock: ManualClock) -> tuple[datetime, datetime]:
    return clock.now() - SPAN, clock.now()


async def test_only_what_began_in_the_span_counts(storage: Storage, clock: ManualClock) -> None:
    start = clock.now().replace(second=0, microsecond=0) + MINUTE
    clock.advance(start - clock.now())
    await busy(storage, clock, 3)
    middle = await storage.jobs.summaries(["a"], start + MINUTE, start + 2 * MINUTE)
    assert middle["a"].counts["succeeded"] == 1
    assert middle["a"].processing == Histogram({1: 1, 50: 2})
    assert (middle["a"].minute, middle["a"].length) == (start + MINUTE, MINUTE)
    assert await storage.jobs.summaries([], start, clock.now()) == {}
    assert await storage.jobs.summaries(["idle"], start, clock.now()) == {}


async def test_a_span_of_more_minutes_than_a_step_reads(
    storage: Storage, clock: ManualClock
) -> None:
    start = clock.now().replace(second=0, microsecond=0)
    await storage.config.ensure_queue("a", QueueSettings())
    samples = [
        LatencySample(
            queue="a",
            minute=start - number * MINUTE,
            processing=Histogram({number % 100: 1}),
            total=Histogram({0: 1}),
        )
        for number in range(450)
    ]
    for first in range(0, len(samples), 50):
        await storage.jobs.add_latencies(HostId("pod"), samples[first : first + 50])
    found = await storage.jobs.summaries(["a"], start - timedelta(days=1), start + MINUTE)
    assert found["a"].total == Histogram({0: 450})
    assert sum(found["a"].processing.counts.values()) == 450
