"""Named rate limits: the second half of ``ConfigStore``."""

import asyncio
import random
from datetime import timedelta
from fractions import Fraction
from math import ceil, floor, lcm

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.queues import RateLimit, RateLimitState
from forge_jobs.storage.protocols import Storage
from tests.support.factories import MICROSECOND, SECOND

pytestmark = pytest.mark.anyio

SCOPE = "gh: a'b %s {}"


async def declare(storage: Storage, capacity: int, per: float | timedelta) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(capacity, per))


async def take(storage: Storage, count: int = 1) -> bool:
    return (await storage.config.take_tokens(SCOPE, count)).granted


async def retry_in(storage: Storage, count: int = 1) -> timedelta:
    grant = await storage.config.take_tokens(SCOPE, count)
    assert not grant.granted
    return grant.retry_in


async def state(storage: Storage) -> RateLimitState:
    [found] = await storage.config.rate_limits()
    return found


# -- taking ------------------------------------------------------------------------------------


async def test_a_bucket_starts_full_and_gives_no_more_than_it_holds(storage: Storage) -> None:
    await declare(storage, 3, 60)
    assert (await state(storage)).available == 3
    assert [await take(storage) for _ in range(4)] == [True, True, True, False]
    assert (await state(storage)).available == 0


async def test_tokens_are_taken_all_or_none(storage: Storage) -> None:
    await declare(storage, 5, 60)
    assert await take(storage, 3)
    assert not await take(storage, 3)
    assert (await state(storage)).available == 2
    assert await take(storage, 2)


async def test_a_token_comes_back_at_its_exact_microsecond(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 4, 2.0)
    assert await take(storage, 4)
    assert await retry_in(storage) == SECOND / 2
    clock.advance(SECOND / 2 - MICROSECOND)
    assert await retry_in(storage) == MICROSECOND
    clock.advance(MICROSECOND)
    assert await take(storage)
    assert not await take(storage)


async def test_retry_in_is_how_long_until_that_many_could_be_there(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 7, timedelta(seconds=10))
    assert await take(storage, 7)
    clock.advance(timedelta(milliseconds=300))
    wait = await retry_in(storage, 5)
    clock.advance(wait - MICROSECOND)
    assert not await take(storage, 5)
    clock.advance(MICROSECOND)
    assert await take(storage, 5)


async def test_the_answer_to_a_grant_has_no_wait(storage: Storage) -> None:
    await declare(storage, 1, 60)
    grant = await storage.config.take_tokens(SCOPE, 1)
    assert (grant.granted, grant.retry_in) == (True, timedelta(0))


async def test_a_bucket_never_holds_more_than_its_capacity(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 2, 1.0)
    assert await take(storage, 2)
    clock.advance(timedelta(days=4000))
    assert (await state(storage)).available == 2
    assert [await take(storage) for _ in range(3)] == [True, True, False]


async def test_tokens_that_come_faster_than_microseconds_are_counted_exactly(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 3_000_001, 1.0)
    assert await take(storage, 3_000_001)
    given = 0
    for _ in range(50):
        clock.advance(MICROSECOND)
        while await take(storage):
            given += 1
    assert given == 150
    clock.advance(SECOND - 50 * MICROSECOND)
    assert (await state(storage)).available == 3_000_001 - 150


@pytest.mark.daily("sqlite", "redis")
async def test_a_rate_that_divides_badly_loses_nothing_over_time(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 7, 1.0)
    assert await take(storage, 7)
    given = 0
    for _ in range(1_000):
        clock.advance(timedelta(milliseconds=10))
        given += await take(storage)
    assert given == 70


async def test_a_bucket_of_a_day_with_a_large_capacity_works(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 10_000_000, timedelta(days=1))
    assert await take(storage, 10_000_000)
    clock.advance(timedelta(hours=12))
    assert (await state(storage)).available == 5_000_000


async def test_concurrent_takers_never_exceed_the_bucket(storage: Storage) -> None:
    await declare(storage, 40, 3600)
    grants = await asyncio.gather(*(take(storage) for _ in range(16 * 5)))
    assert sum(grants) == 40


async def test_takers_on_other_connections_share_the_bucket(storage: Storage) -> None:
    await declare(storage, 10, 3600)
    async with await storage.reopen() as other:
        grants = await asyncio.gather(*(take(view) for view in (storage, other) for _ in range(16)))
    assert sum(grants) == 10


async def test_no_window_gets_more_than_capacity_and_refill(
    storage: Storage, clock: ManualClock
) -> None:
    rng = random.Random(20261120)
    capacity, period = 5, timedelta(seconds=1)
    await declare(storage, capacity, period)
    taken: list[tuple[timedelta, int]] = []
    since = timedelta(0)
    for _ in range(300):
        step = timedelta(microseconds=rng.choice([0, 1, 150_000, 199_999, 200_000, 700_000]))
        clock.advance(step)
        since += step
        count = rng.randint(1, 3)
        if await take(storage, count):
            taken.append((since, count))
    for index, (start, _) in enumerate(taken):
        total = 0
        for at, count in taken[index:]:
            total += count
            assert total <= capacity + capacity * ((at - start) / period)


