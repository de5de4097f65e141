"""Edges that note how the parent ended, and the counts of a job's parents by state."""

import asyncio

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.model.edges import EdgeState, Tally
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, Cause, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Delivery
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    claim,
    counters,
    dead,
    done,
    enqueue_one,
    finish,
    get_job,
    only,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio


async def noting(storage: Storage, count: int) -> tuple[list[JobId], JobId]:
    """Return parents in one queue, and a job in another that notes their ends."""
    parents = [await enqueue_one(storage) for _ in range(count)]
    edges = tuple(After(each, "note") for each in parents)
    return parents, await enqueue_one(storage, queue="after", after=edges)


async def tell(storage: Storage) -> int:
    return await storage.jobs.deliver([delivery(one) for one in await storage.jobs.handovers(100)])


async def tally(storage: Storage, job_id: JobId) -> Tally:
    return (await storage.jobs.tallies([job_id]))[job_id]


async def test_an_edge_notes_how_the_parent_ended_and_the_last_one_frees_the_job(
    storage: Storage, lease: PodLease
) -> None:
    parents, child = await noting(storage, 4)
    assert await tally(storage, child) == Tally(open=4)
    assert await run_one(storage, lease, done()) == parents[0]
    assert await run_one(storage, lease, dead()) == parents[1]
    await storage.jobs.cancel(only(parents[2]))
    assert await tell(storage) == 3
    assert await tally(storage, child) == Tally(open=1, settled=1, dead=1, cancelled=1)
    job = await get_job(storage, child)
    assert (job.status, job.waits_for, job.held_by) == (JobStatus.BLOCKED, (parents[3],), ())
    kin = (await storage.jobs.kin([child]))[child]
    assert [each.edge for each in kin.parents] == [
        EdgeState.SETTLED,
        EdgeState.DEAD,
        EdgeState.CANCELLED,
        EdgeState.OPEN,
    ]

    assert await run_one(storage, lease, dead()) == parents[3]
    assert await tell(storage) == 1
    job = await get_job(storage, child)
    assert (job.status, job.cause) == (JobStatus.PENDING, Cause.PARENTS_SETTLED)
    assert await tally(storage, child) == Tally(settled=1, dead=2, cancelled=1)
    assert (await counters(storage, "after"))["parents_settled"] == 1


async def test_what_was_noted_stays_when_the_parents_are_removed(
    storage: Storage, lease: PodLease
) -> None:
    parents, child = await noting(storage, 3)
    await run_one(storage, lease, done())
    await run_one(storage, lease, dead())
    await tell(storage)
    await storage.jobs.delete(only(*parents[:2]))
    assert await storage.jobs.get(parents[:2]) == {}
    assert await tally(storage, child) == Tally(open=1, settled=1, dead=1)
    # A parent that is deleted before its end counts as cancelled.
    await storage.jobs.delete(only(parents[2]))
    await tell(storage)
    assert await tally(storage, child) == Tally(settled=1, dead=1, cancelled=1)
    assert (await get_job(storage, child)).status is JobStatus.PENDING


async def test_a_requeue_waits_for_what_runs_again_and_keeps_what_was_noted(
    storage: Storage, lease: PodLease
) -> None:
    parents, child = await noting(storage, 3)
    await run_one(storage, lease, dead())
    await run_one(storage, lease, dead())
    await run_one(storage, lease, done())
    await tell(storage)
    await storage.jobs.cancel(only(child))
    await storage.jobs.delete(only(parents[0]))
    assert (await storage.jobs.requeue(only(parents[1]))).changed == (parents[1],)
    # The job has ended, and hears of no other end.
    assert await tally(storage, child) == Tally(settled=1, dead=2)
    assert (await storage.jobs.requeue(only(child))).changed == (child,)
    assert await tally(storage, child) == Tally(open=1, settled=1, dead=1)
    assert (await get_job(storage, child)).waits_for == (parents[1],)
    await run_one(storage, lease, done())
    # The parent that was removed meanwhile says again how it ended.
    assert await tell(storage) == 2
    assert await tally(storage, child) == Tally(settled=2, dead=1)
    assert (await get_job(storage, child)).status is JobStatus.PENDING


async def two(storage: Storage) -> tuple[JobId, JobId, JobId]:
    """Return a parent that runs, one that waits elsewhere, and a job that notes their ends."""
    first, last = await enqueue_one(storage), await enqueue_one(storage, queue="elsewhere")
    edges = (After(first, "note"), After(last, "note"))
    return first, last, await enqueue_one(storage, queue="after", after=edges)


