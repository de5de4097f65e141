"""A clock of the store that was ahead and has been set back: no job waits for the old time."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId, new_host_id
from forge_jobs.model.jobs import After, Cause, JobStatus
from forge_jobs.model.processes import PodLease, SetBack
from forge_jobs.model.queues import QueueChange
from forge_jobs.model.transitions import Cooldown, Delivery
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.set_back import LONGEST_TURN
from tests.support.factories import (
    KIND,
    LEASE,
    MICROSECOND,
    QUEUE,
    SECOND,
    again,
    claim,
    claim_for,
    claim_one,
    counters,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    held,
    new_job,
    only,
    rate_limited,
    register,
    revive,
    snoozed,
)

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
NOTHING = SetBack(leases=0, is_set_back=False)
ALL = 1_000


async def claimable(storage: Storage, lease: PodLease) -> list[JobId]:
    """The jobs that are due, in the order in which they are claimed."""
    return [each.claim.job_id for each in await claim(storage, lease, limit=ALL)]


async def test_where_nothing_is_ahead_nothing_is_brought_back(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    clock.advance(2 * SECOND)
    await storage.jobs.heartbeat(lease, [], LEASE)
    await enqueue_one(storage)
    await claim_one(storage, lease)
    await storage.cron.lead(lease.host_id, LEASE)
    await enqueue_one(storage, delay=HOUR)
    clock.step_wall(-SECOND)
    before = await storage.procs.pods()

    assert await storage.procs.bring_back_leases() == NOTHING
    assert await storage.jobs.bring_back_jobs(ALL) == 0
    assert await storage.procs.pods() == before


async def test_a_lease_dated_ahead_ends_one_whole_lease_after_it_was_brought_back(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=2))
    clock.step_wall(-HOUR)
    [pod] = await storage.procs.pods()
    assert pod.lease_remaining == LEASE + HOUR

    found = await storage.procs.bring_back_leases()
    assert found.is_set_back
    assert found.leases >= 1
    [pod] = await storage.procs.pods()
    assert pod.lease_remaining == LEASE
    assert await storage.procs.bring_back_leases() == NOTHING

    clock.advance(LEASE - MICROSECOND)
    [allocation] = await storage.procs.allocations()
    assert set(allocation.pods) == {lease.host_id}
    await enqueue_one(storage)
    clock.advance(MICROSECOND)
    [allocation] = await storage.procs.allocations()
    assert not allocation.pods
    assert await claim(storage, lease) == []


async def test_the_living_lose_nothing(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    clock.step_wall(-HOUR)
    await storage.procs.bring_back_leases()

    for _ in range(3):
        clock.advance(LEASE - MICROSECOND)
        beat = await storage.jobs.heartbeat(lease, [held(claimed)], LEASE)
        assert beat.lease_held
        assert (await storage.procs.bring_back_leases()).leases == 0
        assert await storage.jobs.stale_claims(LEASE, 10) == []
    assert await finish(storage, claimed, done())


async def test_a_claim_whose_beat_is_ahead_is_stale_a_whole_lease_later(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    clock.step_wall(-HOUR)
    await storage.procs.bring_back_leases()

    clock.advance(LEASE - MICROSECOND)
    assert await storage.jobs.stale_claims(LEASE, 10) == []
    assert not await revive(storage, claimed)
    clock.advance(MICROSECOND)
    assert [each.claim for each in await storage.jobs.stale_claims(LEASE, 10)] == [claimed.claim]
    assert await revive(storage, claimed)


async def test_a_leader_of_the_future_is_followed_by_another(
    storage: Storage, clock: ManualClock
) -> None:
    dead, living = new_host_id(), new_host_id()
    lease_for = timedelta(seconds=10)
    await storage.cron.lead(dead, lease_for)
    clock.advance(lease_for / 2)
    first = await storage.cron.lead(dead, lease_for)
    clock.step_wall(-HOUR)
    assert await storage.procs.bring_back_leases() == SetBack(leases=1, is_set_back=True)

    waiting = await storage.cron.lead(living, timedelta(minutes=1))
    assert (waiting.host_id, waiting.remaining) == (dead, lease_for)
    clock.advance(lease_for - MICROSECOND)
    assert (await storage.cron.lead(living, lease_for)).host_id == dead
    clock.advance(MICROSECOND)
    assert (await storage.cron.lead(living, lease_for)).term == first.term + 1


async def test_a_leader_that_lives_keeps_its_term(storage: Storage, clock: ManualClock) -> None:
    leader = new_host_id()
    first = await storage.cron.lead(leader, LEASE)
    clock.step_wall(-HOUR)
    await storage.procs.bring_back_leases()
    clock.advance(LEASE - MICROSECOND)
    assert (await storage.cron.lead(leader, LEASE)).term == first.term


async def test_a_job_that_was_stored_says_that_the_clock_was_ahead(
    storage: Storage, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    clock.step_wall(-HOUR)
    assert await storage.procs.bring_back_leases() == SetBack(leases=0, is_set_back=True)


async def test_jobs_that_were_due_when_they_were_stored_do_not_wait(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    waited_for = clock.now() - timedelta(minutes=1)
    first = [await enqueue_one(storage, run_at=waited_for), await enqueue_one(storage)]
    clock.advance(SECOND)
    last = [await enqueue_one(storage, priority=5) for _ in range(3)]
    clock.advance(SECOND)
    expected = [*first, *[await enqueue_one(storage) for _ in range(3)], *last]
    later = await enqueue_one(storage, delay=timedelta(seconds=2))
    asked = await enqueue_one(storage, run_at=clock.now() + timedelta(seconds=3))
    clock.step_wall(-HOUR)
    before = await get_job(storage, later)
    assert await claimable(storage, lease) == []

    assert await storage.jobs.bring_back_jobs(ALL) == len(expected)
    assert await storage.jobs.bring_back_jobs(ALL) == 0
    assert await claimable(storage, lease) == expected
    assert (await get_job(storage, later)).due_at == before.due_at
    assert (await get_job(storage, asked)).status is JobStatus.PENDING


async def test_jobs_are_brought_back_in_bounded_batches_the_earliest_first(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    jobs = []
    for _ in range(5):
        # Those that stay ahead are looked at and passed by.
        await enqueue_one(storage, delay=MICROSECOND)
        jobs.append(await enqueue_one(storage))
        clock.advance(SECOND)
    clock.step_wall(-HOUR)

    for number in range(2):
        clock.advance(SECOND)
        assert await storage.jobs.bring_back_jobs(2) == 2
        assert await claimable(storage, lease) == jobs[2 * number : 2 * number + 2]
    assert await storage.jobs.bring_back_jobs(2) == 1


async def test_of_many_queues_no_more_jobs_are_brought_back_than_a_call_may(
    storage: Storage, clock: ManualClock
) -> None:
    names = [f"tenant-{number % 30}" for number in range(150)]
    await storage.jobs.enqueue([new_job(queue=name, priority=len(name) % 2) for name in names])
    clock.step_wall(-HOUR)
    moved = [await storage.jobs.bring_back_jobs(64) for _ in range(4)]
    assert moved == [64, 64, 22, 0]


async def test_what_became_due_again_in_the_future_does_not_wait_either(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    parent = await enqueue_one(storage)
    released, throttled, crashed, retried, napping, requeued, ended = [
        parent,
        *[await enqueue_one(storage) for _ in range(6)],
    ]
    child = await enqueue_one(storage, after=(After(ended),))
    claims = {each.claim.job_id: each for each in await claim(storage, lease, limit=7)}
    clock.advance(SECOND)
    await storage.jobs.release([claims[released].claim])
    await finish(storage, claims[throttled], snoozed(cause=Cause.THROTTLED))
    await finish(storage, claims[retried], failed(SECOND))
    await finish(storage, claims[napping], snoozed(SECOND))
    await finish(storage, claims[requeued], failed())
    await storage.jobs.requeue(only(requeued))
    await finish(storage, claims[ended], done())
    handovers = await storage.jobs.handovers(10)
    await storage.jobs.deliver([Delivery(each, "settle") for each in handovers])
    clock.advance(LEASE)
    await storage.jobs.heartbeat(lease, [], LEASE)
    assert await revive(storage, claims[crashed])
    clock.step_wall(-HOUR)

    assert await storage.jobs.bring_back_jobs(ALL) == 5
    assert set(await claimable(storage, lease)) == {released, throttled, crashed, requeued, child}


async def test_an_occurrence_that_was_due_at_once_does_not_wait_and_others_do(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    at_once, later = [await enqueue_one(storage, delay=SECOND) for _ in range(2)]
    clock.advance(SECOND)
    claims = {each.claim.job_id: each for each in await claim(storage, lease, limit=2)}
    await finish(storage, claims[at_once], again(claims[at_once], "{}"))
    await finish(storage, claims[later], again(claims[later], "{}", after=SECOND))
    clock.step_wall(-HOUR)

    assert await storage.jobs.bring_back_jobs(ALL) == 1
    assert await claimable(storage, lease) == [at_once]


async def test_a_job_whose_turn_at_a_rate_limit_is_further_away_than_any_is_due(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    far, near = [await enqueue_one(storage) for _ in range(2)]
    claims = {each.claim.job_id: each for each in await claim(storage, lease, limit=2)}
    clock.advance(SECOND)
    await finish(storage, claims[far], rate_limited(LONGEST_TURN))
    await finish(storage, claims[near], rate_limited(SECOND))
    clock.step_wall(-2 * SECOND)
    assert await storage.jobs.bring_back_jobs(ALL) == 1
    assert await claimable(storage, lease) == [far]

    clock.step_wall(-HOUR)
    assert await storage.jobs.bring_back_jobs(ALL) == 1
    assert await claimable(storage, lease) == [near]


async def test_a_job_that_was_claimed_in_the_future_is_due_once_it_is_given_back(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    clock.step_wall(-HOUR)
    await storage.jobs.release([claimed.claim])
    assert await claimable(storage, lease) == [job_id]
    assert (await counters(storage))["released"] == 1


async def test_a_job_held_for_its_kind_is_due_once_it_is_freed(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage, kind="strange")
    assert await claim(storage, lease) == []
    assert (await get_job(storage, job_id)).hold is not None
    clock.step_wall(-HOUR)
    other = await register(storage, kinds=(KIND, "strange"))
    assert [
        each.claim.job_id
        for each in await claim_for(storage, QUEUE, ["w"], 1, frozenset({"strange"}), other)
    ] == [job_id]


async def test_a_cool_down_dated_ahead_becomes_no_longer_than_the_longest(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    pause = Cooldown(length=timedelta(minutes=1), level=1)
    await finish(storage, claimed, snoozed(cause=Cause.THROTTLED, cooldown=pause))
    [state] = await storage.config.queues()
    longest = state.settings.cooldown.cap

    clock.step_wall(-timedelta(days=1))
    await storage.procs.bring_back_leases()

    [state] = await storage.config.queues()
    assert state.cooldown_remaining == longest
    assert state.cooldown_level == 1


async def test_a_restored_job_keeps_the_time_that_it_waits_for(
    storage: Storage, clock: ManualClock
) -> None:
    """Only the clock has put the times of those ahead that were due when enqueued."""
    begun = clock.now()
    clock.advance(HOUR)
    due, restored_late = await enqueue_one(storage), await enqueue_one(storage)
    later = await enqueue_one(storage, delay=HOUR)
    lease = await register(storage)
    claimed = await claim_one(storage, lease)
    assert claimed.claim.job_id == due
    assert await finish(storage, claimed, failed(3 * HOUR))
    await storage.jobs.cancel(only(due, later, restored_late))
    await storage.jobs.restore(only(due, later))
    clock.step_wall(begun - clock.now())
    await storage.jobs.restore(only(restored_late))
    assert await storage.jobs.bring_back_jobs(ALL) == 1
    found = await storage.jobs.get([due, later, restored_late])
    assert [found[each].due_at - begun for each in (due, later)] == [4 * HOUR, 2 * HOUR]
    assert found[restored_late].due_at <= clock.now()
