"""Turns: when a job that found no token may ask again."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.queues import RateLimit
from forge_jobs.storage.protocols import Storage
from tests.support.factories import MICROSECOND, SECOND

pytestmark = pytest.mark.anyio

SCOPE = "gh: a'b %s {}"
HOUR = timedelta(hours=1)


async def declare(storage: Storage, capacity: int, per: float) -> None:
    """A bucket without a token."""
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(capacity, per))
    await storage.config.drain_tokens(SCOPE)


async def turns(storage: Storage, *counts: int, within: timedelta = HOUR) -> list[timedelta | None]:
    return await storage.config.take_turns(SCOPE, counts, within)


async def test_turns_follow_each_other_in_the_pace_of_the_tokens(storage: Storage) -> None:
    await declare(storage, 4, 2)
    assert await turns(storage, 1, 1, 1) == [SECOND / 2, SECOND, SECOND * 1.5]
    assert await turns(storage, 1) == [SECOND * 2]


async def test_a_turn_for_more_tokens_comes_when_all_of_them_can_be_there(
    storage: Storage,
) -> None:
    await declare(storage, 4, 2)
    assert await turns(storage, 2, 1, 4) == [SECOND, SECOND * 1.5, SECOND * 3.5]


async def test_whoever_comes_at_its_turn_finds_its_token(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 7, 3)
    line = await turns(storage, *[1] * 20)
    passed = timedelta(0)
    for turn in line:
        assert turn is not None
        clock.advance(turn - passed)
        passed = turn
        assert (await storage.config.take_tokens(SCOPE, 1)).granted


async def test_a_turn_takes_no_token_and_keeps_none_back(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 2, 2)
    await turns(storage, *[1] * 10)
    clock.advance(SECOND)
    assert (await storage.config.take_tokens(SCOPE, 1)).granted


async def test_a_line_that_has_passed_makes_nobody_wait(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 2, 2)
    await turns(storage, 1, 1)
    clock.advance(60)
    assert await turns(storage, 1) == [timedelta(0)]


async def test_a_turn_that_would_be_too_late_is_none_and_takes_no_place(storage: Storage) -> None:
    await declare(storage, 1, 1)
    assert await turns(storage, 1, 1, 1, within=SECOND * 2) == [SECOND, SECOND * 2, None]
    assert await turns(storage, 1) == [SECOND * 3]


async def test_a_clock_that_steps_back_makes_nobody_wait_longer_than_asked_for(
    storage: Storage, clock: ManualClock
) -> None:
    await declare(storage, 1, 1)
    await turns(storage, *[1] * 30)
    clock.step_wall(-timedelta(days=365))
    for turn in await turns(storage, 1, within=SECOND * 2):
        assert turn is None or turn <= SECOND * 2
    clock.advance(SECOND * 2)
    assert await turns(storage, 1, within=SECOND * 2) != [None]


@pytest.mark.parametrize("by_operator", [False, True])
async def test_another_size_forgets_the_line(storage: Storage, by_operator: bool) -> None:
    await declare(storage, 1, 1)
    await turns(storage, *[1] * 30)
    resize: Any = storage.config.set_rate_limit if by_operator else storage.config.ensure_rate_limit
    await resize(SCOPE, RateLimit(10, 1))
    [turn] = await turns(storage, 1)
    assert turn is not None
    assert turn <= SECOND


async def test_the_same_size_declared_again_keeps_the_line(storage: Storage) -> None:
    await declare(storage, 1, 1)
    await turns(storage, 1, 1)
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(1, 1))
    assert await turns(storage, 1) == [SECOND * 3]


async def test_tokens_taken_and_drained_keep_the_line(storage: Storage, clock: ManualClock) -> None:
    await declare(storage, 1, 1)
    await turns(storage, 1, 1)
    clock.advance(SECOND)
    assert (await storage.config.take_tokens(SCOPE, 1)).granted
    await storage.config.drain_tokens(SCOPE)
    assert await turns(storage, 1) == [SECOND * 2]


async def test_concurrent_callers_get_each_place_once(storage: Storage) -> None:
    await declare(storage, 10, 1)
    answers = await asyncio.gather(*(turns(storage, 1, 1) for _ in range(10)))
    given = sorted(turn for answer in answers for turn in answer if turn is not None)
    assert given == [SECOND * place / 10 for place in range(1, 21)]


async def test_a_rate_that_divides_badly_gives_no_turn_early(storage: Storage) -> None:
    await declare(storage, 3, 1)
    third = 333_334 * MICROSECOND
    assert await turns(storage, 1) == [third]
    assert await turns(storage, 1) == [third * 2]


async def test_no_count_needs_no_turn(storage: Storage) -> None:
    await declare(storage, 3, 1)
    assert await turns(storage) == []


@pytest.mark.parametrize("counts", [[0], [1, 0], [-1], [4], [1, 4], [2**70]])
async def test_counts_that_can_never_be_granted_are_refused_and_take_no_place(
    storage: Storage, counts: list[int]
) -> None:
    await declare(storage, 3, 3)
    with pytest.raises(InvalidInput, match="count"):
        await turns(storage, *counts)
    assert await turns(storage, 1) == [SECOND]


async def test_an_undeclared_scope_is_not_found(storage: Storage) -> None:
    with pytest.raises(NotFound):
        await storage.config.take_turns("nowhere", [1], HOUR)
