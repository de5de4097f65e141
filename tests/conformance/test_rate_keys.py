"""Tokens of rate limits and of their keys, for jobs that are about to run."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.queues import RateAsk, RateLimit, TokenGrant
from forge_jobs.storage.protocols import Storage
from tests.support.factories import MICROSECOND, SECOND

pytestmark = pytest.mark.anyio

SCOPE = "mail: a'b %s {}"
HOUR = timedelta(hours=1)
GRANTED = TokenGrant(True, timedelta(0))


def turn(wait: timedelta) -> TokenGrant:
    return TokenGrant(False, wait)


async def ask(storage: Storage, *keys: str, within: timedelta = HOUR) -> list[TokenGrant | None]:
    asks = [RateAsk(SCOPE, key) for key in keys]
    return await storage.config.take_or_turn(asks, within)


async def ask_again(storage: Storage, *keys: str) -> list[TokenGrant | None]:
    """Ask for jobs that have had a turn."""
    asks = [RateAsk(SCOPE, key, had_turn=True) for key in keys]
    return await storage.config.take_or_turn(asks, HOUR)


async def test_each_key_has_a_bucket_of_the_size_of_the_limit(storage: Storage) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(2, per=4))
    assert await ask(storage, "a", "b", "a", "a", "b", "a", "") == [
        *(GRANTED, GRANTED, GRANTED),
        turn(SECOND * 2),
        GRANTED,
        turn(SECOND * 4),
        GRANTED,
    ]


async def test_a_key_that_comes_at_its_turn_finds_its_token(
    storage: Storage, clock: ManualClock
) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(7, per=3))
    line = await ask(storage, *["k"] * 20)
    passed = timedelta(0)
    for grant in line[7:]:
        assert grant is not None
        clock.advance(grant.retry_in - passed)
        passed = grant.retry_in
        assert await ask_again(storage, "k") == [GRANTED]


async def test_a_new_job_takes_no_token_of_one_that_has_a_turn(
    storage: Storage, clock: ManualClock
) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(4, per=4))
    for key in ("", "k"):
        assert await ask(storage, *[key] * 6) == [*[GRANTED] * 4, turn(SECOND), turn(SECOND * 2)]
        clock.advance(SECOND * 2)
        # Two tokens are there, for the two that have yet to come.
        assert await ask(storage, key) == [turn(SECOND)]
        assert await ask_again(storage, key, key) == [GRANTED] * 2
        clock.advance(SECOND)
        assert await ask_again(storage, key) == [GRANTED]
        clock.advance(SECOND)
        assert await ask(storage, key, key) == [GRANTED, turn(SECOND)]
        clock.advance(HOUR)


async def test_jobs_that_do_not_come_at_their_turns_delay_others_by_their_own_tokens(
    storage: Storage, clock: ManualClock
) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(4, per=4))
    for key in ("", "k"):
        line = await ask(storage, *[key] * 34)
        assert line[-1] == turn(SECOND * 30)
        clock.advance(SECOND * 3)
        assert await ask(storage, key) == [turn(SECOND * 28)]
        clock.advance(SECOND)
        # The bucket is full: no job has come for a whole period.
        assert await ask(storage, key, key) == [GRANTED, turn(SECOND * 28)]
        clock.advance(SECOND * 28)
        assert await ask(storage, key) == [GRANTED]
        clock.advance(HOUR)


async def test_without_a_key_the_bucket_is_that_of_the_limit(
    storage: Storage, clock: ManualClock
) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(2, per=2))
    assert await ask(storage, "") == [GRANTED]
    assert (await storage.config.take_tokens(SCOPE, 1)).granted
    assert await ask(storage, "", "") == [turn(SECOND), turn(SECOND * 2)]
    assert await storage.config.take_turns(SCOPE, [1], HOUR) == [SECOND * 3]
    clock.advance(SECOND)
    assert await ask_again(storage, "") == [GRANTED]


async def test_no_turn_is_later_than_asked_for(storage: Storage) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(1, per=1))
    within = SECOND * 1.5
    assert await ask(storage, *["k"] * 4, within=within) == [
        *(GRANTED, turn(SECOND)),
        *(turn(within), turn(within)),
    ]
    assert await ask(storage, "k", within=HOUR) == [turn(SECOND * 2)]


async def test_an_unknown_limit_is_said_per_request(storage: Storage) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(1, per=1))
    asks = [RateAsk(SCOPE, "k"), RateAsk("gone", "k"), RateAsk("gone"), RateAsk(SCOPE, "k")]
    answers = await storage.config.take_or_turn(asks, HOUR)
    assert answers == [GRANTED, None, None, turn(SECOND)]
    assert await storage.config.take_or_turn([], HOUR) == []


async def test_another_size_holds_for_each_key_and_missing_tokens_stay_missing(
    storage: Storage,
) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(4, per=4))
    assert await ask(storage, *"aaab") == [GRANTED] * 4
    await storage.config.set_rate_limit(SCOPE, RateLimit(5, per=10))
    assert await ask(storage, *"aaa") == [GRANTED, GRANTED, turn(SECOND * 2)]
    assert await ask(storage, *"bbbbb") == [*[GRANTED] * 4, turn(SECOND * 2)]
    await storage.config.set_rate_limit(SCOPE, RateLimit(1, per=1))
    assert await ask(storage, *"abc") == [turn(SECOND), turn(SECOND), GRANTED]


async def test_a_key_is_full_again_after_a_period(storage: Storage, clock: ManualClock) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(3, per=3))
    assert await ask(storage, *"kkkk") == [*[GRANTED] * 3, turn(SECOND)]
    clock.advance(SECOND - MICROSECOND)
    assert await ask(storage, *"k") == [turn(SECOND + MICROSECOND)]
    clock.advance(SECOND * 3)
    await storage.jobs.cleanup(100)
    assert await ask(storage, *"kkkk") == [*[GRANTED] * 3, turn(SECOND)]


async def test_a_clock_that_is_set_back_keeps_no_key_waiting_for_longer_than_its_period(
    storage: Storage, clock: ManualClock
) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(2, per=2))
    assert await ask(storage, *"kk") == [GRANTED] * 2
    clock.advance(-HOUR)
    assert await ask(storage, *"k") == [turn(SECOND)]
    clock.advance(SECOND)
    assert await ask_again(storage, "k") == [GRANTED]


async def test_many_callers_get_exactly_what_there_is(storage: Storage) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(3, per=3600))
    keys = [f"{n % 7}" for n in range(70)]
    answers = await asyncio.gather(*(ask(storage, key, keys[n - 1]) for n, key in enumerate(keys)))
    granted = Counter[str]()
    for n, (first, second) in enumerate(answers):
        granted[keys[n]] += first == GRANTED
        granted[keys[n - 1]] += second == GRANTED
    assert granted == dict.fromkeys("0123456", 3)


async def test_thousands_of_keys_in_one_call(storage: Storage) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(1, per=60))
    keys = [f"host-{n}" for n in range(2_000)]
    assert await ask(storage, *keys) == [GRANTED] * len(keys)
    again = await ask(storage, *keys)
    assert all(grant is not None and not grant.granted for grant in again)


async def test_within_no_time_no_turn_is_given_and_nothing_granted(storage: Storage) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(1, per=1))
    assert await ask(storage, *["k"] * 2, "", "", within=timedelta(0)) == [
        *(GRANTED, turn(timedelta(0)), GRANTED, turn(timedelta(0)))
    ]
    assert await ask(storage, "k", "") == [turn(SECOND)] * 2


async def test_a_job_that_does_not_wait_takes_no_place_among_the_turns(storage: Storage) -> None:
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(1, per=1))
    for key in ("", "k"):
        hurried, patient = RateAsk(SCOPE, key, waits=False), RateAsk(SCOPE, key)
        asks = [hurried, hurried, hurried, patient, hurried, patient]
        assert await storage.config.take_or_turn(asks, HOUR) == [
            *(GRANTED, turn(SECOND), turn(SECOND), turn(SECOND)),
            *(turn(SECOND * 2), turn(SECOND * 2)),
        ]
