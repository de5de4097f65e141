"""Jobs that wait for jobs and are requeued, held, released, or whose parents are gone."""

from collections.abc import Sequence

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, Job, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    claim_one,
    counters,
    dead,
    done,
    enqueue_one,
    finish,
    get_job,
    new_job,
    only,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio

BLOCKED, PENDING, CANCELLED = JobStatus.BLOCKED, JobStatus.PENDING, JobStatus.CANCELLED
ENDED_BADLY = JobFilter(statuses=(JobStatus.DEAD, CANCELLED))


async def hand_over(storage: Storage) -> int:
    """Deliver all handovers as their edges say, and the handovers that arise from them."""
    applied = 0
    while news := await storage.jobs.handovers(100):
        applied += await storage.jobs.deliver([delivery(each) for each in news])
    return applied


async def family(
    storage: Storage, on_failure: str = "cancel", *, queue: str = "default"
) -> tuple[JobId, JobId]:
    """Enqueue a parent in the default queue, and a child."""
    parent = await enqueue_one(storage)
    edge = After(parent, on_failure)  # type: ignore[arg-type]
    return parent, await enqueue_one(storage, queue=queue, after=(edge,))


async def dead_family(
    storage: Storage, lease: PodLease, on_failure: str = "cancel", *, queue: str = "default"
) -> tuple[JobId, JobId]:
    """The same after the parent has died and the handover has reached the child."""
    parent, child = await family(storage, on_failure, queue=queue)
    assert await run_one(storage, lease, dead()) == parent
    await hand_over(storage)
    return parent, child


async def status_of(storage: Storage, *ids: JobId) -> list[JobStatus]:
    found = await storage.jobs.get(ids)
    return [found[job_id].status for job_id in ids]


async def held(storage: Storage, job_id: JobId) -> Job:
    job = await get_job(storage, job_id)
    assert job.status is BLOCKED
    assert job.held_by
    return job


async def purge(storage: Storage, clock: ManualClock, *gone: JobId) -> None:
    """Let retention remove what ended long ago."""
    clock.advance(8 * DAY)
    await storage.jobs.cleanup(1_000)
    assert await storage.jobs.get(gone) == {}


# -- held edges --------------------------------------------------------------------------------


async def test_a_held_job_says_which_parent_holds_it(storage: Storage, lease: PodLease) -> None:
    others = [await enqueue_one(storage, delay=DAY) for _ in range(2)]
    parent = await enqueue_one(storage, priority=-1)
    edges = tuple(After(one, "hold") for one in (*others, parent))
    child = await enqueue_one(storage, after=edges)
    assert (await get_job(storage, child)).held_by == ()
    assert await run_one(storage, lease, dead()) == parent
    await hand_over(storage)
    job = await get_job(storage, child)
    assert (job.waits_for, job.held_by) == (tuple(sorted([*others, parent])), (parent,))


