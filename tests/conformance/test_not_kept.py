"""Jobs that retention does not keep, and results with a time of their own."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, ClaimedJob, JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueChange, Retention
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    MICROSECOND,
    QUEUE,
    SECOND,
    claim_one,
    cleaned_up,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    only,
    run_one,
)

pytestmark = pytest.mark.anyio

NOTHING = Retention(done=timedelta(0), dead=timedelta(0), cancelled=timedelta(0))


async def keep_nothing(storage: Storage, retention: Retention = NOTHING) -> None:
    await storage.config.set_queue(QUEUE, QueueChange(retention=retention))


async def claimed_one(storage: Storage, lease: PodLease) -> ClaimedJob:
    await enqueue_one(storage, payload='{"secret": 1}')
    return await claim_one(storage, lease)


@pytest.mark.parametrize("transition", [done(), dead()])
async def test_what_is_not_kept_loses_its_payload_at_once_and_its_row_a_minute_later(
    storage: Storage, lease: PodLease, clock: ManualClock, transition: Transition
) -> None:
    await keep_nothing(storage)
    claimed = await claimed_one(storage, lease)
    assert await finish(storage, claimed, transition)
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.payload) == (transition.status, "")
    clock.advance(60 * SECOND - MICROSECOND)
    await storage.jobs.cleanup(100)
    assert await finish(storage, claimed, transition)
    assert (await get_job(storage, claimed.claim.job_id)).status is transition.status
    clock.advance(MICROSECOND)
    assert await cleaned_up(storage) >= 1
    assert await storage.jobs.get([claimed.claim.job_id]) == {}


async def test_each_status_has_its_own_retention(storage: Storage, lease: PodLease) -> None:
    await keep_nothing(storage, Retention(done=timedelta(0)))
    for transition, payload in ((done(), ""), (dead(), '{"secret": 1}')):
        claimed = await claimed_one(storage, lease)
        await finish(storage, claimed, transition)
        assert (await get_job(storage, claimed.claim.job_id)).payload == payload


@pytest.mark.parametrize("transition", [failed(SECOND), done()])
async def test_an_active_or_kept_job_keeps_its_payload(
    storage: Storage, lease: PodLease, transition: Transition
) -> None:
    if transition.status is JobStatus.FAILED:
        await keep_nothing(storage)
    claimed = await claimed_one(storage, lease)
    await finish(storage, claimed, transition)
    assert (await get_job(storage, claimed.claim.job_id)).payload == '{"secret": 1}'


async def test_a_cancelled_job_that_is_not_kept_loses_its_payload(storage: Storage) -> None:
    await keep_nothing(storage)
    job_id = await enqueue_one(storage, payload='{"secret": 1}')
    await storage.jobs.cancel(only(job_id))
    job = await get_job(storage, job_id)
    assert (job.status, job.payload) == (JobStatus.CANCELLED, "")


async def test_a_repeated_id_is_still_known_within_the_minute(
    storage: Storage, lease: PodLease
) -> None:
    await keep_nothing(storage)
    claimed = await claimed_one(storage, lease)
    await finish(storage, claimed, done())
    job = await get_job(storage, claimed.claim.job_id)
    with pytest.raises(Conflict):
        await enqueue_one(storage, id=job.id, kind="other")


async def test_the_children_of_a_job_that_is_gone_know_how_it_ended(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await keep_nothing(storage)
    claimed = await claimed_one(storage, lease)
    child = await enqueue_one(storage, after=(After(claimed.claim.job_id),))
    await finish(storage, claimed, done())
    clock.advance(120)
    await storage.jobs.cleanup(100)
    [news] = await storage.jobs.handovers(10)
    assert (news.child_id, news.parent_status) == (child, JobStatus.DONE)


async def test_a_key_is_free_although_the_row_is_still_there(
    storage: Storage, lease: PodLease
) -> None:
    await keep_nothing(storage)
    await enqueue_one(storage, unique=Unique("k"))
    await run_one(storage, lease, done())
    await enqueue_one(storage, unique=Unique("k"))


async def result_of(storage: Storage, job_id: JobId) -> str | None:
    return (await get_job(storage, job_id)).result


async def test_a_result_goes_after_its_own_time_and_its_job_stays(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    short = await enqueue_one(storage, result_ttl=10 * SECOND)
    await run_one(storage, lease, done('"short"'))
    forever = await enqueue_one(storage)
    await run_one(storage, lease, done('"kept"'))
    clock.advance(10 * SECOND - MICROSECOND)
    await storage.jobs.cleanup(100)
    assert await result_of(storage, short) == '"short"'
    clock.advance(MICROSECOND)
    await storage.jobs.cleanup(100)
    assert await result_of(storage, short) is None
    assert await result_of(storage, forever) == '"kept"'
    assert (await get_job(storage, short)).status is JobStatus.DONE
