"""with_parents: a job, whole, and the jobs that it comes after."""

import pytest

from forge_jobs.model.edges import EdgeState, Relative
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, Job, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import DAY, dead, done, enqueue_one, get_job, only, run_one

pytestmark = pytest.mark.anyio


async def with_parents(storage: Storage, job_id: JobId) -> tuple[Job, tuple[Relative, ...]]:
    found = await storage.jobs.with_parents(job_id)
    assert found is not None
    return found


async def hand_over(storage: Storage) -> None:
    while news := await storage.jobs.handovers(100):
        await storage.jobs.deliver([delivery(each) for each in news])


async def test_it_is_the_job_of_get_and_the_parents_of_kin(
    storage: Storage, lease: PodLease
) -> None:
    gone = await enqueue_one(storage)
    failed = await enqueue_one(storage)
    waits = await enqueue_one(storage, queue="other", delay=DAY)
    edges = (After(gone, "continue"), After(failed, "hold"), After(waits, "note"))
    child = await enqueue_one(storage, after=edges, payload='{"x": [1, "ü"]}', tags=("a", "b"))
    last = await enqueue_one(storage, after=(After(child),))
    assert await run_one(storage, lease, done()) == gone
    assert await run_one(storage, lease, dead()) == failed
    await hand_over(storage)
    await storage.jobs.delete(only(gone))
    job, parents = await with_parents(storage, child)
    assert job == await get_job(storage, child)
    assert (job.waits_for, job.held_by) == ((failed, waits), (failed,))
    assert parents == (await storage.jobs.kin([child]))[child].parents
    assert [(each.id, each.status, each.edge) for each in parents] == [
        (gone, None, EdgeState.SETTLED),
        (failed, JobStatus.DEAD, EdgeState.HELD),
        (waits, JobStatus.PENDING, EdgeState.OPEN),
    ]
    _, [parent] = await with_parents(storage, last)
    assert (parent.id, parent.status) == (child, JobStatus.BLOCKED)


async def test_a_job_that_has_ended_keeps_its_parents(storage: Storage, lease: PodLease) -> None:
    parent = await enqueue_one(storage)
    child = await enqueue_one(storage, after=(After(parent, "hold"),))
    assert await run_one(storage, lease, dead()) == parent
    await hand_over(storage)
    await storage.jobs.cancel(only(child))
    job, [seen] = await with_parents(storage, child)
    assert (job.status, job.waits_for, job.held_by) == (JobStatus.CANCELLED, (), ())
    assert job == await get_job(storage, child)
    assert (seen.id, seen.edge) == (parent, EdgeState.HELD)


async def test_a_job_without_parents_and_no_job(storage: Storage, lease: PodLease) -> None:
    alone = await enqueue_one(storage)
    assert await with_parents(storage, alone) == (await get_job(storage, alone), ())
    assert await run_one(storage, lease, dead()) == alone
    assert await with_parents(storage, alone) == (await get_job(storage, alone), ())
    assert await storage.jobs.with_parents(new_job_id()) is None
