"""Jobs with a crash on record among those of limits.

A job that may kill the process goes to a worker at once and is never held ahead. A claim that
leaves such jobs out delays and doubles no other.
"""

import random
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId, new_worker_id
from forge_jobs.model.jobs import ClaimedJob, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import MAX_WORKERS_LIMIT
from forge_jobs.model.transitions import Demand
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim,
    claim_for,
    crashed,
    done,
    enqueue_one,
    finish,
    register,
    revive,
)

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SHARED, WEIGHTY, FEW = "tests.tenants", "tests.weighty", "tests.few"
KINDS, OTHER = frozenset({KIND}), "tests.other"
AT_ONCE = timedelta(0)


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    bounds = {SHARED: MAX_WORKERS_LIMIT, WEIGHTY: 3, FEW: 1}
    await storage.config.ensure_limits(QUEUE, bounds, {SHARED: 1, WEIGHTY: 2})
    return await register(storage, lease_for=10 * HOUR)


async def store(storage: Storage, clock: ManualClock, limit: str = "", key: str = "") -> JobId:
    """A job that is due after all that came before."""
    job_id = await enqueue_one(storage, limit_name=limit, limit_key=key)
    clock.advance(MICROSECOND)
    return job_id


async def crash(storage: Storage, clock: ManualClock, claimed: ClaimedJob) -> None:
    assert await revive(storage, claimed, crashed(), stale_after=SECOND)
    clock.advance(MICROSECOND)


async def test_turns_of_jobs_that_may_kill_the_process_are_left_out_behind_the_workers(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    for key in ("a", "c"):
        await store(storage, clock, SHARED, key)
    first, last = await claim(storage, lease, limit=2)
    clock.advance(2 * SECOND)
    before = [await store(storage, clock) for _ in range(3)]
    await crash(storage, clock, first)
    turn = await store(storage, clock, SHARED, "b")
    await crash(storage, clock, last)
    after = [await store(storage, clock) for _ in range(4)]
    claimed = await claim_for(storage, QUEUE, ["w1", "w2", "w3"], 6, KINDS, lease)
    expected = [*before, turn, *after[:2]]
    assert [one.claim.job_id for one in claimed] == expected
    stored = await storage.jobs.get(expected)
    assert [stored[each].worker_id for each in expected] == ["w1", "w2", "w3", "", "", ""]
    assert {(stored[each].attempt, stored[each].hold) for each in expected} == {(1, None)}
    risky = await claim_for(storage, QUEUE, ["w4", "w5"], 6, KINDS, lease)
    left = [first.claim.job_id, last.claim.job_id, *after[2:]]
    assert [one.claim.job_id for one in risky] == left


async def test_a_worker_takes_such_a_job_behind_one_whose_key_turns_out_full(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await store(storage, clock, FEW)
    risky = await store(storage, clock)
    _, second = await claim(storage, lease, limit=2)
    assert second.claim.job_id == risky
    clock.advance(2 * SECOND)
    plain = await store(storage, clock)
    # Not due yet, so that no enqueue but a claim puts the job on hold.
    now = await storage.cron.now()
    await enqueue_one(storage, limit_name=FEW, run_at=now + MICROSECOND)
    clock.advance(2 * MICROSECOND)
    await crash(storage, clock, second)
    claimed = await claim_for(storage, QUEUE, ["w1", "w2"], 5, KINDS, lease)
    assert [one.claim.job_id for one in claimed] == [plain, risky]


@pytest.mark.parametrize("passed_over", ["crashed", "of another kind"])
async def test_a_job_with_a_share_behind_one_that_is_passed_over_has_its_turn(
    storage: Storage, lease: PodLease, clock: ManualClock, passed_over: str
) -> None:
    if passed_over == "crashed":
        await store(storage, clock)
        [first] = await claim(storage, lease)
        clock.advance(2 * SECOND)
        await crash(storage, clock, first)
    else:
        await register(storage, kinds=[OTHER], lease_for=HOUR)
        await enqueue_one(storage, kind=OTHER)
    # Not due yet, so that no enqueue but a claim puts the job on hold.
    later = await storage.cron.now() + MICROSECOND
    behind = await enqueue_one(storage, limit_name=SHARED, limit_key="a", run_at=later)
    clock.advance(2 * MICROSECOND)
    claimed = [one for _ in range(2) for one in await claim(storage, lease, ahead=True)]
    assert [one.claim.job_id for one in claimed] == [behind]


@pytest.mark.parametrize("seed", range(8))
async def test_of_any_mixture_each_job_is_claimed_once_and_by_a_worker_where_it_may_kill(
    storage: Storage, lease: PodLease, clock: ManualClock, seed: int
) -> None:
    draw = random.Random(seed)
    for _ in range(3):
        await _store_some(storage, clock, draw, 6, [SHARED, WEIGHTY, FEW, ""])
        before = await claim(storage, lease, limit=draw.randint(1, 7))
        clock.advance(2 * SECOND)
        for one in before:
            await crash(storage, clock, one)
        await _store_some(storage, clock, draw, 10, [SHARED, WEIGHTY, FEW, "", "", ""])
    running: dict[JobId, ClaimedJob] = {}
    while True:
        most = draw.randint(1, 8)
        workers = [new_worker_id() for _ in range(draw.randint(0, most))]
        demand = Demand(worker_ids=tuple(workers), limit=most, kinds=KINDS)
        exchange = await storage.jobs.exchange(QUEUE, [], demand, lease)
        claimed = {one.claim.job_id: one for one in exchange.claimed}
        assert len(claimed) == len(exchange.claimed)
        assert not claimed.keys() & running.keys()
        running |= claimed
        stored = await storage.jobs.get(list(running))
        assert not any(job.hold for job in stored.values())
        assert all(stored[each].token == one.claim.token for each, one in running.items())
        ahead = [each for each in claimed if not stored[each].worker_id]
        assert not any(claimed[each].crashes for each in ahead)
        idle = len(workers) - len(claimed)
        if idle > 0 and exchange.next_due_in != AT_ONCE:
            assert not await claim(storage, lease, limit=idle)
        if workers and not claimed and not running:
            break
        for each in [each for each in running if draw.random() < 0.5]:
            assert await finish(storage, running.pop(each), done())
        clock.advance(MICROSECOND)
    counted = (await storage.jobs.counts([QUEUE]))[QUEUE].by_status
    assert {status for status, count in counted.items() if count} == {JobStatus.DONE}


async def _store_some(
    storage: Storage, clock: ManualClock, draw: random.Random, most: int, limits: list[str]
) -> None:
    for _ in range(draw.randrange(most)):
        limit = draw.choice(limits)
        await store(storage, clock, limit, draw.choice("abcdef") if limit else "")
