"""restore, the inverse of a cancel: jobs wait again with their old time and attempts."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueChange, Retention
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    QUEUE,
    SECOND,
    claim,
    claim_one,
    counters,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    new_job,
    only,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio

BLOCKED, PENDING, CANCELLED = JobStatus.BLOCKED, JobStatus.PENDING, JobStatus.CANCELLED
OTHER = "other"


async def cancelled(storage: Storage, *ids: JobId) -> None:
    outcome = await storage.jobs.cancel(only(*ids))
    assert set(outcome.changed) | set(outcome.requested) == set(ids)


async def restored(storage: Storage, *ids: JobId) -> dict[JobId, Refusal]:
    """Restore the jobs, and return which were refused."""
    outcome = await storage.jobs.restore(only(*ids))
    assert sorted([*outcome.changed, *outcome.refused]) == sorted(ids)
    return dict(outcome.refused)


async def hand_over(storage: Storage) -> int:
    """Deliver all handovers as their edges say, and the handovers that arise from them."""
    applied = 0
    while news := await storage.jobs.handovers(100):
        applied += await storage.jobs.deliver([delivery(each) for each in news])
    return applied


@pytest.mark.parametrize("delay", [0, 3600])
async def test_a_cancelled_job_waits_again_as_before(
    storage: Storage, clock: ManualClock, delay: int
) -> None:
    first = await enqueue_one(storage, delay=delay * SECOND, tags=("a",), priority=3)
    before = await get_job(storage, first)
    await cancelled(storage, first)
    clock.advance(60)
    assert await restored(storage, first) == {}
    job = await get_job(storage, first)
    assert (job.status, job.cause, job.finished_at) == (PENDING, Cause.RESTORED, None)
    assert (job.due_at, job.token, job.tags) == (before.due_at, before.token, before.tags)
    assert (await counters(storage))["restored"] == 1
    assert await storage.jobs.events(job_id=first) == [
        TimelineEvent(at=clock.now(), kind=EventKind.RESTORED, queue=QUEUE, job_id=first)
    ]
    if delay:
        assert await claim(storage, await register(storage)) == []
        clock.advance(delay)
    assert (await claim_one(storage, await register(storage))).claim.job_id == first


async def test_attempts_errors_and_the_time_of_a_retry_are_kept(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage, max_attempts=3)
    await run_one(storage, lease, failed(DAY))
    before = await get_job(storage, job_id)
    assert before.attempt == 1
    await cancelled(storage, job_id)
    assert await restored(storage, job_id) == {}
    job = await get_job(storage, job_id)
    assert (job.attempt, job.crashes, job.snoozes) == (1, before.crashes, before.snoozes)
    assert (job.errors, job.due_at) == (before.errors, before.due_at)
    assert await claim(storage, lease) == []
    clock.advance(DAY)
    assert (await claim_one(storage, await register(storage))).attempt == 2


async def test_a_running_job_that_was_cancelled_waits_again(
    storage: Storage, lease: PodLease
) -> None:
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await cancelled(storage, job_id)
    assert await restored(storage, job_id) == {job_id: Refusal.RUNNING}
    assert await finish(storage, claimed, failed())
    assert (await get_job(storage, job_id)).status is CANCELLED
    assert await restored(storage, job_id) == {}
    job = await get_job(storage, job_id)
    assert (job.status, job.attempt, job.cancel_requested) == (PENDING, 1, False)
    again = await claim_one(storage, lease)
    assert (again.attempt, again.cancel_requested) == (2, False)
    assert await finish(storage, again, done())


async def test_what_no_operator_cancelled_is_refused(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    expired = await enqueue_one(storage, expires_at=clock.now() + SECOND)
    parent = await enqueue_one(storage)
    child = await enqueue_one(storage, after=(After(parent),))
    await cancelled(storage, parent)
    clock.advance(1)
    await storage.jobs.expire(10)
    await hand_over(storage)
    assert (await get_job(storage, child)).cause is Cause.PARENT_FAILED
    assert await restored(storage, expired, child) == {
        expired: Refusal.FINISHED,
        child: Refusal.FINISHED,
    }


async def test_a_job_that_has_expired_meanwhile_stays_cancelled(
    storage: Storage, clock: ManualClock
) -> None:
    soon, later = clock.now() + SECOND, clock.now() + DAY
    first, second = [await enqueue_one(storage, expires_at=at) for at in (soon, later)]
    await cancelled(storage, first, second)
    clock.advance(1)
    assert await restored(storage, first, second) == {first: Refusal.EXPIRED}
    assert (await get_job(storage, first)).status is CANCELLED
    assert (await get_job(storage, second)).expires_at == later
    clock.advance(DAY)
    assert await storage.jobs.expire(10) == 1
    assert (await get_job(storage, second)).cause is Cause.EXPIRED


async def test_a_payload_that_was_not_kept_is_refused(storage: Storage) -> None:
    await storage.config.set_queue(QUEUE, QueueChange(retention=Retention(cancelled=0 * DAY)))
    job_id = await enqueue_one(storage)
    await cancelled(storage, job_id)
    assert await restored(storage, job_id) == {job_id: Refusal.FINISHED}


async def test_a_key_that_another_job_holds_is_refused(storage: Storage, lease: PodLease) -> None:
    first = await enqueue_one(storage, unique=Unique("k"))
    await cancelled(storage, first)
    second = await enqueue_one(storage, unique=Unique("k"))
    assert await restored(storage, first) == {first: Refusal.KEY_TAKEN}
    await cancelled(storage, second)
    assert await restored(storage, first, second) == {second: Refusal.KEY_TAKEN}
    [repeat] = await storage.jobs.enqueue([new_job(unique=Unique("k"))])
    assert (repeat.deduplicated, repeat.job_id) == (True, first)
    assert await run_one(storage, lease, done()) == first
    assert await restored(storage, second) == {}


async def test_a_job_that_waited_for_others_waits_for_them_again(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    parent = await enqueue_one(storage)
    at = clock.now() + DAY
    child = await enqueue_one(storage, after=(After(parent),), run_at=at)
    await cancelled(storage, child)
    assert await restored(storage, child) == {}
    job = await get_job(storage, child)
    assert (job.status, job.cause, job.waits_for) == (BLOCKED, Cause.RESTORED, (parent,))
    assert await run_one(storage, lease, done()) == parent
    await hand_over(storage)
    job = await get_job(storage, child)
    assert (job.status, job.due_at) == (PENDING, at)


async def test_a_job_whose_parents_have_ended_meanwhile_is_due(
    storage: Storage, lease: PodLease
) -> None:
    parent = await enqueue_one(storage)
    child = await enqueue_one(storage, after=(After(parent),))
    await cancelled(storage, child)
    assert await run_one(storage, lease, done()) == parent
    assert await restored(storage, child) == {}
    await hand_over(storage)
    assert (await get_job(storage, child)).status is PENDING
    assert (await claim_one(storage, lease)).claim.job_id == child


async def test_a_job_whose_parent_is_gone_without_success_is_refused(storage: Storage) -> None:
    parent = await enqueue_one(storage)
    child = await enqueue_one(storage, after=(After(parent),))
    await cancelled(storage, child)
    await storage.jobs.delete(only(parent))
    await hand_over(storage)
    assert await restored(storage, child) == {child: Refusal.PARENT_FAILED}


# -- children ----------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [QUEUE, OTHER])
@pytest.mark.parametrize("policy", ["cancel", "continue", "hold"])
async def test_children_that_were_not_told_never_hear_of_the_cancel(
    storage: Storage, lease: PodLease, policy: str, queue: str
) -> None:
    parent = await enqueue_one(storage)
    edge = After(parent, policy)  # type: ignore[arg-type]
    child = await enqueue_one(storage, queue=queue, after=(edge,))
    await cancelled(storage, parent)
    late = await storage.jobs.handovers(10)
    assert await restored(storage, parent) == {}
    assert await storage.jobs.handovers(10) == []
    assert await storage.jobs.deliver([delivery(each) for each in late]) == 0
    job = await get_job(storage, child)
    assert (job.status, job.waits_for, job.held_by) == (BLOCKED, (parent,), ())
    assert await run_one(storage, lease, done()) == parent
    assert await hand_over(storage) == 1
    assert (await get_job(storage, child)).status is PENDING


@pytest.mark.parametrize("queue", [QUEUE, OTHER])
@pytest.mark.parametrize(
    ("policy", "status"), [("cancel", CANCELLED), ("continue", PENDING), ("hold", BLOCKED)]
)
async def test_a_job_is_refused_when_children_have_acted_on_the_cancel(
    storage: Storage, lease: PodLease, policy: str, status: JobStatus, queue: str
) -> None:
    parent = await enqueue_one(storage)
    edge = After(parent, policy)  # type: ignore[arg-type]
    child = await enqueue_one(storage, queue=queue, after=(edge,))
    unheard = await enqueue_one(storage, queue=queue, after=(After(parent),))
    await cancelled(storage, parent)
    news = [each for each in await storage.jobs.handovers(10) if each.child_id == child]
    assert await storage.jobs.deliver([delivery(each) for each in news]) == 1
    assert (await get_job(storage, child)).status is status
    refusal = {} if policy == "hold" else {parent: Refusal.CHILDREN_KNOW}
    assert await restored(storage, parent) == refusal
    if refusal:
        # The others hear of the end as without the restore.
        assert await hand_over(storage) == 1
        assert (await get_job(storage, unheard)).cause is Cause.PARENT_FAILED
        return
    assert (await get_job(storage, child)).held_by == (parent,)
    assert await run_one(storage, lease, done()) == parent
    assert await hand_over(storage) == 2
    assert [(await get_job(storage, each)).status for each in (child, unheard)] == [PENDING] * 2


@pytest.mark.parametrize("policy", ["cancel", "continue", "hold"])
@pytest.mark.parametrize("parents_queue", [QUEUE, OTHER])
@pytest.mark.parametrize("is_delivered", [True, False])
async def test_a_family_that_was_cancelled_together_is_restored_together(
    storage: Storage, policy: str, parents_queue: str, is_delivered: bool
) -> None:
    lease = await register(storage, queues=(QUEUE, OTHER))
    parent = await enqueue_one(storage, queue=parents_queue)
    edge = After(parent, policy)  # type: ignore[arg-type]
    child = await enqueue_one(storage, after=(edge,))
    await cancelled(storage, parent, child)
    if is_delivered:
        await hand_over(storage)
    assert await restored(storage, parent, child) == {}
    job = await get_job(storage, child)
    assert (job.status, job.waits_for, job.held_by) == (BLOCKED, (parent,), ())
    assert await run_one(storage, lease, done(), queue=parents_queue) == parent
    await hand_over(storage)
    assert (await get_job(storage, child)).status is PENDING


@pytest.mark.parametrize("child_first", [True, False])
async def test_a_family_is_restored_by_two_calls_too(
    storage: Storage, lease: PodLease, child_first: bool
) -> None:
    parent = await enqueue_one(storage)
    child = await enqueue_one(storage, queue=OTHER, after=(After(parent),))
    await cancelled(storage, parent, child)
    await hand_over(storage)
    for each in (child, parent) if child_first else (parent, child):
        assert await restored(storage, each) == {}
    assert (await get_job(storage, child)).status is BLOCKED
    assert await run_one(storage, lease, done()) == parent
    await hand_over(storage)
    assert (await get_job(storage, child)).status is PENDING


async def test_a_restore_of_all_visits_in_portions(storage: Storage) -> None:
    ids = sorted([await enqueue_one(storage) for _ in range(7)])
    await cancelled(storage, *ids)
    which, cursor = JobFilter(statuses=(CANCELLED,)), None
    found: list[JobId] = []
    for _ in range(10):
        outcome = await storage.jobs.restore(which, cursor=cursor, limit=3)
        found += outcome.changed
        cursor = outcome.cursor
        if cursor is None:
            break
    assert found == ids