async def test_a_released_job_runs_without_the_parent_that_held_it(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    _, child = await dead_family(storage, lease, "hold")
    clock.advance(1)
    outcome = await storage.jobs.release_held(only(child))
    assert (outcome.changed, outcome.refused) == ((child,), {})
    job = await get_job(storage, child)
    assert (job.status, job.cause, job.due_at) == (PENDING, Cause.PARENTS_SETTLED, clock.now())
    assert (job.waits_for, job.held_by) == ((), ())
    assert (await counters(storage))["parents_settled"] == 1
    [event] = await storage.jobs.events(job_id=child)
    assert (event.kind, event.at) == (EventKind.RELEASED_HELD, clock.now())
    assert (await claim_one(storage, lease)).claim.job_id == child


async def test_a_release_leaves_the_edges_to_parents_that_have_not_ended(
    storage: Storage, lease: PodLease
) -> None:
    later = await enqueue_one(storage, delay=DAY)
    parent = await enqueue_one(storage)
    child = await enqueue_one(storage, after=(After(later), After(parent, "hold")))
    assert await run_one(storage, lease, dead()) == parent
    await hand_over(storage)
    assert (await storage.jobs.release_held(only(child))).changed == (child,)
    job = await get_job(storage, child)
    assert (job.status, job.waits_for, job.held_by) == (BLOCKED, (later,), ())
    await storage.jobs.run_now(only(later))
    assert await run_one(storage, lease, done()) == later
    await hand_over(storage)
    assert await status_of(storage, child) == [PENDING]


async def test_only_held_jobs_can_be_released(storage: Storage, lease: PodLease) -> None:
    running = (await _claimed(storage, lease)).id
    parent, blocked = await family(storage)
    gone = await enqueue_one(storage)
    await storage.jobs.cancel(only(gone))
    outcome = await storage.jobs.release_held(only(running, parent, blocked, gone))
    assert outcome.changed == ()
    assert dict(outcome.refused) == {
        running: Refusal.RUNNING,
        parent: Refusal.WAITING,
        blocked: Refusal.WAITING,
        gone: Refusal.FINISHED,
    }


async def _claimed(storage: Storage, lease: PodLease) -> Job:
    await enqueue_one(storage)
    return await get_job(storage, (await claim_one(storage, lease)).claim.job_id)


@pytest.mark.parametrize("queue", ["default", "other"])
async def test_success_of_a_requeued_parent_frees_the_job_that_it_held(
    storage: Storage, lease: PodLease, queue: str
) -> None:
    parent, child = await dead_family(storage, lease, "hold", queue=queue)
    assert (await held(storage, child)).held_by == (parent,)
    await storage.jobs.requeue(only(parent))
    assert await run_one(storage, lease, dead()) == parent
    await hand_over(storage)
    assert (await held(storage, child)).held_by == (parent,)
    await storage.jobs.requeue(only(parent))
    assert await run_one(storage, lease, done()) == parent
    assert await hand_over(storage) == 1
    job = await get_job(storage, child)
    assert (job.status, job.cause) == (PENDING, Cause.PARENTS_SETTLED)


async def test_news_of_a_parent_that_was_requeued_meanwhile_are_void(
    storage: Storage, lease: PodLease
) -> None:
    parent, child = await family(storage)
    assert await run_one(storage, lease, dead()) == parent
    news = await storage.jobs.handovers(10)
    assert len(news) == 1
    await storage.jobs.requeue(only(parent))
    assert await storage.jobs.handovers(10) == []
    assert await storage.jobs.deliver([delivery(each) for each in news]) == 0
    assert await status_of(storage, child) == [BLOCKED]
    assert await run_one(storage, lease, done()) == parent
    assert await hand_over(storage) == 1
    assert await status_of(storage, child) == [PENDING]


# -- requeued children -------------------------------------------------------------------------


@pytest.mark.parametrize("on_failure", ["cancel", "continue", "hold"])
@pytest.mark.parametrize("queue", ["default", "a", "zz"])
async def test_all_that_ended_badly_is_requeued_in_the_order_of_its_edges(
    storage: Storage, lease: PodLease, on_failure: str, queue: str
) -> None:
    parent, child = await dead_family(storage, lease, on_failure, queue=queue)
    grandchild = await enqueue_one(storage, after=(After(child, on_failure),))  # type: ignore[arg-type]
    await storage.jobs.cancel(only(child))
    await hand_over(storage)
    await storage.jobs.cancel(only(grandchild))

    outcome = await storage.jobs.requeue(ENDED_BADLY)

    assert set(outcome.changed) == {parent, child, grandchild}
    assert await status_of(storage, parent, child, grandchild) == [PENDING, BLOCKED, BLOCKED]
    job = await get_job(storage, child)
    assert (job.cause, job.waits_for, job.held_by) == (Cause.REQUEUED, (parent,), ())
    for job_id in (parent, child, grandchild):
        lease = await register(storage, queues=("default", queue))
        its_queue = queue if job_id == child else "default"
        assert await run_one(storage, lease, done(), queue=its_queue) == job_id
        await hand_over(storage)


@pytest.mark.parametrize(
    ("on_failure", "status"),
    [("cancel", BLOCKED), ("hold", BLOCKED), ("continue", PENDING)],
)
async def test_a_child_requeued_alone_is_held_by_a_dead_parent_unless_it_goes_on_without(
    storage: Storage, lease: PodLease, on_failure: str, status: JobStatus
) -> None:
    parent, child = await dead_family(storage, lease, on_failure)
    await storage.jobs.cancel(only(child))

    assert (await storage.jobs.requeue(only(child))).changed == (child,)

    assert await status_of(storage, child) == [status]
    if status is BLOCKED:
        assert (await held(storage, child)).held_by == (parent,)
        assert await storage.jobs.handovers(10) == []
        await storage.jobs.requeue(only(parent))
        assert await run_one(storage, lease, done()) == parent
        await hand_over(storage)
        assert await status_of(storage, child) == [PENDING]


async def test_a_second_death_of_the_parent_cancels_a_requeued_child_again(
    storage: Storage, lease: PodLease
) -> None:
    parent, child = await dead_family(storage, lease)
    await storage.jobs.requeue(only(child))
    await storage.jobs.requeue(only(parent))
    assert await run_one(storage, lease, dead()) == parent
    assert await hand_over(storage) == 1
    job = await get_job(storage, child)
    assert (job.status, job.cause) == (CANCELLED, Cause.PARENT_FAILED)


async def test_a_requeued_child_whose_parents_are_done_is_due_now(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    _, child = await family(storage)
    await run_one(storage, lease, done())
    await hand_over(storage)
    assert await run_one(storage, lease, dead()) == child
    clock.advance(1)
    await storage.jobs.requeue(only(child))
    job = await get_job(storage, child)
    assert (job.status, job.due_at) == (PENDING, clock.now())


async def test_a_child_that_was_released_waits_for_no_dead_parent_when_it_is_requeued(
    storage: Storage, lease: PodLease
) -> None:
    parent, child = await dead_family(storage, lease, "hold")
    await storage.jobs.release_held(only(child))
    assert await run_one(storage, lease, dead()) == child
    await storage.jobs.requeue(only(child))
    assert await status_of(storage, child) == [PENDING]
    await storage.jobs.cancel(only(child))
    await storage.jobs.requeue(only(parent, child))
    assert await status_of(storage, parent, child) == [PENDING, BLOCKED]


async def test_an_end_of_the_parent_while_its_child_had_ended_counts_at_the_requeue(
    storage: Storage, lease: PodLease
) -> None:
    _, child = await family(storage)
    await storage.jobs.cancel(only(child))
    await run_one(storage, lease, done())
    await hand_over(storage)
    await storage.jobs.requeue(only(child))
    assert await status_of(storage, child) == [PENDING]


async def test_a_requeue_opens_only_the_edges_to_parents_that_are_not_done(
    storage: Storage, lease: PodLease
) -> None:
    first, second = [await enqueue_one(storage) for _ in range(2)]
    child = await enqueue_one(storage, after=(After(first), After(second)))
    assert await run_one(storage, lease, done()) == first
    assert await run_one(storage, lease, dead()) == second
    await hand_over(storage)
    assert (await storage.jobs.requeue(only(child, second))).changed == (second, child)
    assert (await get_job(storage, child)).waits_for == (second,)


async def test_a_chain_is_requeued_whole(storage: Storage, lease: PodLease) -> None:
    chain = [new_job()]
    for _ in range(4):
        chain.append(new_job(after=(After(chain[-1].id),)))
    await storage.jobs.enqueue(chain)
    await run_one(storage, lease, dead())
    await hand_over(storage)
    ids = [request.id for request in chain]
    assert (await storage.jobs.requeue(ENDED_BADLY)).changed == tuple(ids)
    for job_id in ids:
        assert await run_one(storage, lease, done()) == job_id
        await hand_over(storage)


# -- parents that are gone ---------------------------------------------------------------------


@pytest.mark.parametrize("on_failure", ["cancel", "hold"])
async def test_a_parent_purged_after_success_counts_as_success(
    storage: Storage, lease: PodLease, clock: ManualClock, on_failure: str
) -> None:
    parent, child = await dead_family(storage, lease, on_failure)
    await storage.jobs.cancel(only(child))
    await storage.jobs.requeue(only(parent))
    assert await run_one(storage, lease, done()) == parent
    await hand_over(storage)
    await purge(storage, clock, parent)
    assert (await storage.jobs.requeue(only(child))).changed == (child,)
    assert await status_of(storage, child) == [PENDING]


async def test_news_of_a_purged_parent_reach_a_child_that_was_requeued_before(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    parent, child = await family(storage)
    await storage.jobs.cancel(only(child))
    assert await run_one(storage, lease, done()) == parent
    await purge(storage, clock, parent)
    assert (await storage.jobs.requeue(only(child))).changed == (child,)
    await hand_over(storage)
    assert await status_of(storage, child) == [PENDING]


@pytest.mark.parametrize(
    ("on_failure", "status"), [("cancel", CANCELLED), ("hold", BLOCKED), ("continue", PENDING)]
)
async def test_of_a_parent_that_is_gone_without_success_the_edge_decides(
    storage: Storage, lease: PodLease, on_failure: str, status: JobStatus
) -> None:
    parent, child = await dead_family(storage, lease, on_failure)
    await storage.jobs.cancel(only(child))
    await storage.jobs.delete(only(parent))
    await hand_over(storage)
    outcome = await storage.jobs.requeue(only(child))
    refused = {child: Refusal.PARENT_FAILED} if status is CANCELLED else {}
    assert dict(outcome.refused) == refused
    assert await status_of(storage, child) == [status]
    if status is BLOCKED:
        assert (await held(storage, child)).held_by == (parent,)
        assert (await storage.jobs.release_held(only(child))).changed == (child,)
        assert await status_of(storage, child) == [PENDING]


@pytest.mark.parametrize("is_purged", [True, False])
async def test_no_child_waits_for_a_dead_parent_that_is_removed(
    storage: Storage, lease: PodLease, clock: ManualClock, *, is_purged: bool
) -> None:
    parent, child = await dead_family(storage, lease)
    await storage.jobs.requeue(only(child))
    await held(storage, child)
    if is_purged:
        clock.advance(30 * DAY)
        await storage.jobs.cleanup(1_000)
    else:
        await storage.jobs.delete(only(parent))
    assert await storage.jobs.get([parent]) == {}
    assert await hand_over(storage) == 1
    job = await get_job(storage, child)
    assert (job.status, job.cause) == (CANCELLED, Cause.PARENT_FAILED)


async def test_a_job_of_the_id_of_a_removed_parent_is_another_job(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    parent, child = await dead_family(storage, lease, "hold")
    await storage.jobs.delete(only(parent))
    await hand_over(storage)
    clock.advance(1)
    again: Sequence[object] = [new_job(id=parent)]
    await storage.jobs.enqueue(again)  # type: ignore[arg-type]
    await enqueue_one(storage, after=(After(parent),))
    assert await run_one(storage, lease, done()) == parent
    assert await hand_over(storage) == 1
    assert (await held(storage, child)).held_by == (parent,)


async def test_a_child_that_runs_again_after_all_is_told_nothing_twice(
    storage: Storage, lease: PodLease
) -> None:
    parent, child = await family(storage)
    assert await run_one(storage, lease, dead()) == parent
    stale = await storage.jobs.handovers(10)
    await storage.jobs.deliver([delivery(each) for each in stale])
    await storage.jobs.requeue(only(parent, child))
    assert await storage.jobs.deliver([delivery(each) for each in stale]) == 0
    assert await status_of(storage, child) == [BLOCKED]
    assert await finish(storage, await claim_one(storage, lease), done())
    assert await hand_over(storage) == 1
    assert await status_of(storage, child) == [PENDING]
