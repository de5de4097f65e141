"""Named rate limits: exact, shared round trips, waiting without polling."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput, NotFound, Unavailable
from forge_jobs.model.queues import RateLimit, TokenGrant
from forge_jobs.runtime.shared.rates import limiter as rate_limits
from forge_jobs.runtime.shared.rates.limiter import LONGEST_PAUSE, RateLimiter
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.set_back import LONGEST_TURN
from tests.support.backends import BACKENDS
from tests.support.factories import SECOND
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Pauses:
    """Lets a test's time pass instead of waiting, and remembers for how long."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.lengths: list[timedelta] = []

    async def __call__(self, length: timedelta) -> None:
        self.lengths.append(length)
        self._clock.advance(length)
        await anyio.lowlevel.checkpoint()


@pytest.fixture
def pauses(manual_clock: ManualClock) -> Pauses:
    return Pauses(manual_clock)


@pytest.fixture
async def limiter(
    manual_storage: Storage, manual_clock: ManualClock, pauses: Pauses
) -> RateLimiter:
    """Scope ``gh``: ten tokens, ten per second."""
    await manual_storage.config.ensure_rate_limit("gh", RateLimit(10, per=1))
    return RateLimiter(manual_storage.config, clock=manual_clock, pause=pauses)


def count_calls(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The counts of the calls that reach the store from now on."""
    take: Callable[..., Awaitable[TokenGrant]] = storage.config.take_tokens
    calls: list[int] = []

    async def counted(scope: str, count: int, *within: timedelta) -> TokenGrant:
        calls.append(count)
        return await take(scope, count, *within)

    monkeypatch.setattr(storage.config, "take_tokens", counted)
    return calls


async def acquire_together(limiter: RateLimiter, scope: str, callers: int) -> int:
    """How many of so many concurrent callers got a token."""
    answers: list[bool] = []

    async def acquire() -> None:
        answers.append(await limiter.acquire(scope))

    async with anyio.create_task_group() as group:
        for _ in range(callers):
            group.start_soon(acquire)
    return sum(answers)


async def test_tokens_are_given_until_the_bucket_is_empty(limiter: RateLimiter) -> None:
    assert [await limiter.acquire("gh") for _ in range(11)] == [True] * 10 + [False]


async def test_all_of_the_tokens_or_none(limiter: RateLimiter) -> None:
    assert await limiter.acquire("gh", 7)
    assert not await limiter.acquire("gh", 4)
    assert await limiter.acquire("gh", 3)


async def test_tokens_come_back_with_time(limiter: RateLimiter, manual_clock: ManualClock) -> None:
    assert await limiter.acquire("gh", 10)
    manual_clock.advance(SECOND / 2)
    assert await limiter.acquire("gh", 5)
    assert not await limiter.acquire("gh")


async def test_concurrent_callers_get_exactly_what_there_is(limiter: RateLimiter) -> None:
    assert await acquire_together(limiter, "gh", 100) == 10


async def test_callers_that_ask_together_for_more_than_is_left_get_what_is_left(
    manual_storage: Storage, limiter: RateLimiter
) -> None:
    await manual_storage.config.ensure_rate_limit("wide", RateLimit(100, per=1000))
    assert await limiter.acquire("wide", 95)

    assert await acquire_together(limiter, "wide", 20) == 5


async def test_a_hundred_callers_that_are_denied_share_a_few_round_trips(
    manual_storage: Storage, limiter: RateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_calls(manual_storage, monkeypatch)
    await limiter.drain("gh")

    assert await acquire_together(limiter, "gh", 100) == 0

    assert len(calls) <= 4


async def test_a_turn_comes_in_the_pace_of_the_tokens(limiter: RateLimiter) -> None:
    await limiter.drain("gh")

    assert [await limiter.turn("gh") for _ in range(3)] == [SECOND * n / 10 for n in (1, 2, 3)]


async def test_jobs_beyond_a_long_line_ask_again_at_random_in_its_second_half(
    manual_storage: Storage, limiter: RateLimiter
) -> None:
    await manual_storage.config.ensure_rate_limit("slow", RateLimit(1, per=LONGEST_TURN))
    await limiter.drain("slow")
    assert await limiter.turn("slow") == LONGEST_TURN

    later = [await limiter.turn("slow") for _ in range(20)]

    assert len(set(later)) > 1
    assert all(LONGEST_TURN / 2 <= turn <= LONGEST_TURN for turn in later)


async def test_no_turn_at_a_limit_that_is_not_declared_or_too_small(limiter: RateLimiter) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        await limiter.turn("nowhere")
    with pytest.raises(InvalidInput, match="count"):
        await limiter.turn("gh", 11)
    assert await limiter.turn("gh") == timedelta(0)


async def test_turns_that_are_asked_for_together_share_round_trips(
    manual_storage: Storage, limiter: RateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    give = manual_storage.config.take_turns
    calls: list[int] = []

    async def counted(
        scope: str, counts: Sequence[int], within: timedelta
    ) -> list[timedelta | None]:
        calls.append(len(counts))
        return await give(scope, counts, within)

    monkeypatch.setattr(manual_storage.config, "take_turns", counted)
    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(limiter.turn, "gh")

    assert sum(calls) == 100
    assert len(calls) <= 2


async def test_callers_that_can_all_be_served_are_served_by_one_call(
    manual_storage: Storage, limiter: RateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await manual_storage.config.ensure_rate_limit("wide", RateLimit(1000, per=1000))
    calls = count_calls(manual_storage, monkeypatch)

    assert await acquire_together(limiter, "wide", 100) == 100
    assert sum(calls) == 100
    assert len(calls) <= 2


async def test_waiting_sleeps_exactly_as_long_as_the_store_said(
    limiter: RateLimiter, pauses: Pauses
) -> None:
    assert await limiter.acquire("gh", 10)

    assert await limiter.acquire("gh", 3, wait=1)

    assert pauses.lengths == [timedelta(seconds=0.3)]


async def test_a_wait_that_cannot_be_enough_ends_at_once(
    limiter: RateLimiter, pauses: Pauses
) -> None:
    assert await limiter.acquire("gh", 10)

    assert not await limiter.acquire("gh", 10, wait=timedelta(seconds=0.9))

    assert pauses.lengths == []


async def test_a_long_wait_asks_again_from_time_to_time(
    manual_storage: Storage, limiter: RateLimiter, pauses: Pauses
) -> None:
    # The store reserves up to a quarter of an hour ahead. Beyond that, a caller asks again.
    await manual_storage.config.ensure_rate_limit("slow", RateLimit(1, per=1200))
    assert await limiter.acquire("slow")

    assert await limiter.acquire("slow", wait=2400)

    assert pauses.lengths[0] == LONGEST_PAUSE
    assert pauses.lengths[-1] > LONGEST_PAUSE
    assert sum(pauses.lengths, timedelta(0)) == timedelta(seconds=1200)


async def test_callers_are_served_in_the_order_of_their_calls_over_all_pods(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    waits: list[float] = []

    async def noted(length: timedelta) -> None:
        waits.append(length.total_seconds())

    await manual_storage.config.ensure_rate_limit("slow", RateLimit(10, per=10))
    pods = [RateLimiter(manual_storage.config, clock=manual_clock, pause=noted) for _ in range(2)]
    assert await pods[0].acquire("slow", 8)
    # One caller wants eight where two are there. Those who want one come after, and wait longer.
    assert await pods[0].acquire("slow", 8, wait=60)
    for number in range(4):
        assert await pods[number % 2].acquire("slow", wait=60)
    assert not await pods[1].acquire("slow")
    assert waits == [6, 7, 8, 9, 10]


async def test_callers_of_a_frozen_process_use_no_tokens_of_that_time_at_once(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    thaw, waiting = anyio.Event(), 0
    used: list[float] = []

    async def frozen(length: timedelta) -> None:
        nonlocal waiting
        waiting += 1
        if not thaw.is_set():
            await thaw.wait()
        else:
            # In the order of the times, as a clock would have it.
            ends = manual_clock.elapsed() + length.total_seconds()
            while manual_clock.elapsed() < ends:
                await anyio.lowlevel.checkpoint()

    await manual_storage.config.ensure_rate_limit("slow", RateLimit(1, per=1))
    limiter = RateLimiter(manual_storage.config, clock=manual_clock, pause=frozen)
    assert await limiter.acquire("slow")
    began = manual_clock.elapsed()

    async def acquire() -> None:
        assert await limiter.acquire("slow", wait=60)
        used.append(manual_clock.elapsed() - began)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(acquire)
        await wait_until(lambda: waiting == 5, description="all have their tokens reserved")
        manual_clock.advance(timedelta(seconds=12))
        thaw.set()
        await wait_until(lambda: waiting == 9, description="all but one wait anew")
        for _ in range(4):
            manual_clock.advance(timedelta(seconds=1))
            await wait_until(
                lambda: len(used) == manual_clock.elapsed() - began - 11, description="the next"
            )
    assert used == [12, 13, 14, 15, 16]


async def test_a_process_that_is_always_late_gets_its_tokens(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    async def late(length: timedelta) -> None:
        manual_clock.advance(length + timedelta(milliseconds=200))

    await manual_storage.config.ensure_rate_limit("slow", RateLimit(1, per=10))
    limiter = RateLimiter(manual_storage.config, clock=manual_clock, pause=late)
    assert await limiter.acquire("slow")
    for _ in range(3):
        assert await limiter.acquire("slow", wait=60)


async def test_a_caller_that_gives_up_delays_others_by_its_own_tokens_only(
    manual_storage: Storage, limiter: RateLimiter, manual_clock: ManualClock
) -> None:
    async def forever(_: timedelta) -> None:
        await anyio.sleep_forever()

    impatient = RateLimiter(manual_storage.config, clock=manual_clock, pause=forever)
    assert await limiter.acquire("gh", 10)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(impatient.acquire, "gh", 2, wait=60))
            await anyio.wait_all_tasks_blocked()
            scope.cancel()

    before = manual_clock.elapsed()
    assert await limiter.acquire("gh", wait=60)
    assert manual_clock.elapsed() - before == pytest.approx(0.3)


async def test_a_wait_is_never_longer_than_allowed(
    limiter: RateLimiter, pauses: Pauses, manual_clock: ManualClock
) -> None:
    await limiter.acquire("gh", 10)
    started = manual_clock.elapsed()

    await limiter.acquire("gh", 10, wait=1)

    assert manual_clock.elapsed() - started <= 1


async def test_draining_empties_the_bucket_for_every_pod(
    manual_storage: Storage, limiter: RateLimiter
) -> None:
    elsewhere = RateLimiter(manual_storage.config)

    await limiter.drain("gh")

    assert not await elsewhere.acquire("gh")


async def test_an_undeclared_scope_is_not_found_and_says_how_to_declare_it(
    limiter: RateLimiter,
) -> None:
    for _ in range(2):
        with pytest.raises(NotFound, match=r"'nope' is not declared.*rate_limits="):
            await limiter.acquire("nope")
    with pytest.raises(NotFound, match=r"'nope' is not declared.*rate_limits="):
        await limiter.drain("nope")


async def test_a_scope_declared_later_is_found(
    manual_storage: Storage, limiter: RateLimiter
) -> None:
    with pytest.raises(NotFound):
        await limiter.acquire("late")
    await manual_storage.config.ensure_rate_limit("late", RateLimit(1))

    assert await limiter.acquire("late")


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "1", 11])
async def test_counts_that_no_bucket_can_give_are_refused(limiter: RateLimiter, count: int) -> None:
    with pytest.raises(InvalidInput, match="count"):
        await limiter.acquire("gh", count)


async def test_a_callers_bad_count_does_not_hurt_its_neighbours(limiter: RateLimiter) -> None:
    outcomes: dict[int, object] = {}

    async def acquire(count: int) -> None:
        try:
            outcomes[count] = await limiter.acquire("gh", count)
        except InvalidInput as error:
            outcomes[count] = error.field

    async with anyio.create_task_group() as group:
        for count in (1, 11, 2, 3):
            group.start_soon(acquire, count)

    assert outcomes == {1: True, 11: "count", 2: True, 3: True}


async def test_a_short_outage_of_the_store_is_ridden_out(
    manual_storage: Storage, limiter: RateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = manual_storage.config.take_tokens
    failures = iter([True, True, False])

    async def flaky(scope: str, count: int, *within: timedelta) -> TokenGrant:
        if next(failures):
            raise Unavailable("down")
        return await take(scope, count, *within)

    monkeypatch.setattr(manual_storage.config, "take_tokens", flaky)

    assert await limiter.acquire("gh")


async def test_a_long_outage_reaches_the_caller(
    manual_storage: Storage, limiter: RateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: object) -> TokenGrant:
        raise Unavailable("down")

    monkeypatch.setattr(rate_limits, "REPEAT_FOR", timedelta(0))
    monkeypatch.setattr(manual_storage.config, "take_tokens", down)

    with pytest.raises(Unavailable):
        await limiter.acquire("gh")


async def test_a_caller_that_is_cancelled_leaves_the_others_served(
    manual_storage: Storage, limiter: RateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = manual_storage.config.take_tokens
    gate = anyio.Event()

    async def gated(scope: str, count: int, *within: timedelta) -> TokenGrant:
        await gate.wait()
        return await take(scope, count, *within)

    monkeypatch.setattr(manual_storage.config, "take_tokens", gated)
    outcomes: list[bool] = []

    async def acquire() -> None:
        outcomes.append(await limiter.acquire("gh"))

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as impatient:
            group.start_soon(acquire)
            await anyio.wait_all_tasks_blocked()
            impatient.cancel()
            await limiter.acquire("gh")
        gate.set()

    assert outcomes == [True]
    assert impatient.cancelled_caught


async def test_a_waiter_on_the_real_clock_gets_its_token(tmp_path: Path) -> None:
    async with BACKENDS["sqlite"](tmp_path, None) as storage:
        await storage.config.ensure_rate_limit("gh", RateLimit(1, per=0.02))
        limiter = RateLimiter(storage.config)
        await limiter.acquire("gh")

        assert await limiter.acquire("gh", wait=10)
