"""Tokens of rate limits that pods took and were refused in the last minute, as pods tell them."""

from datetime import timedelta

import anyio
import pytest
from msgspec import structs

from forge_jobs import HandlerRegistry, JobContext, Rate, RateLimit
from forge_jobs.cli.options import as_operator
from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.processes import MOST_RATES, PodGauges, PodLease, RateGauge
from forge_jobs.model.queues import RateAsk
from forge_jobs.runtime.shared.rates import meter
from forge_jobs.runtime.shared.rates.limiter import RateLimiter
from forge_jobs.runtime.shared.rates.meter import RateMeter
from forge_jobs.storage.protocols import Storage
from tests.support.factories import register
from tests.support.fleets import HOUR
from tests.support.runtimes import a_runtime, ended, quick_settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

Counted = dict[str, tuple[int | None, int | None]]


async def counted(storage: Storage) -> Counted:
    """Return what was taken and refused, by limit, as operators see that."""
    found = (await as_operator(storage).list_limits()).rate_limits
    return {each.scope: (each.taken_a_minute, each.refused_a_minute) for each in found}


async def test_pods_tell_what_their_jobs_and_callers_took_and_were_refused(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is, nothing is a minute old when the test looks.
    monkeypatch.setattr(meter, "_SECONDS", 3600)
    handlers = HandlerRegistry()

    @handlers.job("dropped", rate=Rate(2, per=HOUR, mode="drop"))
    async def dropped(number: int) -> None: ...

    @handlers.job("keyed", rate=Rate(2, per=HOUR, key="{customer}"))
    async def keyed(customer: str) -> None: ...

    @handlers.job("asks")
    async def asks(ctx: JobContext) -> bool:
        return await ctx.rate_limit.acquire("smtp", 2)

    settings = structs.replace(quick_settings(), rollup_interval=timedelta(milliseconds=50))
    limits = {"smtp": RateLimit(10, HOUR), "idle": RateLimit(1, HOUR)}
    one = a_runtime(storage, handlers, settings=settings, rate_limits=limits)
    two = a_runtime(storage, HandlerRegistry(), settings=settings).with_queues(other=1)
    async with one.start() as first, two.start() as second:
        requests = [dropped.request(number) for number in range(5)]
        requests += [keyed.request(customer) for customer in "aaabbc"]
        outcomes = await first.enqueue_many([*requests, asks.request()])
        for outcome in (*outcomes[:5], outcomes[-1]):
            await ended(storage, outcome.job_id)
        assert await first.rate_limit.acquire("smtp", 3)
        assert not await second.rate_limit.acquire("smtp", 6)
        assert await second.rate_limit.acquire("smtp", 5)
        expected = {"dropped": (2, 3), "keyed": (5, 1), "smtp": (10, 6), "idle": (0, 0)}

        async def is_told() -> bool:
            return await counted(storage) == expected

        await wait_until(is_told, description="both pods have told of all tokens")


async def tell(storage: Storage, lease: PodLease, *told: RateGauge) -> None:
    """Store the gauges of a pod."""
    now = await storage.cron.now()
    minute = now.replace(second=0, microsecond=0)
    await storage.procs.record_gauges(lease, minute, PodGauges(rates=told))


async def test_a_pod_that_is_gone_counts_no_more_and_what_was_cut_is_not_known(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    for scope in ("api", "smtp"):
        await manual_storage.config.ensure_rate_limit(scope, RateLimit(1, HOUR))
    short = await register(manual_storage, lease_for=timedelta(minutes=1))
    long = await register(manual_storage, lease_for=HOUR)
    await tell(manual_storage, short, RateGauge("api", 5, 7))
    await tell(manual_storage, long, RateGauge("api", 1, 2), RateGauge("gone", 1, 1))
    assert await counted(manual_storage) == {"api": (6, 9), "smtp": (0, 0)}
    manual_clock.advance(61)
    assert await counted(manual_storage) == {"api": (1, 2), "smtp": (0, 0)}
    others = [RateGauge(f"limit {n}", 9, 9) for n in range(MOST_RATES - 1)]
    await tell(manual_storage, long, RateGauge("api", 30, 0), *others)
    assert await counted(manual_storage) == {"api": (30, 0), "smtp": (None, None)}


async def test_each_answer_is_counted_once(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    told: list[tuple[RateGauge, ...]] = []

    async def pause(length: timedelta) -> None:
        told.append(limiter.meter.last_minute())
        manual_clock.advance(length)
        await anyio.lowlevel.checkpoint()

    await manual_storage.config.ensure_rate_limit("api", RateLimit(4, HOUR))
    limiter = RateLimiter(manual_storage.config, clock=manual_clock, pause=pause)
    assert limiter.meter.last_minute() == ()
    assert await limiter.acquire("api", 4)
    # The token comes in 15 minutes, and is reserved now.
    assert await limiter.acquire("api", wait=HOUR)
    assert told == [(RateGauge("api", 5, 0),)]
    assert limiter.meter.last_minute() == ()
    # Asked for again and again, and refused at the end.
    assert not await limiter.acquire("api", 4, wait=timedelta(minutes=20))
    with pytest.raises(InvalidInput):
        await limiter.acquire("api", 5)
    with pytest.raises(NotFound):
        await limiter.acquire("other")
    await limiter.turn("api", 2)
    assert not (await limiter.start(RateAsk("api"), lambda: RateLimit(4, HOUR))).granted
    assert (await limiter.start(RateAsk("new"), lambda: RateLimit(1, HOUR))).granted
    assert limiter.meter.last_minute() == (RateGauge("api", 0, 5), RateGauge("new", 1, 0))


def test_a_minute_is_sixty_seconds_and_what_is_older_is_forgotten(
    manual_clock: ManualClock,
) -> None:
    meter = RateMeter(manual_clock)
    for second in range(200):
        meter.count("api", 1, granted=second % 2 == 0)
        manual_clock.advance(1)
    assert meter.last_minute() == (RateGauge("api", 29, 30),)
    assert len(meter._limits["api"].seconds) == 59
    manual_clock.advance(58)
    assert meter.last_minute() == (RateGauge("api", 0, 1),)
    manual_clock.advance(1)
    assert meter.last_minute() == ()
    assert meter._limits == {}


def test_a_pod_tells_of_the_limits_with_most_tokens(manual_clock: ManualClock) -> None:
    meter = RateMeter(manual_clock)
    for number in range(MOST_RATES + 10):
        meter.count(f"limit {number:02}", 1 + number, granted=number % 2 == 0)
    told = meter.last_minute()
    assert [each.scope for each in told[:2]] == ["limit 59", "limit 58"]
    assert [(each.taken, each.refused) for each in told[:2]] == [(0, 60), (59, 0)]
    assert len(told) == MOST_RATES
