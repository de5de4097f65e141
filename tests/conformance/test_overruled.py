"""A job that was asked to cancel ends as cancelled. The rest of the transition stands."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.jobs import Cause, ClaimedJob, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Cooldown, Finalization, Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    LEASE,
    SECOND,
    claim_one,
    counters,
    crashed,
    done,
    enqueue_one,
    error,
    failed,
    finish,
    get_job,
    only,
    revive,
    snoozed,
)

pytestmark = pytest.mark.anyio


async def asked_to_cancel(storage: Storage, lease: PodLease) -> ClaimedJob:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await storage.jobs.cancel(only(claimed.claim.job_id))
    return claimed


@pytest.mark.parametrize(
    ("ending", "attempt", "snoozes", "errors"),
    [
        (failed(), 1, 0, ["boom"]),
        (snoozed(), 0, 1, []),
        (snoozed(error=error("throttled")), 0, 1, ["throttled"]),
    ],
)
async def test_the_attempt_the_counts_and_the_error_are_those_of_the_transition(
    *,
    storage: Storage,
    lease: PodLease,
    clock: ManualClock,
    ending: Transition,
    attempt: int,
    snoozes: int,
    errors: list[str],
) -> None:
    claimed = await asked_to_cancel(storage, lease)
    clock.advance(1)
    assert await finish(storage, claimed, ending)
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.cause, job.finished_at) == (
        JobStatus.CANCELLED,
        Cause.CANCELLED,
        clock.now(),
    )
    assert (job.attempt, job.snoozes, job.crashes) == (attempt, snoozes, 0)
    assert [record.message for record in job.errors] == errors
    assert job.result is None
    assert await counters(storage) == {"enqueued": 1, "claimed": 1, "cancelled": 1}


async def test_a_success_stands_against_a_cancel_alone_and_among_others(
    storage: Storage, lease: PodLease
) -> None:
    alone, among, other = [await asked_to_cancel(storage, lease) for _ in range(3)]
    assert await finish(storage, alone, done())
    ends = [Finalization(among.claim, done("1")), Finalization(other.claim, failed())]
    assert await storage.jobs.finalize(ends) == [True, True]
    jobs = [await get_job(storage, each.claim.job_id) for each in (alone, among, other)]
    assert [job.status for job in jobs] == [JobStatus.DONE, JobStatus.DONE, JobStatus.CANCELLED]
    assert jobs[1].result == "1"


async def test_the_cool_down_of_an_overruled_transition_applies(
    storage: Storage, lease: PodLease
) -> None:
    claimed = await asked_to_cancel(storage, lease)
    await finish(storage, claimed, snoozed(cooldown=Cooldown(60 * SECOND, 3)))
    [state] = await storage.config.queues()
    assert (state.cooldown_remaining, state.cooldown_level) == (60 * SECOND, 3)


@pytest.mark.parametrize("ending", [crashed(), done("1")])
async def test_a_revival_is_overruled_whatever_it_is(
    storage: Storage, lease: PodLease, clock: ManualClock, ending: Transition
) -> None:
    claimed = await asked_to_cancel(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, claimed, ending)
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.cause, job.result) == (JobStatus.CANCELLED, Cause.CANCELLED, None)
    assert job.crashes == ending.count_crash
    assert len(job.errors) == (ending.error is not None)
