"""Jobs on hold, and lines of rate limits, after a clock that was ahead has been set back."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import RateAsk, RateLimit
from forge_jobs.model.strikes import Strike, StrikeRule, struck_by
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    QUEUE,
    SECOND,
    claim,
    done,
    enqueue_one,
    finish,
    get_job,
    register,
)

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
NAME = "tests.hosts"
TURN = timedelta(minutes=15)
ALL = 1_000


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage, lease_for=2 * DAY)


async def run_all(storage: Storage, lease: PodLease, clock: ManualClock) -> list[JobId]:
    """Run what is due, job after job, and return the order."""
    order: list[JobId] = []
    clock.advance(SECOND)
    while claims := await claim(storage, lease, limit=5):
        order += [one.claim.job_id for one in claims]
        for one in claims:
            await finish(storage, one, done())
        clock.advance(SECOND)
    return order


@pytest.mark.parametrize("share", [None, 1])
async def test_jobs_on_hold_by_a_limit_start_in_their_order(
    storage: Storage, lease: PodLease, clock: ManualClock, share: int | None
) -> None:
    """Also those that are taken off hold after the jobs of the future were brought back."""
    await storage.config.ensure_limits(QUEUE, {NAME: 1}, {NAME: share} if share else {})
    await enqueue_one(storage, limit_name=NAME, limit_key="a")
    [running] = await claim(storage, lease, limit=5)
    waiting = []
    for _ in range(4):
        clock.advance(SECOND)
        waiting.append(await enqueue_one(storage, limit_name=NAME, limit_key="a"))
    # A claim puts this one on hold, when it is due.
    clock.advance(SECOND)
    waiting.append(await enqueue_one(storage, limit_name=NAME, limit_key="a", delay=SECOND))
    clock.advance(2 * SECOND)
    assert not await claim(storage, lease, limit=5)
    clock.step_wall(-DAY)

    while await storage.jobs.bring_back_jobs(2):
        clock.advance(SECOND)
    await finish(storage, running, done())
    assert await run_all(storage, lease, clock) == waiting


async def test_struck_jobs_do_not_wait_once_the_strike_is_lifted(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    struck = struck_by(Strike(name="no mail", rule=StrikeRule(kind="mail"), by="ada", at=None))
    held = []
    for _ in range(3):
        held.append(await enqueue_one(storage, struck=struck))
        clock.advance(SECOND)
    later = await enqueue_one(storage, struck=struck, delay=SECOND)
    clock.step_wall(-DAY)

    await storage.jobs.bring_back_jobs(ALL)
    await storage.jobs.release_struck([], ALL)
    assert await run_all(storage, lease, clock) == held
    clock.advance(DAY)
    assert await run_all(storage, lease, clock) == [later]


@pytest.mark.parametrize("key", ["", "a"])
@pytest.mark.parametrize("back", [timedelta(minutes=5), DAY])
async def test_a_line_of_jobs_at_a_rate_limit_is_no_longer_than_before(
    storage: Storage, clock: ManualClock, key: str, back: timedelta
) -> None:
    await storage.config.ensure_rate_limit(NAME, RateLimit(2, per=2))
    asks = [RateAsk(NAME, key)] * 5
    await storage.config.take_or_turn(asks, TURN)
    clock.step_wall(-back)

    [grant] = await storage.config.take_or_turn(asks[:1], TURN)
    assert grant is not None
    assert grant.retry_in == 4 * SECOND
    clock.advance(10 * SECOND)
    grants = await storage.config.take_or_turn(asks[:2], TURN)
    assert [grant and grant.granted for grant in grants] == [True, True]
    [grant] = await storage.config.take_or_turn(asks[:1], TURN)
    assert grant is not None
    assert grant.retry_in == SECOND


@pytest.mark.parametrize("back", [timedelta(minutes=5), DAY])
@pytest.mark.parametrize("first", ["take", "turn", "refused", "drain"])
async def test_a_line_of_a_named_rate_limit_is_no_longer_than_before(
    storage: Storage, clock: ManualClock, first: str, back: timedelta
) -> None:
    config = storage.config
    await config.ensure_rate_limit(NAME, RateLimit(2, per=2))
    await config.take_tokens(NAME, 2 if first == "refused" else 1)
    await config.take_turns(NAME, [1] * 3, TURN)
    clock.step_wall(-back)

    if first in ("take", "refused"):
        await config.take_tokens(NAME, 1)
    elif first == "drain":
        await config.drain_tokens(NAME)
    # The first turn was at once where a token was left.
    places = 4 if first == "refused" else 3
    assert await config.take_turns(NAME, [1], TURN) == [places * SECOND]
    assert await config.take_turns(NAME, [1], TURN) == [(places + 1) * SECOND]


async def test_keys_go_on_taking_turns(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 9}, {NAME: 1})
    for _ in range(6):
        for key in "abc":
            await enqueue_one(storage, limit_name=NAME, limit_key=key)
            clock.advance(SECOND)
    order = await keys_of_next(storage, lease, clock, 4)
    clock.step_wall(-DAY)
    await storage.jobs.bring_back_jobs(ALL)
    order += await keys_of_next(storage, lease, clock, 8)
    assert order == [*"abc"] * 4


async def keys_of_next(
    storage: Storage, lease: PodLease, clock: ManualClock, count: int
) -> list[str]:
    """Run so many jobs, one at a time, and return their keys."""
    order = []
    for _ in range(count):
        clock.advance(SECOND)
        [one] = await claim(storage, lease, limit=1)
        order.append((await get_job(storage, one.claim.job_id)).limit_key)
        await finish(storage, one, done())
    return order