async def test_an_unknown_scope_is_an_error_that_names_it(storage: Storage) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        await storage.config.take_tokens("nowhere", 1)
    with pytest.raises(NotFound, match="nowhere"):
        await storage.config.drain_tokens("nowhere")


@pytest.mark.parametrize("count", [0, -1, 4])
async def test_a_count_that_can_never_be_granted_is_refused(storage: Storage, count: int) -> None:
    await declare(storage, 3, 60)
    with pytest.raises(InvalidInput, match="count"):
        await storage.config.take_tokens(SCOPE, count)
    assert await take(storage, 3)


async def test_scopes_do_not_share_tokens(storage: Storage) -> None:
    await declare(storage, 1, 60)
    await storage.config.ensure_rate_limit("other", RateLimit(1, 60))
    assert await take(storage)
    assert (await storage.config.take_tokens("other", 1)).granted


@pytest.mark.parametrize(
    ("capacity", "per"),
    [
        (2**52 + 1, timedelta(microseconds=1)),
        (1, timedelta(microseconds=2**52 + 1)),
        # A token of these comes every so many microseconds and a tiny part of one.
        (1_000_003, timedelta(days=1)),
        (2**40, timedelta(microseconds=2**40)),
    ],
)
async def test_a_limit_too_fine_to_be_counted_exactly_is_refused(
    storage: Storage, capacity: int, per: timedelta
) -> None:
    for declared in (storage.config.ensure_rate_limit, storage.config.set_rate_limit):
        with pytest.raises(InvalidInput, match="capacity"):
            await declared(SCOPE, RateLimit(capacity, per))
    assert await storage.config.rate_limits() == []


@pytest.mark.parametrize(
    ("capacity", "per"),
    [
        (2**52, timedelta(microseconds=1)),
        (1, timedelta(microseconds=2**52)),
        (52_123, timedelta(seconds=86_399, microseconds=999_983)),
        (100_000, timedelta(days=365)),
    ],
)
async def test_the_finest_limits_are_counted_exactly(
    *, storage: Storage, clock: ManualClock, capacity: int, per: timedelta
) -> None:
    await declare(storage, capacity, per)
    assert await take(storage, capacity)
    assert await retry_in(storage, capacity) == per
    half = per // 2
    clock.advance(half)
    assert (await state(storage)).available == capacity * (half // MICROSECOND) // (
        per // MICROSECOND
    )
    clock.advance(per - half)
    assert (await state(storage)).available == capacity


