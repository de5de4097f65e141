"""A job that was taken from a worker keeps its due time, and so its place in the queue."""

from collections.abc import Awaitable, Callable

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.jobs import Cause, ClaimedJob, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    LEASE,
    SECOND,
    claim,
    claim_one,
    crashed,
    enqueue_one,
    finish,
    get_job,
    new_job,
    register,
    revive,
)

pytestmark = pytest.mark.anyio

_Taking = Callable[[Storage, ClaimedJob], Awaitable[bool]]

INTERRUPTED = Transition(
    status=JobStatus.PENDING, cause=Cause.INTERRUPTED, delay=None, hand_back=True
)


async def is_interrupted(storage: Storage, claimed: ClaimedJob) -> bool:
    return await finish(storage, claimed, INTERRUPTED)


async def is_released(storage: Storage, claimed: ClaimedJob) -> bool:
    return await storage.jobs.release([claimed.claim]) == [True]


async def is_revived(storage: Storage, claimed: ClaimedJob) -> bool:
    return await revive(storage, claimed, crashed(delay=None))


@pytest.mark.parametrize("taken", [is_interrupted, is_released, is_revived])
async def test_a_job_taken_from_its_worker_runs_before_those_due_after_it(
    storage: Storage, lease: PodLease, clock: ManualClock, taken: _Taking
) -> None:
    due_at = clock.now() - SECOND
    first = await enqueue_one(storage, run_at=due_at)
    claimed = await claim_one(storage, lease)
    await storage.jobs.enqueue([new_job() for _ in range(5)])
    clock.advance(LEASE)
    assert await taken(storage, claimed)
    job = await get_job(storage, first)
    assert (job.status, job.due_at) == (JobStatus.PENDING, due_at)
    order = await claim(storage, await register(storage), limit=6)
    assert order[0].claim.job_id == first
    assert len(order) == 6


@pytest.mark.parametrize("taken", [is_interrupted, is_released])
async def test_a_clock_that_went_back_makes_a_job_due_now_instead_of_later(
    storage: Storage, lease: PodLease, clock: ManualClock, taken: _Taking
) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    clock.step_wall(-3600)
    assert await taken(storage, claimed)
    assert (await get_job(storage, claimed.claim.job_id)).due_at == clock.now()


async def test_a_retry_that_was_interrupted_is_due_when_the_retry_was(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    snooze = Transition(status=JobStatus.PENDING, cause=Cause.SNOOZED, delay=SECOND, hand_back=True)
    assert await finish(storage, await claim_one(storage, lease), snooze)
    retry_at = clock.now() + SECOND
    clock.advance(5)
    again = await claim_one(storage, lease)
    assert await is_interrupted(storage, again)
    assert (await get_job(storage, again.claim.job_id)).due_at == retry_at
