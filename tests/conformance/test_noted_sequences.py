"""Sequences in which a job notes how the one before ended: all run in the end, one at a time."""

from typing import Literal

import pytest

from forge_jobs.model.edges import EdgeState
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, JobStatus, Line
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.support.factories import dead, done, enqueue_one, finish, get_job, only, run_one
from tests.support.lines import claim_due, edges_of, in_line, order_of, tell

pytestmark = pytest.mark.anyio


async def _noting(storage: Storage, parent: JobId, rule: Literal["skip", "stop"]) -> JobId:
    return await enqueue_one(storage, after=(After(parent, "note"),), sequence=Line("k", rule))


async def test_a_job_and_the_one_that_noted_its_end_come_back_and_do_not_wait_for_each_other(
    storage: Storage, lease: PodLease
) -> None:
    [first] = await in_line(storage, 1, "stop")
    noting = await _noting(storage, first, "stop")
    [last] = await in_line(storage, 1, "stop")
    assert await run_one(storage, lease, dead()) == first
    await tell(storage)
    assert await run_one(storage, lease, dead()) == noting
    await storage.jobs.requeue(only(first, noting))
    assert (await edges_of(storage, noting))[first] is EdgeState.DEAD
    assert await order_of(storage, lease) == [noting, last, first]
    assert (await edges_of(storage, noting))[first] is EdgeState.SETTLED


async def test_a_job_that_noted_an_end_does_not_come_behind_its_follower_by_the_next_end(
    storage: Storage, lease: PodLease
) -> None:
    [first] = await in_line(storage, 1, "stop")
    noting = await _noting(storage, first, "stop")
    [last] = await in_line(storage, 1, "stop")
    assert await run_one(storage, lease, dead()) == first
    await tell(storage)
    assert await run_one(storage, lease, dead()) == noting
    await storage.jobs.requeue(only(first))  # comes last
    await storage.jobs.cancel(only(first))
    await tell(storage)
    assert await edges_of(storage, noting) == {first: EdgeState.CANCELLED}
    await storage.jobs.requeue(only(noting))
    assert await order_of(storage, lease) == [noting, last]


@pytest.mark.parametrize("ends_again", [False, True])
async def test_a_job_that_noted_an_end_waits_again_when_it_comes_behind_that_job(
    storage: Storage, lease: PodLease, ends_again: bool
) -> None:
    [first] = await in_line(storage, 1, "skip")
    noting = await _noting(storage, first, "skip")
    assert await run_one(storage, lease, dead()) == first
    await tell(storage)
    await storage.jobs.cancel(only(noting))
    await tell(storage)
    await storage.jobs.requeue(only(first))
    [between] = await in_line(storage, 1, "skip")
    await storage.jobs.requeue(only(noting))  # comes last
    await storage.jobs.cancel(only(between))
    if ends_again:
        assert await run_one(storage, lease, dead()) == first
    await tell(storage)
    if not ends_again:
        assert (await edges_of(storage, noting))[first] is EdgeState.OPEN
        assert (await get_job(storage, noting)).status is JobStatus.BLOCKED
        assert len(await claim_due(storage, lease)) == 1
        return
    assert (await edges_of(storage, noting))[first] is EdgeState.DEAD
    assert await order_of(storage, lease) == [noting]
    await storage.jobs.requeue(only(first))
    assert await order_of(storage, lease) == [first]
    assert (await edges_of(storage, noting))[first] is EdgeState.SETTLED


async def test_a_noted_end_that_comes_with_that_of_the_job_between_lets_none_overtake(
    storage: Storage, lease: PodLease
) -> None:
    _, second, third = await in_line(storage, 3)
    noted = (After(second, "note"),)
    last = await enqueue_one(storage, after=noted, sequence=Line("k"))
    [running] = await claim_due(storage, lease)
    await storage.jobs.cancel(only(second, third, last))
    await tell(storage)
    for job_id in (second, third, last):
        await storage.jobs.requeue(only(job_id))
    await storage.jobs.cancel(only(second, third))
    assert await claim_due(storage, lease) == []
    await finish(storage, running, done())
    assert await order_of(storage, lease) == [last]
