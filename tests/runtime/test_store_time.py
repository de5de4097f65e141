"""Pods measure and report by the store's time, whatever their own clocks say."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs import Dead, HandlerRegistry, JobClient
from forge_jobs.clock import ManualClock, StoreTime, from_us
from forge_jobs.model.events import EventKind
from forge_jobs.policy.percentiles import percentile
from forge_jobs.runtime.passes.gauges import PodMeter, gauges_once
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, pass_on
from tests.support.clocks import WrongClock
from tests.support.factories import register
from tests.support.runtimes import QUEUE, a_runtime, ended

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


class TestStoreTime:
    def test_it_shows_the_stores_time_between_readings(self) -> None:
        mine, stores = ManualClock(), ManualClock()
        stores.step_wall(HOUR)
        shown = StoreTime(mine)
        shown.learn(stores.now(), mine.elapsed(), mine.elapsed())
        for clock in (mine, stores):
            clock.advance(90)
        mine.step_wall(-7 * HOUR)
        assert from_us(shown.time_us()) == stores.now()

    def test_before_the_first_reading_it_shows_its_own_time(self) -> None:
        mine = ManualClock()
        assert from_us(StoreTime(mine).time_us()) == mine.now()

    def test_a_slow_answer_spoils_nothing(self) -> None:
        mine, stores = ManualClock(), ManualClock()
        shown = StoreTime(mine)
        shown.learn(stores.now(), mine.elapsed(), mine.elapsed())
        asked_at = mine.elapsed()
        read = stores.now()
        for clock in (mine, stores):
            clock.advance(20)
        shown.learn(read, asked_at, mine.elapsed())
        assert from_us(shown.time_us()) == stores.now()

    @pytest.mark.parametrize("step", [HOUR, -HOUR])
    def test_it_follows_a_step(self, step: timedelta) -> None:
        mine, stores = ManualClock(), ManualClock()
        shown = StoreTime(mine)
        for _ in range(2):
            shown.learn(stores.now(), mine.elapsed(), mine.elapsed())
            assert from_us(shown.time_us()) == stores.now()
            stores.step_wall(step)


@pytest.fixture(params=sorted(BACKENDS))
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Storage]:
    """A fresh store whose clock is an hour behind that of the pods."""
    async with BACKENDS[request.param](tmp_path, WrongClock(-HOUR)) as opened:
        yield opened
    await pass_on(request.param, tmp_path)


@pytest.mark.anyio
async def test_a_pod_an_hour_ahead_tells_and_measures_by_the_stores_time(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("work")
    async def work() -> None: ...

    @handlers.job("fail")
    async def fail() -> None:
        raise Dead("order 42")

    async with JobClient(storage, handlers) as client:
        job_id = (await client.enqueue(work.request())).job_id
        dead_id = (await client.enqueue(fail.request())).job_id
        began = await storage.cron.now()
        async with a_runtime(storage, handlers).start():
            await ended(storage, job_id)
            await ended(storage, dead_id)
    over = await storage.cron.now()

    events = await storage.jobs.events()
    assert {EventKind.POD_STARTED, EventKind.STARTED, EventKind.FINISHED} <= {
        event.kind for event in events
    }
    slack = timedelta(seconds=1)
    for event in events:
        assert began - slack <= event.at <= over + slack, event
    measured = [
        bucket
        for bucket in await storage.jobs.metrics(QUEUE, began - 3 * HOUR, over + 3 * HOUR)
        if bucket.total.counts
    ]
    [bucket] = measured
    assert began - MINUTE <= bucket.minute <= over
    [group] = (await storage.jobs.error_groups(began - 3 * HOUR, over + 3 * HOUR)).groups
    assert (group.dead, group.message, group.jobs) == (1, "order …", (dead_id,))
    assert began - slack <= group.first_at <= group.last_at <= over + slack
    for kind, ended_as in (("work", "succeeded"), ("fail", "rejected")):
        [step] = await storage.jobs.series(
            began - 3 * HOUR, over + 3 * HOUR, queue=QUEUE, kind=kind
        )
        assert dict(step.counts) == {ended_as: 1}
        assert began - MINUTE <= step.at <= over
        longest = percentile(step.delay, 1)
        assert longest is not None
        assert longest < MINUTE.total_seconds()
    [counted] = group.counts
    assert began - MINUTE <= counted.at <= over
    longest = percentile(bucket.total, 1)
    assert longest is not None
    assert longest < MINUTE.total_seconds()


@pytest.mark.anyio
async def test_gauges_say_that_the_clock_of_the_pod_is_an_hour_ahead(storage: Storage) -> None:
    lease = await register(storage)
    measured = await gauges_once(storage, lease, PodMeter(), running=0)
    assert measured.clock_skew_ms == pytest.approx(HOUR.total_seconds() * 1000, abs=60_000)
