"""Tokens that are reserved for callers who wait: ``ConfigStore.take_tokens(within=...)``."""

import asyncio
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.queues import RateLimit, TokenGrant
from forge_jobs.storage.buckets import furthest_us
from forge_jobs.storage.protocols import Storage
from tests.support.factories import MICROSECOND, SECOND

pytestmark = pytest.mark.anyio

SCOPE = "gh: a'b %s {}"


async def retry_in(storage: Storage, count: int = 1) -> timedelta:
    grant = await storage.config.take_tokens(SCOPE, count)
    assert not grant.granted
    return grant.retry_in


async def test_tokens_that_come_in_time_are_reserved_in_the_order_of_the_calls(
    storage: Storage, clock: ManualClock
) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(10, per=10))
    assert (await storage.config.take_tokens(SCOPE, 9)).granted
    within = 60 * SECOND
    # Eight are wanted where one is there, then single ones come.
    assert await storage.config.take_tokens(SCOPE, 8, within) == TokenGrant(True, 7 * SECOND)
    assert await storage.config.take_tokens(SCOPE, 1, within) == TokenGrant(True, 8 * SECOND)
    assert await storage.config.take_tokens(SCOPE, 1) == TokenGrant(False, 9 * SECOND)
    clock.advance(8 * SECOND)
    assert await storage.config.take_tokens(SCOPE, 1) == TokenGrant(False, SECOND)
    clock.advance(SECOND)
    assert await storage.config.take_tokens(SCOPE, 1) == TokenGrant(True, timedelta(0))


async def test_nothing_is_reserved_beyond_the_time_asked_for_and_a_quarter_of_an_hour(
    storage: Storage,
) -> None:
    minute = 60 * SECOND
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(1, per=minute))
    assert (await storage.config.take_tokens(SCOPE, 1)).granted
    too_short = await storage.config.take_tokens(SCOPE, 1, minute - MICROSECOND)
    assert too_short == TokenGrant(False, minute)
    for number in range(1, 16):
        grant = await storage.config.take_tokens(SCOPE, 1, 60 * minute)
        assert grant == TokenGrant(True, number * minute)
    assert await storage.config.take_tokens(SCOPE, 1, 60 * minute) == TokenGrant(False, 16 * minute)
    [state] = await storage.config.rate_limits()
    assert state.available == 0


@pytest.mark.parametrize(
    ("capacity", "per"), [(2**22, timedelta(seconds=4)), (7 * 10**6, timedelta(days=7))]
)
async def test_the_finest_limits_reserve_as_far_as_numbers_go(
    storage: Storage, capacity: int, per: timedelta
) -> None:
    limit = RateLimit(capacity, per)
    await storage.config.ensure_rate_limit(SCOPE, limit)
    await storage.config.drain_tokens(SCOPE)
    day, waits = timedelta(days=1), []
    for _ in range(400):
        grant = await storage.config.take_tokens(SCOPE, capacity, day)
        if not grant.granted:
            break
        waits.append(grant.retry_in)
    assert waits == [per * number for number in range(1, len(waits) + 1)]
    assert len(waits) == timedelta(microseconds=furthest_us(limit)) // per


async def test_reserved_tokens_survive_a_drain_and_another_size(
    storage: Storage, clock: ManualClock
) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(1, per=1))
    for _ in range(4):
        assert (await storage.config.take_tokens(SCOPE, 1, 60 * SECOND)).granted
    await storage.config.drain_tokens(SCOPE)
    assert await retry_in(storage) == 4 * SECOND
    # Ten times as fast, but only once the reserved ones are over.
    await storage.config.set_rate_limit(SCOPE, RateLimit(10, per=1))
    assert await retry_in(storage) == 3.1 * SECOND
    clock.advance(3.1 * SECOND)
    assert (await storage.config.take_tokens(SCOPE, 1)).granted


async def test_a_clock_that_steps_back_forgets_what_was_reserved(
    storage: Storage, clock: ManualClock
) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(2, per=2))
    for _ in range(6):
        assert (await storage.config.take_tokens(SCOPE, 1, 60 * SECOND)).granted
    clock.advance(-3600 * SECOND)
    assert await retry_in(storage, 2) == 2 * SECOND


async def test_callers_that_reserve_at_once_each_get_a_time_of_their_own(storage: Storage) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(5, per=5))
    grants = await asyncio.gather(
        *(storage.config.take_tokens(SCOPE, 1, 3600 * SECOND) for _ in range(30))
    )
    waits = sorted(grant.retry_in // SECOND for grant in grants)
    assert all(grant.granted for grant in grants)
    # The clock of the test stands still: five are there, then one comes each second.
    assert waits == [0] * 5 + list(range(1, 26))