async def test_the_next_end_of_a_requeued_parent_is_noted_in_place_of_the_last(
    storage: Storage, lease: PodLease
) -> None:
    parent, last, child = await two(storage)
    ends = ((dead(), Tally(open=1, dead=1)), (dead(), Tally(open=1, dead=1)))
    for end, noted in (*ends, (done(), Tally(open=1, settled=1))):
        assert await run_one(storage, lease, end) == parent
        assert await tell(storage) == 1
        assert await tally(storage, child) == noted
        assert (await get_job(storage, child)).waits_for == (last,)
        await storage.jobs.requeue(only(parent))
    await storage.jobs.cancel(only(last))
    assert await tell(storage) == 1
    assert await tally(storage, child) == Tally(settled=1, cancelled=1)
    assert (await get_job(storage, child)).status is JobStatus.PENDING
    assert (await counters(storage, "after"))["parents_settled"] == 1


async def test_a_requeued_job_hears_of_parents_that_are_requeued_later(
    storage: Storage, lease: PodLease
) -> None:
    parent, last, child = await two(storage)
    await run_one(storage, lease, dead())
    await tell(storage)
    await storage.jobs.cancel(only(child))
    await storage.jobs.requeue(only(child))
    assert await tally(storage, child) == Tally(open=1, dead=1)
    await storage.jobs.requeue(only(parent))
    assert await run_one(storage, lease, done()) == parent
    assert await tell(storage) == 1
    assert await tally(storage, child) == Tally(open=1, settled=1)
    assert (await get_job(storage, child)).waits_for == (last,)


async def test_a_parent_that_is_held_after_all_keeps_the_job_waiting(
    storage: Storage, lease: PodLease
) -> None:
    parent, last, child = await two(storage)
    for action, noted in (("dead", Tally(open=1, dead=1)), ("hold", Tally(open=1, held=1))):
        assert await run_one(storage, lease, dead()) == parent
        told = [Delivery(each, action) for each in await storage.jobs.handovers(10)]
        assert await storage.jobs.deliver(told) == 1
        assert await tally(storage, child) == noted
        await storage.jobs.requeue(only(parent))
    await storage.jobs.cancel(only(last))
    await tell(storage)
    assert (await get_job(storage, child)).status is JobStatus.BLOCKED
    assert await run_one(storage, lease, done()) == parent
    await tell(storage)
    assert (await get_job(storage, child)).status is JobStatus.PENDING


async def test_a_requeue_of_a_job_whose_parents_have_ended_runs_at_once(
    storage: Storage, lease: PodLease
) -> None:
    _, child = await noting(storage, 1)
    await run_one(storage, lease, dead())
    await tell(storage)
    await storage.jobs.cancel(only(child))
    assert (await storage.jobs.requeue(only(child))).changed == (child,)
    assert (await get_job(storage, child)).status is JobStatus.PENDING
    assert await tally(storage, child) == Tally(dead=1)


async def test_two_parents_that_end_at_once_are_both_noted(storage: Storage) -> None:
    lease = await register(storage)
    for _ in range(3):
        _, child = await noting(storage, 2)
        first, second = await claim(storage, lease, limit=2)
        ends = [finish(storage, first, done()), finish(storage, second, dead())]
        assert await asyncio.gather(*ends) == [True, True]
        found = [delivery(each) for each in await storage.jobs.handovers(10)]
        assert len(found) == 2
        await asyncio.gather(*(storage.jobs.deliver([each]) for each in found * 2))
        # A call that met the lock of another left the handover.
        await tell(storage)
        assert await tally(storage, child) == Tally(settled=1, dead=1)
        assert (await get_job(storage, child)).status is JobStatus.PENDING
    assert (await counters(storage, "after"))["parents_settled"] == 3


async def test_only_jobs_that_come_after_others_have_a_tally(storage: Storage) -> None:
    alone = await enqueue_one(storage)
    child = await enqueue_one(storage, after=(After(alone, "hold"),))
    found = await storage.jobs.tallies([alone, child, new_job_id()])
    assert found == {child: Tally(open=1)}
    with pytest.raises(InvalidInput, match="at most 100"):
        await storage.jobs.tallies([new_job_id() for _ in range(101)])
