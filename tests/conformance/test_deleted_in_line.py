"""The last job of a sequence is deleted: another one comes last, and what follows waits for it."""

import pytest

from forge_jobs.model.edges import EdgeState
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, JobStatus, Line
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import enqueue_one, get_job, only
from tests.support.lines import edges_of, in_line, order_of, tell

pytestmark = pytest.mark.anyio


async def _tell_only(storage: Storage, child: JobId) -> None:
    news = [each for each in await storage.jobs.handovers(10) if each.child_id == child]
    await storage.jobs.deliver([delivery(each) for each in news])


async def test_who_comes_after_a_deleted_last_job_waits_for_the_one_that_has_yet_to_end(
    storage: Storage, lease: PodLease
) -> None:
    [first, second] = await in_line(storage, 2, "skip")
    named = After(second, "cancel")
    third = await enqueue_one(storage, after=(named,), sequence=Line("k", "skip"))
    [last] = await in_line(storage, 1, "skip")
    await storage.jobs.cancel(only(first, second))
    await _tell_only(storage, third)
    await _tell_only(storage, second)
    assert (await get_job(storage, third)).status is JobStatus.CANCELLED
    assert (await storage.jobs.restore(only(first))).changed == (first,)
    await _tell_only(storage, last)
    assert await edges_of(storage, last) == {
        first: EdgeState.OPEN,
        second: EdgeState.OPEN,
        third: EdgeState.SETTLED,
    }
    await storage.jobs.delete(only(last))
    await storage.jobs.requeue(only(second, third))
    assert (await order_of(storage, lease))[0] == first


@pytest.mark.parametrize("named", [(1,), (3, 1)])
async def test_a_deleted_last_job_leaves_its_place_to_the_last_that_has_yet_to_end(
    storage: Storage, lease: PodLease, named: tuple[int, ...]
) -> None:
    line = first, second, third, fourth = await in_line(storage, 4, "skip")
    await storage.jobs.cancel(only(second, third))
    await storage.jobs.cancel(only(first))
    await storage.jobs.restore(only(third))
    after = tuple(After(line[each], "cancel") for each in named)
    last = await enqueue_one(storage, sequence=Line("k", "skip"), after=after)
    await storage.jobs.cancel(only(fourth))
    await storage.jobs.requeue(only(first))
    await storage.jobs.delete(only(last))
    await tell(storage)
    await storage.jobs.requeue(only(second, fourth))
    assert set(await order_of(storage, lease)) == set(line)
