"""Series of kinds, queues and the whole store: flow, durations and depth, by minute and by hour."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput
from forge_jobs.model.metrics import HOUR, MINUTE, Histogram
from forge_jobs.model.retention import Kept
from forge_jobs.model.series import (
    MOST_KINDS,
    OTHER_KINDS,
    Depth,
    FlowSample,
    SeriesAsk,
    SeriesStep,
)
from forge_jobs.storage.protocols import Storage
from tests.support.factories import DAY, QUEUE, cleaned_up, done, enqueue_one, register, run_one

pytestmark = pytest.mark.anyio


def a_flow(at: datetime, kind: str = "gh.fetch", **overrides: Any) -> FlowSample:
    given: dict[str, Any] = {
        "queue": QUEUE,
        "counts": {"succeeded": 2, "failed": 1},
        "delay": Histogram({0: 2, 120: 1}),
        "processing": Histogram({50: 3}),
        "total": Histogram({60: 2, 130: 1}),
    }
    return FlowSample(kind=kind, minute=at.replace(second=0, microsecond=0), **given | overrides)


async def steps(
    storage: Storage, clock: ManualClock, ago: timedelta = HOUR, **asked: Any
) -> list[SeriesStep]:
    now = clock.now()
    return await storage.jobs.series(now - ago, now + MINUTE, **asked)


def at_the_hour(clock: ManualClock) -> datetime:
    """Go to the begin of a day."""
    start = clock.now().replace(hour=0, minute=0, second=0, microsecond=0) + DAY
    clock.advance(start - clock.now())
    return start


async def roll_up(storage: Storage) -> None:
    while await storage.jobs.roll_up(100):
        pass


async def test_a_flow_is_in_the_series_of_its_kind_its_queue_and_the_store(
    storage: Storage, clock: ManualClock
) -> None:
    sample = a_flow(clock.now(), queue="a'b {}", kind="kind %s")
    assert await storage.jobs.add_flows([sample]) == []
    assert await storage.jobs.add_flows([]) == []
    of_kind = SeriesStep(
        at=sample.minute,
        length=MINUTE,
        counts=sample.counts,
        delay=sample.delay,
        processing=sample.processing,
        total=sample.total,
    )
    assert await steps(storage, clock, queue="a'b {}", kind="kind %s") == [of_kind]
    # Counts of queues are exact, and come from the roll-up.
    of_all = SeriesStep(
        at=sample.minute,
        length=MINUTE,
        delay=sample.delay,
        processing=sample.processing,
        total=sample.total,
    )
    assert await steps(storage, clock, queue="a'b {}") == [of_all]
    assert await steps(storage, clock) == [of_all]
    assert await steps(storage, clock, queue="other") == []
    assert await steps(storage, clock, queue="a'b {}", kind="other") == []


async def test_what_pods_add_is_summed(storage: Storage, clock: ManualClock) -> None:
    now = clock.now()
    await asyncio.gather(
        *(
            storage.jobs.add_flows([a_flow(now), a_flow(now, "gh.push"), a_flow(now, queue="b")])
            for _ in range(10)
        )
    )
    [kind] = await steps(storage, clock, queue=QUEUE, kind="gh.push")
    assert (dict(kind.counts), dict(kind.delay.counts)) == (
        {"succeeded": 20, "failed": 10},
        {0: 20, 120: 10},
    )
    [queue] = await steps(storage, clock, queue=QUEUE)
    assert dict(queue.processing.counts) == {50: 60}
    [whole] = await steps(storage, clock)
    assert dict(whole.total.counts) == {60: 60, 130: 30}


async def test_counts_of_queues_and_the_store_are_the_exact_ones(
    storage: Storage, clock: ManualClock
) -> None:
    start = at_the_hour(clock)
    for queue in (QUEUE, QUEUE, "b"):
        await enqueue_one(storage, queue=queue)
        await run_one(storage, await register(storage, queues=(queue,)), done(), queue=queue)
    clock.advance(MINUTE)
    await enqueue_one(storage)
    clock.advance(2 * MINUTE)
    await roll_up(storage)
    await roll_up(storage)
    first, second = await steps(storage, clock, queue=QUEUE)
    assert (first.at, second.at) == (start, start + MINUTE)
    assert dict(first.counts) == {"enqueued": 2, "claimed": 2, "succeeded": 2}
    assert dict(second.counts) == {"enqueued": 1}
    [whole] = await steps(storage, clock, step=HOUR)
    assert (whole.at, whole.length) == (start, HOUR)
    assert dict(whole.counts) == {"enqueued": 4, "claimed": 3, "succeeded": 3}


async def test_depths_are_of_the_stores_minute_and_the_greatest_counts(
    storage: Storage, clock: ManualClock
) -> None:
    start = at_the_hour(clock)
    await enqueue_one(storage)
    await enqueue_one(storage, queue="b")
    deep = Depth(due=7, oldest_due_for=timedelta(seconds=9), granted=2, running=1, max_workers=4)
    await storage.jobs.record_depths({QUEUE: deep, "b": Depth(due=1, max_workers=3)})
    shallow = Depth(due=2, granted=3, max_workers=4)
    clock.advance(MINUTE / 2)
    await storage.jobs.record_depths({QUEUE: shallow, "b": Depth()})
    clock.advance(MINUTE)
    await storage.jobs.record_depths({QUEUE: shallow})
    first, second = await steps(storage, clock, queue=QUEUE)
    assert (first.at, second.at) == (start, start + MINUTE)
    assert first.depth == Depth(
        due=7, oldest_due_for=timedelta(seconds=9), granted=3, running=1, max_workers=4
    )
    assert second.depth == shallow
    [hour] = await steps(storage, clock, step=HOUR)
    assert hour.depth == Depth(
        due=8, oldest_due_for=timedelta(seconds=9), granted=3, running=1, max_workers=7
    )


async def test_steps_are_whole_multiples_of_their_length(
    storage: Storage, clock: ManualClock
) -> None:
    start = at_the_hour(clock)
    for minute in (0, 4, 5, 61, 125):
        await storage.jobs.add_flows([a_flow(start + minute * MINUTE)])
    asked = (start, start + 2 * HOUR)
    found = await storage.jobs.series(*asked, step=5 * MINUTE, queue=QUEUE, kind="gh.fetch")
    assert [(each.at, each.counts["succeeded"]) for each in found] == [
        (start, 4),
        (start + 5 * MINUTE, 2),
        (start + HOUR, 2),
    ]
    assert {each.length for each in found} == {5 * MINUTE}
    found = await storage.jobs.series(*asked, step=2 * HOUR)
    assert [(each.at, sum(each.total.counts.values())) for each in found] == [(start, 12)]


async def test_minutes_go_before_their_hours(storage: Storage, clock: ManualClock) -> None:
    start = at_the_hour(clock)
    await storage.jobs.add_flows([a_flow(start), a_flow(start + MINUTE)])
    clock.advance(2 * DAY)
    await storage.jobs.add_flows([a_flow(clock.now())])
    before = await steps(storage, clock, ago=3 * DAY, step=HOUR, queue=QUEUE, kind="gh.fetch")
    kept = Kept(minutes=DAY, hours=30 * DAY, series=30 * DAY)
    assert await cleaned_up(storage, kept=kept)
    asked: dict[str, Any] = {"queue": QUEUE, "kind": "gh.fetch", "ago": 3 * DAY}
    assert await steps(storage, clock, step=HOUR, **asked) == before
    old, new = await steps(storage, clock, step=5 * MINUTE, **asked)
    assert (old.at, old.length, old.counts["succeeded"]) == (start, HOUR, 4)
    assert (new.length, new.counts["succeeded"]) == (5 * MINUTE, 2)
    clock.advance(29 * DAY)
    assert await cleaned_up(storage, kept=kept)
    [left] = await steps(storage, clock, ago=40 * DAY, step=HOUR)
    assert left.at == start + 2 * DAY


async def test_beyond_the_most_kinds_of_an_hour_the_rest_is_one(
    storage: Storage, clock: ManualClock
) -> None:
    now = clock.now()
    kinds = [f"kind {number:03}" for number in range(MOST_KINDS)]
    await storage.jobs.add_flows([a_flow(now, kind) for kind in kinds])
    await storage.jobs.add_flows([a_flow(now, "more"), a_flow(now, kinds[3])])
    await storage.jobs.add_flows([a_flow(now, "still more"), a_flow(now, "more", queue="b")])
    asked: dict[str, Any] = {"queue": QUEUE}
    [other] = await steps(storage, clock, kind=OTHER_KINDS, **asked)
    assert other.counts["succeeded"] == 4
    [known] = await steps(storage, clock, kind=kinds[3], **asked)
    assert known.counts["succeeded"] == 4
    assert await steps(storage, clock, kind="more", **asked) == []
    assert await steps(storage, clock, kind="more", queue="b")
    [queue] = await steps(storage, clock, **asked)
    assert queue.processing.counts[50] == 3 * (MOST_KINDS + 3)


async def test_thirty_days_of_the_store_are_one_call(storage: Storage, clock: ManualClock) -> None:
    start = at_the_hour(clock)
    hours = range(0, 30 * 24, 7)
    await storage.jobs.add_flows([a_flow(start + hour * HOUR) for hour in hours])
    found = await storage.jobs.series(start, start + 30 * DAY, step=HOUR)
    assert [each.at for each in found] == [start + hour * HOUR for hour in hours]


@pytest.mark.parametrize(
    "asked", [{"step": timedelta(seconds=1)}, {"ago": 3 * DAY}, {"step": timedelta(minutes=2.5)}]
)
async def test_a_bad_question_is_refused(
    storage: Storage, clock: ManualClock, asked: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await steps(storage, clock, **asked)
    assert refused.value.field == "step"


async def test_many_series_are_those_that_are_read_one_by_one(
    storage: Storage, clock: ManualClock
) -> None:
    start = at_the_hour(clock)
    for minute in range(0, 130, 10):
        at = start + minute * MINUTE
        flows = [a_flow(at, kind, queue=queue) for queue in ("a", "b") for kind in ("x", "y")]
        assert await storage.jobs.add_flows(flows) == []
    clock.advance(2 * HOUR)
    await storage.jobs.record_depths({"a": Depth(due=3), "b": Depth(due=4)})
    now = clock.now()
    asked = [
        SeriesAsk(since=start + ago, until=now + MINUTE, step=step, queue=queue, kind=kind)
        for ago in (timedelta(0), HOUR)
        for step in (MINUTE, 5 * MINUTE, HOUR)
        for queue, kind in (("", ""), ("b", ""), ("a", "x"), ("a", ""), ("b", "y"), ("no", "z"))
    ]
    assert await storage.jobs.many_series([]) == []
    one_by_one = [
        await storage.jobs.series(
            each.since, each.until, step=each.step, queue=each.queue, kind=each.kind
        )
        for each in asked
    ]
    assert await storage.jobs.many_series(asked) == one_by_one
    assert sum(map(bool, one_by_one)) == 30
    with pytest.raises(InvalidInput, match="step"):
        await storage.jobs.many_series([SeriesAsk(since=start, until=now, step=timedelta(0))])


async def test_many_series_of_more_minutes_than_one_step_reads(
    storage: Storage, clock: ManualClock
) -> None:
    start = at_the_hour(clock)
    flows = [
        a_flow(start + minute * MINUTE, queue=queue)
        for minute in range(401)
        for queue in ("a", "b")
    ]
    for first in range(0, len(flows), 100):
        assert await storage.jobs.add_flows(flows[first : first + 100]) == []
    ask = SeriesAsk(since=start, until=start + 8 * HOUR, queue="a")
    found = await storage.jobs.many_series([ask, structs.replace(ask, queue="b")])
    assert [len(each) for each in found] == [401, 401]