@pytest.mark.parametrize("seed", range(4))
async def test_takes_agree_with_exact_arithmetic(
    storage: Storage, clock: ManualClock, seed: int
) -> None:
    rng = random.Random(seed)
    capacity, period = rng.randint(50_000, 52_000), rng.randint(2**36, 2**36 + 10**7)
    await declare(storage, capacity, period * MICROSECOND)
    missing = Fraction(0)
    for _ in range(60):
        count = rng.randint(1, capacity)
        short = missing + count - capacity
        if short <= 0:
            assert await take(storage, count)
            missing += count
        else:
            wait = ceil(short * period / capacity)
            assert await retry_in(storage, count) == wait * MICROSECOND
        step = rng.choice([1, rng.randint(0, 1_000), rng.randint(0, period // 3)])
        clock.advance(step * MICROSECOND)
        missing = max(Fraction(0), missing - Fraction(step * capacity, period))
        found = await state(storage)
        assert found.available == floor(capacity - missing)
        further = missing - (capacity - found.available - 1)
        next_in = ceil(further * period / capacity) * MICROSECOND
        assert found.next_in == (next_in if missing else None)


async def test_the_next_token_is_the_first_that_can_be_taken(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 3, 60)
    assert (await state(storage)).next_in is None
    assert await take(storage, 2)
    assert (await state(storage)).next_in == timedelta(seconds=20)
    clock.advance(timedelta(seconds=5))
    assert (await state(storage)).next_in == timedelta(seconds=15)
    # Reserved: the tokens that come first are promised to others.
    assert (await storage.config.take_tokens(SCOPE, 3, within=timedelta(minutes=5))).granted
    found = await state(storage)
    assert (found.available, found.next_in) == (0, timedelta(seconds=55))
    clock.advance(timedelta(seconds=55) - MICROSECOND)
    assert not await take(storage)
    clock.advance(MICROSECOND)
    assert await take(storage)


# -- clocks ------------------------------------------------------------------------------------


async def test_a_clock_that_steps_back_costs_one_period_at_most(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 4, 10.0)
    assert await take(storage, 4)
    clock.step_wall(-timedelta(days=365))
    assert await retry_in(storage, 4) == 10 * SECOND
    clock.advance(10 * SECOND - MICROSECOND)
    assert not await take(storage, 4)
    clock.advance(MICROSECOND)
    assert await take(storage, 4)


async def test_a_clock_that_steps_back_gives_no_token_twice(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 4, 10.0)
    assert await take(storage, 3)
    clock.step_wall(-3600)
    assert (await state(storage)).available == 1
    assert [await take(storage) for _ in range(2)] == [True, False]


# -- draining ----------------------------------------------------------------------------------


async def test_a_drained_bucket_is_empty_and_refills_at_its_rate(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 4, 8.0)
    await storage.config.drain_tokens(SCOPE)
    assert (await state(storage)).available == 0
    assert await retry_in(storage) == 2 * SECOND
    clock.advance(8 * SECOND)
    assert await take(storage, 4)


async def test_draining_an_empty_bucket_starts_its_refill_again(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 4, 8.0)
    await storage.config.drain_tokens(SCOPE)
    clock.advance(SECOND)
    await storage.config.drain_tokens(SCOPE)
    assert await retry_in(storage) == 2 * SECOND


# -- declaring and editing ---------------------------------------------------------------------


async def test_buckets_are_listed_by_scope(storage: Storage) -> None:
    for scope in ("b", "Z", "a"):
        await storage.config.ensure_rate_limit(scope, RateLimit(2, 0.5))
    found = await storage.config.rate_limits()
    assert [bucket.scope for bucket in found] == ["Z", "a", "b"]
    assert {(b.limit.capacity, b.limit.period, b.overridden) for b in found} == {
        (2, SECOND / 2, False)
    }


async def test_declaring_a_bucket_again_gives_no_tokens_back(storage: Storage) -> None:
    await declare(storage, 3, 60)
    assert await take(storage, 3)
    await declare(storage, 3, 60)
    assert not await take(storage)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((7, 1_000_000), (3, 5_000_000)),
        ((3, 5_000_000), (7, 1_000_000)),
        ((1_000_003, 1_000_000_007), (999_983, 998_244_353)),
        ((999_983, 998_244_353), (1, 1)),
        ((10, 60_000_000), (100, 60_000_000)),
    ],
)
@pytest.mark.parametrize("gone_us", [0, 1, 99_999, 100_001])
async def test_what_is_missing_stays_missing_to_the_exact_step(
    storage: Storage,
    clock: ManualClock,
    before: tuple[int, int],
    after: tuple[int, int],
    gone_us: int,
) -> None:
    (capacity, period), (other_capacity, other_period) = before, after
    await declare(storage, capacity, timedelta(microseconds=period))
    assert await take(storage, 1)
    clock.advance(gone_us * MICROSECOND)
    await declare(storage, other_capacity, timedelta(microseconds=other_period))
    tokens = max(Fraction(0), 1 - Fraction(gone_us * capacity, period))
    steps = Fraction(lcm(other_capacity, other_period), other_capacity)
    missing = min(Fraction(other_capacity), ceil(tokens * steps) / steps)
    wait = ceil(missing * other_period / other_capacity) * MICROSECOND
    if wait:
        assert await retry_in(storage, other_capacity) == wait
        clock.advance(wait)
    assert await take(storage, other_capacity)


async def test_code_may_change_a_bucket_that_no_operator_has_set(storage: Storage) -> None:
    await declare(storage, 3, 60)
    assert await take(storage, 2)
    await declare(storage, 10, 30)
    found = await state(storage)
    assert (found.limit.capacity, found.limit.period) == (10, 30 * SECOND)
    assert (found.available, found.overridden) == (8, False)


async def test_an_operators_bucket_stays_as_it_is(storage: Storage) -> None:
    await storage.config.set_rate_limit(SCOPE, RateLimit(7, 60))
    await declare(storage, 3, 5)
    found = await state(storage)
    assert (found.limit.capacity, found.limit.period, found.overridden) == (7, 60 * SECOND, True)


async def test_an_edit_overrides_what_code_declared(storage: Storage) -> None:
    await declare(storage, 3, 60)
    await storage.config.set_rate_limit(SCOPE, RateLimit(3, 60))
    await declare(storage, 9, 60)
    assert (await state(storage)).limit.capacity == 3


async def test_tokens_already_taken_stay_taken_over_an_edit(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 10, 100)
    assert await take(storage, 6)
    clock.advance(20)
    await storage.config.set_rate_limit(SCOPE, RateLimit(20, 40))
    assert (await state(storage)).available == 16
    assert not await take(storage, 17)
    assert await take(storage, 16)
    clock.advance(2)
    assert await take(storage, 1)
    assert not await take(storage, 1)


async def test_a_bucket_shrunk_below_what_was_taken_is_empty_for_a_period_at_most(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 10, 10)
    assert await take(storage, 9)
    await storage.config.set_rate_limit(SCOPE, RateLimit(2, 10))
    assert (await state(storage)).available == 0
    clock.advance(10)
    assert (await state(storage)).available == 2


async def test_one_bucket_declared_by_many_at_once_is_one(storage: Storage) -> None:
    await asyncio.gather(*(declare(storage, 5, 60) for _ in range(8)))
    assert len(await storage.config.rate_limits()) == 1
