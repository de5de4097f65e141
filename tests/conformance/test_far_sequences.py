"""Jobs of a sequence that wait for one of it by way of other sequences."""

import pytest

from forge_jobs.model.edges import EdgeState
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Line
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.support.factories import dead, done, enqueue_one, finish, only, run_one
from tests.support.lines import claim_due, edges_of, in_line, order_of, tell

pytestmark = pytest.mark.anyio


async def _around(storage: Storage, head: JobId) -> tuple[JobId, JobId]:
    """Enqueue a job of another sequence after the head, and one of the head's after that."""
    other = Line("other")
    between = await enqueue_one(storage, after=(After(head, "hold"),), sequence=other)
    after = (After(between, "hold"),)
    return between, await enqueue_one(storage, after=after, sequence=Line("k", "skip"))


async def test_a_job_that_is_released_in_between_lets_none_run_beside_the_one_that_came_back(
    storage: Storage, lease: PodLease
) -> None:
    [head] = await in_line(storage, 1, "skip")
    between, behind = await _around(storage, head)
    assert await run_one(storage, lease, dead()) == head
    await tell(storage)
    await storage.jobs.requeue(only(head))
    assert (await storage.jobs.release_held(only(between))).changed == (between,)
    due = {each.claim.job_id: each for each in await claim_due(storage, lease)}
    assert due.keys() == {head, between}
    await finish(storage, due[between], done())
    assert await claim_due(storage, lease) == []
    await finish(storage, due[head], done())
    assert await order_of(storage, lease) == [behind]


async def test_who_comes_back_and_keeps_a_place_by_way_of_others_runs_once_and_in_order(
    storage: Storage, lease: PodLease
) -> None:
    [head] = await in_line(storage, 1, "skip")
    between, behind = await _around(storage, head)
    assert await run_one(storage, lease, dead()) == head
    await tell(storage)
    await storage.jobs.requeue(only(head))
    await storage.jobs.release_held(only(between))
    await storage.jobs.cancel(only(between))
    await tell(storage)
    await storage.jobs.release_held(only(behind))
    assert await order_of(storage, lease) == [head, behind]


async def test_several_that_come_back_in_one_call_run_one_at_a_time(
    storage: Storage, lease: PodLease
) -> None:
    [head] = await in_line(storage, 1, "skip")
    between, behind = await _around(storage, head)
    [last] = await in_line(storage, 1, "skip")
    assert await run_one(storage, lease, dead()) == head
    await tell(storage)
    await storage.jobs.cancel(only(behind))
    await storage.jobs.requeue(only(head, behind))
    assert await edges_of(storage, behind) == dict.fromkeys([head, between], EdgeState.OPEN)
    assert await run_one(storage, lease, done()) == head
    assert await order_of(storage, lease) == [between, behind, last]
