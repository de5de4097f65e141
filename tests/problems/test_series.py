"""Problems that the series of a store tell: growth, objectives, long runs, roll-ups."""

from collections.abc import Sequence
from datetime import datetime

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.queues import QueueChange, RateLimit
from forge_jobs.model.series import Depth, FlowSample
from forge_jobs.policy.judgement.problems.problem import Code
from forge_jobs.storage.protocols import Storage
from tests.problems.conftest import HOUR, MINUTE, SECOND, Fleet
from tests.support.factories import (
    KIND,
    QUEUE,
    claim,
    claim_one,
    done,
    enqueue_one,
    finish,
    held,
    rate_limited,
)
from tests.support.simulated_queues import histogram

pytestmark = pytest.mark.anyio


async def runs_end(
    storage: Storage, at: datetime, *, delays: Sequence[float], runs: Sequence[float] = (1.0,)
) -> None:
    """Let a pod say what it has seen in a minute."""
    sample = FlowSample(
        queue=QUEUE,
        kind=KIND,
        minute=at.replace(second=0, microsecond=0),
        counts={"succeeded": len(runs)},
        delay=histogram([*delays]),
        processing=histogram([*runs]),
        total=histogram([*runs]),
    )
    assert await storage.jobs.add_flows([sample]) == []


def to_the_minute(clock: ManualClock) -> datetime:
    at = clock.now().replace(second=0, microsecond=0) + MINUTE
    clock.advance(at - clock.now())
    return at


async def test_a_backlog_that_grows_for_ten_minutes(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start(slots=1)
    await enqueue_one(storage)
    begun = to_the_minute(clock) + 3 * MINUTE
    for due in (7, 9, 8, *range(20, 31)):
        at = clock.now()
        await storage.jobs.record_depths({QUEUE: Depth(due=due, granted=1, max_workers=1)})
        clock.advance(MINUTE)
        if at < begun + 9 * MINUTE:
            assert await fleet.codes() == [], due
    found = await fleet.the_problem(Code.BACKLOG_GROWING, begun)
    assert "grows by 2 jobs a minute" in found.evidence
    assert found.command == f"forge-jobs queues set {QUEUE} --max-workers 2"
    # No more than a minute before.
    await storage.jobs.record_depths({QUEUE: Depth(due=30, granted=1, max_workers=1)})
    clock.advance(MINUTE)
    assert await fleet.codes() == []


async def test_an_objective_whose_budget_burns(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start(slots=1)
    await storage.config.set_queue(QUEUE, QueueChange(objective="95% within 30s"))
    for _ in range(2):
        at = to_the_minute(clock)
        await runs_end(storage, at, delays=[1.0] * 10)
    assert await fleet.codes() == []
    for _ in range(10):
        at = to_the_minute(clock)
        await runs_end(storage, at, delays=[100.0] * 10)
    # Of the last hour 50 of 70 were late: 14.3 times what may be. With 60 of 80 the budget burns.
    burning = at - 3 * MINUTE
    clock.advance(MINUTE)
    found = await fleet.the_problem(Code.OBJECTIVE_MISSED, burning)
    assert "95% within 30s: 16.7% of the last hour" in found.evidence
    clock.advance(6 * MINUTE)
    assert Code.OBJECTIVE_MISSED not in await fleet.codes()


async def test_an_objective_of_a_queue_that_stands_still(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start(slots=1)
    await storage.config.set_queue(QUEUE, QueueChange(objective="95% within 30s"))
    clock.advance(HOUR)
    for _ in range(10):
        await enqueue_one(storage)
    clock.advance(30 * SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    found = await fleet.the_problem(Code.OBJECTIVE_MISSED, clock.now())
    assert found.jobs == 10


async def test_a_run_that_takes_ten_times_as_long_as_others(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=3)
    await runs_end(storage, clock.now(), delays=[1.0], runs=[30.0] * 19)
    for _ in range(2):
        await enqueue_one(storage)
    claims = [held(each, f"w{each.claim.job_id}") for each in await claim(storage, lease, limit=2)]
    await storage.jobs.heartbeat(lease, claims, 24 * HOUR)
    begun = clock.now()
    clock.advance(6 * MINUTE)
    # Nineteen runs say nothing of a hundred.
    assert Code.LONG_RUNNER not in await fleet.codes()
    await runs_end(storage, clock.now(), delays=[1.0], runs=[30.0])
    assert await finish(storage, claims[1].claim, done())
    [found] = [each for each in await fleet.all() if each.code is Code.LONG_RUNNER]
    assert found.about == claims[0].claim.job_id
    # A bucket is ten percent wide.
    assert abs(found.since - begun - 5 * MINUTE) < 20 * SECOND


async def test_jobs_that_wait_for_a_rate_limit(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=2)
    await storage.config.set_rate_limit("api", RateLimit(2, HOUR))
    await storage.config.set_rate_limit("quick", RateLimit(2, SECOND))
    first = clock.now()
    for _ in range(2):
        await enqueue_one(storage)
        claimed = await claim_one(storage, lease)
        assert await finish(storage, claimed, rate_limited(HOUR, rate_limit="api"))
        clock.advance(MINUTE)
    clock.advance(-2 * HOUR)
    # A job for later is enqueued long before it first asks for a token.
    await enqueue_one(storage, delay=HOUR)
    clock.advance(2 * HOUR)
    later = await claim_one(storage, lease)
    assert await finish(storage, later, rate_limited(SECOND, rate_limit="quick"))
    clock.advance(3 * MINUTE - SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    found = await fleet.the_problem(Code.LIMIT_STARVING, first)
    assert (found.about, found.jobs) == ("api", 2)
    assert "The limit gives 0.0333 tokens a minute" in found.why


async def test_minutes_that_are_not_rolled_up(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start()
    for _ in range(3):
        behind = to_the_minute(clock)
        await runs_end(storage, behind, delays=[1.0])
        await enqueue_one(storage)
        clock.advance(MINUTE)
        if _ < 2:
            while await storage.jobs.roll_up(100):
                pass
    clock.advance(4 * MINUTE - SECOND)
    assert Code.ROLL_UP_BEHIND not in await fleet.codes()
    clock.advance(SECOND)
    await fleet.the_problem(Code.ROLL_UP_BEHIND, behind)
    while await storage.jobs.roll_up(100):
        pass
    assert Code.ROLL_UP_BEHIND not in await fleet.codes()


async def test_series_of_healthy_minutes(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=1)
    await storage.config.set_queue(QUEUE, QueueChange(objective="95% within 30s"))
    for number in range(30):
        at = to_the_minute(clock)
        await runs_end(storage, at, delays=[1.0] * 19 + [40.0] * (number % 2))
        await enqueue_one(storage)
        await storage.jobs.record_depths({QUEUE: Depth(due=number % 7, granted=1, max_workers=1)})
        claimed = await claim_one(storage, lease)
        assert await finish(storage, claimed, done())
        while await storage.jobs.roll_up(100):
            pass
        assert await fleet.codes() == []
