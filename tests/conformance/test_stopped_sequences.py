"""Sequences that stop, many of whose jobs are cancelled or expire while they wait."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.edges import EdgeState
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus, Line
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import QUEUE, SECOND, dead, done, finish, new_job, only, run_one
from tests.support.lines import claim_due, edges_of, in_line, order_of, tell

pytestmark = pytest.mark.anyio

_JOBS = 40


@pytest.mark.parametrize("expires", [True, False])
async def test_a_sequence_that_ends_as_a_whole_takes_few_hand_overs_for_each_job(
    storage: Storage, clock: ManualClock, expires: bool
) -> None:
    line = [
        new_job(sequence=Line("k", "stop"), expires_at=clock.now() + SECOND) for _ in range(_JOBS)
    ]
    await storage.jobs.enqueue(line)
    if expires:
        clock.advance(timedelta(minutes=1))
        assert await storage.jobs.expire(1_000) == _JOBS
    else:
        assert len((await storage.jobs.cancel(JobFilter(queues=(QUEUE,)))).changed) == _JOBS
    told = 0
    while found := await storage.jobs.handovers(100):
        told += len(found)
        assert told < 8 * _JOBS, "each job comes to wait for all before"
        await storage.jobs.deliver([delivery(each) for each in found])


async def test_jobs_that_are_cancelled_one_by_one_make_no_job_wait_for_all_of_them(
    storage: Storage, lease: PodLease
) -> None:
    head, *between, last = await in_line(storage, 6, "stop")
    assert await run_one(storage, lease, dead()) == head
    await tell(storage)
    for job_id in between:
        await storage.jobs.cancel(only(job_id))
        await tell(storage)
    assert await edges_of(storage, last) == {between[-1]: EdgeState.HELD}


async def test_behind_jobs_that_were_cancelled_none_overtakes_the_head(
    storage: Storage, lease: PodLease
) -> None:
    head, *between, last = await in_line(storage, 6, "stop")
    [running] = await claim_due(storage, lease)
    await storage.jobs.cancel(only(*between))
    await tell(storage)
    edges = await edges_of(storage, last)
    assert edges.pop(head) is EdgeState.OPEN
    assert set(edges.values()) == {EdgeState.HELD}
    await storage.jobs.release_held(only(last))
    assert await claim_due(storage, lease) == []
    await finish(storage, running, done())
    assert await order_of(storage, lease) == [last]


@pytest.mark.parametrize("mended", [True, False])
async def test_a_cancelled_job_that_comes_back_waits_for_the_dead_head_or_its_own_release(
    storage: Storage, lease: PodLease, mended: bool
) -> None:
    head, second, third, last = await in_line(storage, 4, "stop")
    assert await run_one(storage, lease, dead()) == head
    for job_id in (second, third):
        await tell(storage)
        await storage.jobs.cancel(only(job_id))
    await tell(storage)
    for job_id in (third, second):
        await storage.jobs.requeue(only(job_id))
    assert await claim_due(storage, lease) == []
    if mended:
        await storage.jobs.requeue(only(head))
        assert await order_of(storage, lease) == [head, second, third, last]
    else:
        await storage.jobs.release_held(only(second))
        assert await order_of(storage, lease) == [second, third, last]


async def test_jobs_that_were_cancelled_come_back_in_their_order(
    storage: Storage, lease: PodLease
) -> None:
    line = await in_line(storage, 5, "stop")
    await storage.jobs.cancel(only(*line))
    await tell(storage)
    for job_id in line:
        assert (await storage.jobs.requeue(only(job_id))).changed == (job_id,)
    assert await order_of(storage, lease) == line
    jobs = await storage.jobs.get(line)
    assert {job.status for job in jobs.values()} == {JobStatus.DONE}
