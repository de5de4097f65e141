"""Records of runs that were handed back."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    LEASE,
    SECOND,
    claim_one,
    crashed,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    only,
    rate_limited,
    revive,
    run_one,
    snoozed,
)

pytestmark = pytest.mark.anyio


async def test_the_first_snooze_is_kept_until_a_requeue(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage)
    clock.advance(SECOND)
    await run_one(storage, lease, failed())
    claimed = await claim_one(storage, lease)
    assert claimed.snoozed_since is None
    first = clock.now()
    assert await finish(storage, claimed, snoozed(SECOND))
    for transition in (snoozed(), failed(), rate_limited(), failed()):
        clock.advance(SECOND)
        claimed = await claim_one(storage, lease)
        assert claimed.snoozed_since == first
        assert await finish(storage, claimed, transition)
    await storage.jobs.requeue(only(job_id))
    claimed = await claim_one(storage, lease)
    assert claimed.snoozed_since is None
    assert await finish(storage, claimed, snoozed())
    assert (await claim_one(storage, lease)).snoozed_since == clock.now()


async def test_a_wait_for_a_limit_counts_toward_nothing(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage)
    for _ in range(3):
        await run_one(storage, lease, rate_limited())
    job = await get_job(storage, job_id)
    assert (job.attempt, job.snoozes, job.crashes, job.errors) == (0, 0, 0, ())
    claimed = await claim_one(storage, lease)
    assert (claimed.attempt, claimed.snoozed_since) == (1, None)


async def test_the_limit_that_a_job_waits_for_is_shown_while_it_waits(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    scope = "gh: a'b %s {}"
    job_id = await enqueue_one(storage)
    await run_one(storage, lease, rate_limited(SECOND, rate_limit=scope))
    job = await get_job(storage, job_id)
    assert (job.status, job.rate_limit) == (JobStatus.PENDING, scope)
    clock.advance(SECOND)
    await run_one(storage, lease, rate_limited(rate_limit="other"))
    assert (await get_job(storage, job_id)).rate_limit == "other"
    claimed = await claim_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, claimed, crashed())
    assert (await get_job(storage, job_id)).rate_limit is None


@pytest.mark.parametrize("transition", [failed(), done(), snoozed()], ids=lambda one: one.cause)
async def test_after_another_end_no_limit_is_shown(
    storage: Storage, lease: PodLease, transition: Transition
) -> None:
    job_id = await enqueue_one(storage)
    await run_one(storage, lease, rate_limited())
    await run_one(storage, lease, transition)
    assert (await get_job(storage, job_id)).rate_limit is None
