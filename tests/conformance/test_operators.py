"""cancel, delete, requeue, run_now, expire: what each does to a job of each status."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import REFUSED, BulkOutcome, JobFilter, Refusal
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, Cause, Job, JobStatus
from forge_jobs.model.processes import ClaimState, PodLease
from forge_jobs.model.queues import QueueChange, Retention
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
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
    run_one,
    snoozed,
)
from tests.support.situations import a_job

pytestmark = pytest.mark.anyio

BLOCKED, PENDING, IN_PROGRESS = JobStatus.BLOCKED, JobStatus.PENDING, JobStatus.IN_PROGRESS
FAILED, DONE, DEAD, CANCELLED = (
    JobStatus.FAILED,
    JobStatus.DONE,
    JobStatus.DEAD,
    JobStatus.CANCELLED,
)


def refused(outcome: BulkOutcome, job_id: JobId, reason: Refusal) -> bool:
    return (outcome.changed, outcome.requested, dict(outcome.refused), outcome.cursor) == (
        (),
        (),
        {job_id: reason},
        None,
    )


_REFUSED = [
    ("cancel", DONE, Refusal.FINISHED),
    ("cancel", DEAD, Refusal.FINISHED),
    ("cancel", CANCELLED, Refusal.FINISHED),
    ("delete", IN_PROGRESS, Refusal.RUNNING),
    ("requeue", DONE, Refusal.FINISHED),
    ("requeue", IN_PROGRESS, Refusal.RUNNING),
    ("requeue", PENDING, Refusal.WAITING),
    ("requeue", BLOCKED, Refusal.WAITING),
    ("restore", BLOCKED, Refusal.WAITING),
    ("restore", PENDING, Refusal.WAITING),
    ("restore", FAILED, Refusal.WAITING),
    ("restore", IN_PROGRESS, Refusal.RUNNING),
    ("restore", DONE, Refusal.FINISHED),
    ("restore", DEAD, Refusal.FINISHED),
    ("run_now", BLOCKED, Refusal.WAITING),
    ("run_now", IN_PROGRESS, Refusal.RUNNING),
    ("run_now", DONE, Refusal.FINISHED),
    ("run_now", DEAD, Refusal.FINISHED),
    ("run_now", CANCELLED, Refusal.FINISHED),
    ("release_held", PENDING, Refusal.WAITING),
    ("release_held", FAILED, Refusal.WAITING),
    ("release_held", IN_PROGRESS, Refusal.RUNNING),
    ("release_held", DONE, Refusal.FINISHED),
    ("release_held", DEAD, Refusal.FINISHED),
    ("release_held", CANCELLED, Refusal.FINISHED),
]


def test_every_row_of_the_table_of_refusals_is_tried() -> None:
    table = {
        (verb, status, reason)
        for verb, row in REFUSED.items()
        for status, reason in row.by_status.items()
    }
    assert table == set(_REFUSED)


@pytest.mark.parametrize(("verb", "status", "reason"), _REFUSED)
async def test_a_refused_job_stays_as_it_was(
    storage: Storage, lease: PodLease, verb: str, status: JobStatus, reason: Refusal
) -> None:
    job_id = await a_job(storage, lease, status)
    before, counted = await get_job(storage, job_id), await counters(storage)
    outcome = await getattr(storage.jobs, verb)(only(job_id))
    assert refused(outcome, job_id, reason)
    assert await get_job(storage, job_id) == before
    assert await counters(storage) == counted


@pytest.mark.parametrize("verb", ["cancel", "delete", "requeue", "restore", "run_now"])
async def test_ids_that_do_not_exist_are_refused_by_name(storage: Storage, verb: str) -> None:
    missing = [new_job_id() for _ in range(3)]
    outcome = await getattr(storage.jobs, verb)(only(*missing))
    assert dict(outcome.refused) == dict.fromkeys(missing, Refusal.NOT_FOUND)
    assert (outcome.changed, outcome.requested, outcome.cursor) == ((), (), None)


@pytest.mark.parametrize("status", [BLOCKED, PENDING, FAILED])
async def test_cancel_ends_what_waits(
    storage: Storage, lease: PodLease, clock: ManualClock, status: JobStatus
) -> None:
    job_id = await a_job(storage, lease, status)
    clock.advance(1)
    outcome = await storage.jobs.cancel(only(job_id))
    assert (outcome.changed, outcome.requested, outcome.refused) == ((job_id,), (), {})
    job = await get_job(storage, job_id)
    assert (job.status, job.cause) == (CANCELLED, Cause.CANCELLED)
    assert job.finished_at == clock.now()
    assert (await counters(storage))["cancelled"] == 1
    assert await claim(storage, lease) == []


async def test_cancel_asks_the_owner_of_a_running_job(storage: Storage, lease: PodLease) -> None:
    job_id = await a_job(storage, lease, IN_PROGRESS)
    for _ in range(2):
        outcome = await storage.jobs.cancel(only(job_id))
        assert (outcome.changed, outcome.requested, outcome.refused) == ((), (job_id,), {})
    job = await get_job(storage, job_id)
    assert (job.status, job.cancel_requested) == (IN_PROGRESS, True)
    assert (await counters(storage)).get("cancelled", 0) == 0


async def test_a_requeue_clears_the_cancel_flag_of_an_earlier_life(
    storage: Storage, lease: PodLease
) -> None:
    job_id = await a_job(storage, lease, IN_PROGRESS)
    await storage.jobs.cancel(only(job_id))
    [pod] = await storage.procs.pods()
    beat = await storage.jobs.heartbeat(lease, [], LEASE)
    [its_claim] = beat.unknown
    assert await finish(storage, its_claim, failed())
    assert (await storage.jobs.requeue(only(job_id))).changed == (job_id,)
    assert not (await get_job(storage, job_id)).cancel_requested
    again = await claim_one(storage, lease)
    assert not again.cancel_requested
    beat = await storage.jobs.heartbeat(lease, [held(again)], LEASE)
    assert beat.claims == {again.claim: ClaimState.HELD}
    assert await finish(storage, again, failed(SECOND))
    assert (await get_job(storage, job_id)).status is FAILED
    assert pod.pod.host_id == lease.host_id


@pytest.mark.parametrize("status", [BLOCKED, PENDING, FAILED, DONE, DEAD, CANCELLED])
async def test_delete_removes_for_good(
    storage: Storage, lease: PodLease, status: JobStatus
) -> None:
    job_id = await a_job(storage, lease, status)
    counted = await counters(storage)
    outcome = await storage.jobs.delete(only(job_id))
    assert (outcome.changed, outcome.refused, outcome.cursor) == ((job_id,), {}, None)
    assert await storage.jobs.get([job_id]) == {}
    assert job_id not in [job.id for job in (await storage.jobs.list(JobFilter())).jobs]
    assert await claim(storage, lease) == []
    assert await counters(storage) == counted
    assert refused(await storage.jobs.delete(only(job_id)), job_id, Refusal.NOT_FOUND)


@pytest.mark.parametrize("status", [FAILED, DEAD, CANCELLED])
async def test_requeue_gives_the_whole_budget_again(
    storage: Storage, lease: PodLease, clock: ManualClock, status: JobStatus
) -> None:
    job_id = await a_job(storage, lease, status)
    token = (await get_job(storage, job_id)).token
    clock.advance(5)
    outcome = await storage.jobs.requeue(only(job_id))
    assert (outcome.changed, outcome.refused) == ((job_id,), {})
    job = await get_job(storage, job_id)
    assert (job.status, job.cause) == (PENDING, Cause.REQUEUED)
    assert (job.attempt, job.crashes, job.snoozes, job.cancel_requested) == (0, 0, 0, False)
    assert (job.due_at, job.finished_at, job.token) == (clock.now(), None, token)
    assert (await counters(storage))["requeued"] == 1
    claimed = await claim_one(storage, lease)
    assert (claimed.claim.job_id, claimed.attempt) == (job_id, 1)
    assert claimed.claim.token > token


async def test_requeue_forgets_crashes_and_snoozes(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage)
    await run_one(storage, lease, snoozed())
    claimed = await claim_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, claimed, crashed())
    lease = await register(storage)
    await run_one(storage, lease, dead())
    job = await get_job(storage, job_id)
    assert (job.attempt, job.crashes, job.snoozes) == (2, 1, 1)
    await storage.jobs.requeue(only(job_id))
    job = await get_job(storage, job_id)
    assert (job.attempt, job.crashes, job.snoozes) == (0, 0, 0)
    assert len(await claim(storage, lease, ahead=True)) == 1


async def test_a_claim_from_before_the_requeue_is_worthless(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    old = await claim_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, old, dead())
    await storage.jobs.requeue(only(old.claim.job_id))
    new = await claim_one(storage, await register(storage))
    assert new.attempt == old.attempt
    assert not await finish(storage, old, done())
    assert await finish(storage, new, done())


@pytest.mark.parametrize("status", [PENDING, FAILED])
async def test_run_now_makes_a_job_due_and_leaves_its_attempts(
    storage: Storage, lease: PodLease, clock: ManualClock, status: JobStatus
) -> None:
    job_id = await a_job(storage, lease, status, delay=DAY if status is PENDING else None)
    before: Job = await get_job(storage, job_id)
    assert await claim(storage, lease) == []
    clock.advance(1)
    assert (await storage.jobs.run_now(only(job_id))).changed == (job_id,)
    job = await get_job(storage, job_id)
    assert (job.status, job.attempt, job.due_at) == (status, before.attempt, clock.now())
    assert (await claim_one(storage, lease)).attempt == before.attempt + 1


async def test_run_now_moves_nothing_back_that_is_due_already(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    due_at = clock.now()
    first, second = await enqueue_one(storage), await enqueue_one(storage)
    clock.advance(1)
    outcome = await storage.jobs.run_now(only(first))
    assert outcome.changed == (first,)
    assert (await get_job(storage, first)).due_at == due_at
    assert [c.claim.job_id for c in await claim(storage, lease, limit=2)] == [first, second]


@pytest.mark.parametrize("status", [BLOCKED, PENDING, FAILED])
async def test_a_waiting_job_expires_at_the_exact_instant(
    storage: Storage, lease: PodLease, clock: ManualClock, status: JobStatus
) -> None:
    expires_at = clock.now() + LEASE
    job_id = await a_job(storage, lease, status, expires_at=expires_at)
    clock.advance(LEASE - MICROSECOND)
    assert await storage.jobs.expire(10) == 0
    clock.advance(MICROSECOND)
    assert await storage.jobs.expire(10) == 1
    job = await get_job(storage, job_id)
    assert (job.status, job.cause, job.finished_at) == (CANCELLED, Cause.EXPIRED, clock.now())
    assert await storage.jobs.expire(10) == 0
    assert (await counters(storage))["expired"] == 1


@pytest.mark.parametrize("status", [IN_PROGRESS, DONE, DEAD, CANCELLED])
async def test_what_runs_or_has_ended_does_not_expire(
    storage: Storage, lease: PodLease, clock: ManualClock, status: JobStatus
) -> None:
    job_id = await a_job(storage, lease, status, expires_at=clock.now() + SECOND)
    before = await get_job(storage, job_id)
    clock.advance(SECOND)
    assert await storage.jobs.expire(10) == 0
    assert await get_job(storage, job_id) == before


async def test_expire_is_bounded_and_ends(storage: Storage, clock: ManualClock) -> None:
    expires_at = clock.now() + SECOND
    await storage.jobs.enqueue([new_job(expires_at=expires_at) for _ in range(7)])
    clock.advance(1)
    assert [await storage.jobs.expire(3) for _ in range(4)] == [3, 3, 1, 0]
    assert (await counters(storage))["expired"] == 7


async def test_an_expired_parent_hands_its_end_over(storage: Storage, clock: ManualClock) -> None:
    parent = await enqueue_one(storage, expires_at=clock.now() + SECOND)
    await enqueue_one(storage, after=(After(parent),))
    clock.advance(1)
    await storage.jobs.expire(10)
    [news] = await storage.jobs.handovers(10)
    assert news.parent_status is CANCELLED


async def test_a_requeue_clears_the_result_and_an_expiry_that_has_passed(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    soon, later = clock.now() + 10 * SECOND, clock.now() + DAY
    jobs = [await enqueue_one(storage, expires_at=expiry) for expiry in (soon, later, None)]
    for _ in jobs:
        await run_one(storage, lease, dead(result="1"))
    clock.advance(10)
    assert (await storage.jobs.requeue(only(*jobs))).changed == tuple(jobs)
    requeued = [await get_job(storage, job_id) for job_id in jobs]
    assert [job.expires_at for job in requeued] == [None, later, None]
    assert [job.result for job in requeued] == [None] * 3
    assert len(await claim(storage, lease, limit=3)) == 3


async def test_a_job_whose_payload_was_not_kept_cannot_be_requeued(storage: Storage) -> None:
    await storage.config.set_queue(QUEUE, QueueChange(retention=Retention(cancelled=0 * DAY)))
    job_id = await enqueue_one(storage)
    await storage.jobs.cancel(only(job_id))
    assert refused(await storage.jobs.requeue(only(job_id)), job_id, Refusal.FINISHED)
    assert (await get_job(storage, job_id)).status is CANCELLED
