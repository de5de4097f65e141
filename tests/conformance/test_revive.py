"""Taking work back: stale_claims, revive, release."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import After, Cause, Claim, ClaimedJob, JobStatus
from forge_jobs.model.processes import ClaimState, PodLease
from forge_jobs.model.transitions import Revival, StaleClaim, Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    LEASE,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim,
    claim_one,
    counters,
    crashed,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    held,
    new_job,
    only,
    register,
    revive,
)

pytestmark = pytest.mark.anyio


async def claimed_one(storage: Storage, lease: PodLease, **overrides: object) -> ClaimedJob:
    await enqueue_one(storage, **overrides)
    return await claim_one(storage, lease)


async def test_a_claim_is_stale_from_the_exact_instant_on(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    clock.advance(LEASE - MICROSECOND)
    assert await storage.jobs.stale_claims(LEASE, 10) == []
    assert not await revive(storage, claimed)
    clock.advance(MICROSECOND)
    assert [s.claim for s in await storage.jobs.stale_claims(LEASE, 10)] == [claimed.claim]
    assert await revive(storage, claimed)


async def test_the_search_for_stale_claims_says_the_stores_time(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    for step in (SECOND, timedelta(hours=-1)):
        clock.step_wall(step)
        found = await storage.jobs.stale_claims(LEASE, 10)
        assert found == []
        assert set(found.read_at.values()) == {clock.now()}


async def test_a_stale_claim_carries_what_decides_its_jobs_fate(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease, max_attempts=4)
    await finish(storage, claimed, failed(count_crash=True))
    again = await claim_one(storage, lease)
    await storage.jobs.record_start([again.claim])
    await storage.jobs.cancel(only(again.claim.job_id))
    before = await get_job(storage, again.claim.job_id)
    clock.advance(LEASE)
    assert await storage.jobs.stale_claims(LEASE, 10) == [
        StaleClaim(
            claim=again.claim,
            kind=KIND,
            attempt=2,
            max_attempts=4,
            crashes=1,
            started=True,
            cancel_requested=True,
        )
    ]
    assert await get_job(storage, again.claim.job_id) == before


async def test_the_most_silent_claims_come_first_and_only_so_many(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(6)])
    claims = [c.claim for c in await claim(storage, lease, limit=6)]
    order = [claims[n] for n in (3, 0, 5, 1, 4, 2)]
    for each in order:
        clock.advance(1)
        await storage.jobs.heartbeat(lease, [held(each)], LEASE)
    clock.advance(LEASE)
    for limit in (1, 2, 6, 100):
        stale = await storage.jobs.stale_claims(LEASE, limit)
        assert [s.claim for s in stale] == order[:limit]


async def test_claims_of_a_lapsed_pod_are_not_stale_while_they_beat(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    for _ in range(4):
        clock.advance(LEASE - SECOND)
        await storage.jobs.heartbeat(lease, [held(claimed)], SECOND)
        assert await storage.jobs.stale_claims(LEASE, 10) == []
        assert not await revive(storage, claimed)


async def test_a_live_job_is_never_taken_for_its_age(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    for _ in range(60):
        clock.advance(LEASE - MICROSECOND)
        await storage.jobs.heartbeat(lease, [held(claimed, "w")], LEASE)
        assert not await revive(storage, claimed, stale_after=LEASE)
    clock.advance(LEASE - MICROSECOND)
    assert await storage.jobs.stale_claims(LEASE, 10) == []


async def test_a_revived_job_is_due_at_once_with_its_crash_counted(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, claimed)
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.cause, job.due_at) == (JobStatus.PENDING, Cause.CRASHED, clock.now())
    assert (job.attempt, job.crashes) == (1, 1)
    assert [(e.message, e.at) for e in job.errors] == [("lost", clock.now())]
    assert await counters(storage) == {"enqueued": 1, "claimed": 1, "crashed": 1}


async def test_a_revival_hands_an_attempt_back_and_delays_when_told_so(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    clock.advance(LEASE)
    given = crashed(hand_back=True, count_crash=False, delay=5 * SECOND)
    assert await revive(storage, claimed, given)
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.attempt, job.crashes, job.due_at) == (0, 0, clock.now() + 5 * SECOND)


async def test_a_job_revived_as_dead_has_ended(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    await enqueue_one(storage, after=(After(claimed.claim.job_id),))
    clock.advance(LEASE)
    assert await revive(storage, claimed, dead(cause=Cause.CRASHED, count_crash=True))
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.finished_at, job.crashes) == (JobStatus.DEAD, clock.now(), 1)
    [news] = await storage.jobs.handovers(10)
    assert (news.parent_id, news.parent_status) == (claimed.claim.job_id, JobStatus.DEAD)


@pytest.mark.parametrize("transition", [crashed(), dead(), failed(), done()])
async def test_a_job_asked_to_cancel_is_cancelled_whatever_its_transition(
    storage: Storage, lease: PodLease, clock: ManualClock, transition: Transition
) -> None:
    claimed = await claimed_one(storage, lease)
    await storage.jobs.cancel(only(claimed.claim.job_id))
    clock.advance(LEASE)
    assert await revive(storage, claimed, transition)
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.CANCELLED)
    assert await counters(storage) == {"enqueued": 1, "claimed": 1, "cancelled": 1}


async def beats(storage: Storage, claimed: ClaimedJob, lease: PodLease) -> None:
    await storage.jobs.heartbeat(lease, [held(claimed)], LEASE)


async def ends(storage: Storage, claimed: ClaimedJob, lease: PodLease) -> None:
    assert await finish(storage, claimed, done())


async def is_released(storage: Storage, claimed: ClaimedJob, lease: PodLease) -> None:
    assert await storage.jobs.release([claimed.claim]) == [True]


async def is_revived(storage: Storage, claimed: ClaimedJob, lease: PodLease) -> None:
    assert await revive(storage, claimed)


async def is_revived_and_claimed(storage: Storage, claimed: ClaimedJob, lease: PodLease) -> None:
    assert await revive(storage, claimed)
    await claim_one(storage, await register(storage))


async def is_deleted(storage: Storage, claimed: ClaimedJob, lease: PodLease) -> None:
    assert await finish(storage, claimed, done())
    await storage.jobs.delete(only(claimed.claim.job_id))


@pytest.mark.parametrize(
    "meanwhile", [beats, ends, is_released, is_revived, is_revived_and_claimed, is_deleted]
)
async def test_what_happened_since_the_scan_makes_a_revival_void(
    storage: Storage, lease: PodLease, clock: ManualClock, meanwhile: object
) -> None:
    claimed = await claimed_one(storage, lease)
    clock.advance(LEASE)
    [stale] = await storage.jobs.stale_claims(LEASE, 10)
    await meanwhile(storage, claimed, lease)  # type: ignore[operator]
    before, counted = await storage.jobs.get([stale.claim.job_id]), await counters(storage)
    assert not await revive(storage, stale.claim)
    assert await storage.jobs.get([stale.claim.job_id]) == before
    assert await counters(storage) == counted


async def test_a_successor_that_has_gone_stale_itself_is_safe_from_an_old_revival(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, claimed)
    successor = await claim_one(storage, await register(storage))
    clock.advance(LEASE)
    assert not await revive(storage, claimed)
    assert await revive(storage, successor)


async def test_revivals_of_one_call_are_independent(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(5)])
    stale, ended, alive, asked, last = await claim(storage, lease, limit=5)
    await finish(storage, ended, done())
    await storage.jobs.cancel(only(asked.claim.job_id))
    clock.advance(LEASE)
    await storage.jobs.heartbeat(lease, [held(alive)], LEASE)
    unknown = Claim(QUEUE, new_job_id(), 1, lease.host_id)
    order = [ended.claim, stale.claim, unknown, alive.claim, stale.claim, asked.claim, last.claim]
    answers = await storage.jobs.revive([Revival(c, crashed()) for c in order], LEASE)
    assert answers == [False, True, False, False, False, True, True]
    assert (await counters(storage))["crashed"] == 2
    assert await storage.jobs.stale_claims(LEASE, 10) == []


async def test_the_old_owner_of_a_revived_claim_has_lost_every_right(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, claimed)
    before = await get_job(storage, claimed.claim.job_id)
    assert not await finish(storage, claimed, done())
    assert await storage.jobs.release([claimed.claim]) == [False]
    assert await storage.jobs.record_start([claimed.claim]) == [False]
    beat = await storage.jobs.heartbeat(lease, [held(claimed, "w")], LEASE)
    assert beat.claims == {claimed.claim: ClaimState.LOST}
    assert await get_job(storage, claimed.claim.job_id) == before


async def test_a_settled_claim_of_an_earlier_attempt_survives_a_revival(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    first = await claimed_one(storage, lease)
    assert await finish(storage, first, failed())
    second = await claim_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, second)
    assert await finish(storage, first, failed())
    assert not await finish(storage, second, failed())


async def test_a_released_claim_waits_as_before_with_its_attempt_back(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    due_at = clock.now() - SECOND
    claimed = await claimed_one(storage, lease, run_at=due_at)
    clock.advance(3)
    assert await storage.jobs.release([claimed.claim]) == [True]
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.cause, job.due_at) == (JobStatus.PENDING, Cause.RELEASED, due_at)
    assert (job.attempt, job.crashes, job.snoozes) == (0, 0, 0)
    assert await counters(storage) == {"enqueued": 1, "claimed": 1, "released": 1}
    again = await claim_one(storage, lease)
    assert (again.attempt, again.claim.token > claimed.claim.token) == (1, True)


async def test_a_repeated_release_is_true_and_changes_nothing(
    storage: Storage, lease: PodLease
) -> None:
    claimed = await claimed_one(storage, lease)
    assert await storage.jobs.release([claimed.claim, claimed.claim]) == [True, True]
    before = await get_job(storage, claimed.claim.job_id)
    assert await storage.jobs.release([claimed.claim]) == [True]
    assert await finish(storage, claimed, done())
    assert await get_job(storage, claimed.claim.job_id) == before
    assert (await counters(storage))["released"] == 1


async def test_a_released_job_that_was_asked_to_cancel_is_cancelled(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    await storage.jobs.cancel(only(claimed.claim.job_id))
    assert await storage.jobs.release([claimed.claim]) == [True]
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.CANCELLED)
    assert job.finished_at == clock.now()
    assert await counters(storage) == {"enqueued": 1, "claimed": 1, "cancelled": 1}


async def test_releases_of_one_call_are_independent(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(4)])
    revived, ended, good, last = await claim(storage, lease, limit=4)
    await finish(storage, ended, done())
    clock.advance(LEASE)
    assert await revive(storage, revived)
    order = [
        revived.claim,
        good.claim,
        Claim(QUEUE, new_job_id(), 1, lease.host_id),
        replace(last.claim, token=0),
        ended.claim,
        last.claim,
    ]
    assert await storage.jobs.release(order) == [False, True, False, False, True, True]
    assert (await get_job(storage, ended.claim.job_id)).status is JobStatus.DONE
    assert (await counters(storage))["released"] == 2
