"""Tokens that are taken a moment before their jobs begin."""

import random
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.queues import RateAsk, RateLimit, TokenGrant
from forge_jobs.storage.protocols import Storage
from tests.support.factories import MICROSECOND, SECOND

pytestmark = pytest.mark.anyio

SCOPE = "mail: a'b %s {}"
NOW = timedelta(0)
HOUR = timedelta(hours=1)
GRANTED = TokenGrant(True, NOW)
KEYS = pytest.mark.parametrize("key", ["", "k"])


async def take(
    storage: Storage, key: str, count: int = 1, *, ahead: timedelta = SECOND
) -> list[bool]:
    asks = [RateAsk(SCOPE, key, waits=ahead > NOW, ahead=ahead)] * count
    grants = await storage.config.take_or_turn(asks, HOUR)
    assert None not in grants
    return [grant == GRANTED for grant in grants]


async def turns(storage: Storage, key: str, count: int = 1) -> list[TokenGrant | None]:
    return await storage.config.take_or_turn([RateAsk(SCOPE, key)] * count, HOUR)


@KEYS
async def test_tokens_are_taken_ahead_while_half_of_them_stay(storage: Storage, key: str) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(100, per=HOUR))
    assert await take(storage, key, 49) == [True] * 49
    # What comes back within the second is missing too, so the fiftieth would leave less than half.
    assert await take(storage, key, 3) == [False] * 3
    assert await turns(storage, key, 50) == [GRANTED] * 50


@KEYS
async def test_a_batch_gets_as_many_as_there_are(storage: Storage, key: str) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(100, per=HOUR))
    assert await take(storage, key, 60) == [True] * 49 + [False] * 11


@KEYS
async def test_nothing_comes_back_before_the_tokens_are_used(
    storage: Storage, clock: ManualClock, key: str
) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(10, per=10))
    assert await take(storage, key, 2, ahead=SECOND * 3) == [True, True]

    # Three tokens would come in that time, and they are missing from now on.
    assert await take(storage, key, 6, ahead=NOW) == [True] * 5 + [False]
    clock.advance(SECOND)
    assert await take(storage, key, 2, ahead=NOW) == [True, False]


@KEYS
async def test_a_token_that_is_used_later_is_paid_for_once(
    storage: Storage, clock: ManualClock, key: str
) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(10, per=10))
    for _ in range(30):
        assert await take(storage, key, ahead=SECOND) == [True]
        clock.advance(SECOND)
    clock.advance(SECOND)
    assert await turns(storage, key, 10) == [GRANTED] * 10


@KEYS
async def test_a_request_ahead_takes_no_place_and_no_token_of_one_that_waits(
    storage: Storage, clock: ManualClock, key: str
) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(2, per=2))
    assert await turns(storage, key, 2) == [GRANTED] * 2
    assert await take(storage, key, 3) == [False] * 3
    assert await turns(storage, key) == [TokenGrant(False, SECOND)]

    await storage.config.ensure_rate_limit(SCOPE, RateLimit(100, per=100))
    # By the time when most tokens are back, others still have turns to come.
    clock.advance(SECOND * 100)
    await turns(storage, key, 180)
    clock.advance(SECOND * 60)
    assert await take(storage, key) == [False]
    clock.advance(SECOND * 22)
    assert await take(storage, key) == [True]


@KEYS
async def test_a_time_longer_than_the_period_is_refused(storage: Storage, key: str) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(2**40, per=MICROSECOND * 1_000))
    assert await take(storage, key, ahead=HOUR) == [False]


async def test_without_a_rate_limit_nothing_is_taken_ahead(storage: Storage) -> None:
    asks = [RateAsk("gone", ahead=SECOND), RateAsk("gone", "k", ahead=SECOND)]
    assert await storage.config.take_or_turn(asks, HOUR) == [None, None]


@KEYS
@pytest.mark.parametrize("seed", range(5))
async def test_no_window_sees_more_starts_than_the_limit_allows(
    storage: Storage, clock: ManualClock, key: str, seed: int
) -> None:
    rng = random.Random(seed)
    capacity, per = rng.choice([(20, 10), (7, 3), (100, 2)])
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(capacity, per=per))
    starts: list[float] = []
    now = 0.0
    for _ in range(60):
        ahead = SECOND * rng.choice([0, 0.2, 1])
        asks = [RateAsk(SCOPE, key, waits=False, ahead=ahead)] * rng.randint(1, capacity)
        grants = await storage.config.take_or_turn(asks, HOUR)
        latest = rng.choice([0.0, 0.0, 1.0]) * ahead.total_seconds()
        starts += [now + latest for grant in grants if grant == GRANTED]
        step = rng.choice([0.001, 0.2, 1, per])
        clock.advance(SECOND * step)
        now += step
    starts.sort()
    assert len(starts) > capacity
    for first, begin in enumerate(starts):
        for last in range(first, len(starts)):
            most = capacity + capacity * (starts[last] - begin) / per
            assert last - first + 1 <= most + 1e-6
