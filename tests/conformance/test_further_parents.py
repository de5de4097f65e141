"""A blocked job comes to wait for further jobs."""

import asyncio
from typing import Any

import pytest

from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.edges import EdgeState, Tally
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, JobStatus, Line
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import dead, done, enqueue_one, get_job, only, register, run_one
from tests.support.lines import edges_of

pytestmark = pytest.mark.anyio


async def tell(storage: Storage) -> int:
    return await storage.jobs.deliver([delivery(one) for one in await storage.jobs.handovers(100)])


async def tally(storage: Storage, job_id: JobId) -> Tally:
    return (await storage.jobs.tallies([job_id]))[job_id]


async def test_a_blocked_job_waits_for_what_is_added_whatever_became_of_that(
    storage: Storage, lease: PodLease
) -> None:
    ended, failed = await enqueue_one(storage), await enqueue_one(storage)
    assert await run_one(storage, lease, done()) == ended
    assert await run_one(storage, lease, dead()) == failed
    first, later = await enqueue_one(storage), await enqueue_one(storage)
    child = await enqueue_one(storage, queue="after", after=(After(first, "hold"),))
    further = [After(each, "hold") for each in (ended, failed, later)]
    await storage.jobs.await_also(child, further)
    assert await tally(storage, child) == Tally(open=4)
    assert await tell(storage) == 2
    assert await tally(storage, child) == Tally(open=2, held=1, settled=1)

    # A repeat changes nothing, also of those that have settled.
    await storage.jobs.await_also(child, [*further, After(first, "cancel")])
    await tell(storage)
    assert await tally(storage, child) == Tally(open=2, held=1, settled=1)
    kin = (await storage.jobs.kin([child]))[child]
    assert {each.on_failure for each in kin.parents} == {"hold"}
    assert child in {each.id for each in (await storage.jobs.kin([later]))[later].children}

    assert [await run_one(storage, lease, done()) for _ in range(2)] == [first, later]
    assert await tell(storage) == 2
    assert (await get_job(storage, child)).held_by == (failed,)
    await storage.jobs.requeue(only(failed))
    assert await run_one(storage, lease, done()) == failed
    assert await tell(storage) == 1
    assert (await get_job(storage, child)).status is JobStatus.PENDING


async def test_a_job_that_does_not_wait_takes_no_parents(storage: Storage, lease: PodLease) -> None:
    parent, further = await enqueue_one(storage), await enqueue_one(storage, queue="elsewhere")
    child = await enqueue_one(storage, queue="after", after=(After(parent),))
    unknown = new_job_id()
    for job_id, after in ((unknown, further), (child, unknown)):
        with pytest.raises(NotFound, match=unknown):
            await storage.jobs.await_also(job_id, [After(after)])
    assert await tally(storage, child) == Tally(open=1)
    assert await run_one(storage, lease, done()) == parent
    await tell(storage)
    with pytest.raises(Conflict, match="is pending"):
        await storage.jobs.await_also(child, [After(further)])
    await storage.jobs.cancel(only(child))
    with pytest.raises(Conflict, match="is cancelled"):
        await storage.jobs.await_also(child, [After(further)])
    assert await tally(storage, child) == Tally(settled=1)


async def test_of_the_last_end_and_a_further_parent_one_comes_first(storage: Storage) -> None:
    """Either the job waits for the further parent, or the caller is refused."""
    lease = await register(storage)
    for _ in range(4):
        parent = await enqueue_one(storage)
        further = await enqueue_one(storage, queue="elsewhere")
        child = await enqueue_one(storage, queue="after", after=(After(parent),))
        assert await run_one(storage, lease, done()) == parent
        _, refused = await asyncio.gather(
            tell(storage),
            storage.jobs.await_also(child, [After(further)]),
            return_exceptions=True,
        )
        await tell(storage)
        status = JobStatus.PENDING if isinstance(refused, Conflict) else JobStatus.BLOCKED
        assert (await get_job(storage, child)).status is status
        assert (await tally(storage, child)).open == (status is JobStatus.BLOCKED)


@pytest.mark.parametrize("word", ["cancel", "continue", "note"])
@pytest.mark.parametrize("is_line", [True, False])
async def test_a_parent_that_is_named_once_more_keeps_the_word_of_the_first_time(
    storage: Storage, lease: PodLease, word: Any, is_line: bool
) -> None:
    line = Line("k", "stop") if is_line else None
    parent = await enqueue_one(storage, sequence=line)
    after = () if is_line else (After(parent, "hold"),)
    child = await enqueue_one(storage, sequence=line, after=after)
    for has_ended in (False, True):
        if has_ended:
            assert await run_one(storage, lease, dead()) == parent
        await storage.jobs.await_also(child, [After(parent, word)])
    await tell(storage)
    assert (await get_job(storage, child)).status is JobStatus.BLOCKED
    assert await edges_of(storage, child) == {parent: EdgeState.HELD}
