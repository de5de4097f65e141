"""Jobs that are stored again under the ids of removed ones, which an end had yet to reach."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, JobStatus, NewJob
from forge_jobs.model.queues import QueueChange, Retention
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    QUEUE,
    SECOND,
    done,
    get_job,
    new_job,
    only,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio

LATER = timedelta(milliseconds=1)


async def tell(storage: Storage) -> int:
    return await storage.jobs.deliver([delivery(one) for one in await storage.jobs.handovers(100)])


async def removed_before_the_end_came(
    storage: Storage, clock: ManualClock, by: str, policy: str
) -> tuple[NewJob, NewJob]:
    """Return the requests of a parent and a child that are gone. An end without success is left."""
    parent = new_job()
    child = new_job(queue="after", after=(After(parent.id, policy),))  # type: ignore[arg-type]
    await storage.jobs.enqueue([parent, child])
    clock.advance(LATER)
    both = only(parent.id, child.id)
    if by == "retention":
        for name in (QUEUE, "after"):
            change = QueueChange(retention=Retention(max_cancelled=0))
            await storage.config.set_queue(name, change)
        # The child by itself, so that the end of the parent does not reach the child.
        await storage.jobs.cancel(only(child.id))
        await storage.jobs.cancel(only(parent.id))
        clock.advance(61 * SECOND)
        await storage.jobs.cleanup(1_000)
    else:
        await storage.jobs.cancel(only(parent.id))
        await storage.jobs.delete(both)
    assert await storage.jobs.get([parent.id, child.id]) == {}
    clock.advance(LATER)
    return parent, child


async def status_of(storage: Storage, job_id: JobId) -> JobStatus:
    return (await get_job(storage, job_id)).status


@pytest.mark.parametrize("policy", ["cancel", "continue", "hold", "note"])
@pytest.mark.parametrize("by", ["an operator", "retention"])
async def test_a_child_that_comes_again_waits_for_the_parent_that_comes_again(
    storage: Storage, clock: ManualClock, by: str, policy: str
) -> None:
    parent, child = await removed_before_the_end_came(storage, clock, by, policy)
    for each in (parent, child):
        await storage.jobs.enqueue([each])
    clock.advance(LATER)
    await tell(storage)
    found = await get_job(storage, child.id)
    assert (found.status, found.waits_for) == (JobStatus.BLOCKED, (parent.id,))
    # The time until a cleanup ends each lease.
    lease = await register(storage)
    assert await run_one(storage, lease, done()) == parent.id
    await tell(storage)
    assert await status_of(storage, child.id) is JobStatus.PENDING


@pytest.mark.parametrize("by", ["an operator", "retention"])
async def test_a_child_that_comes_again_hears_how_the_parent_that_came_again_ended(
    storage: Storage, clock: ManualClock, by: str
) -> None:
    parent, child = await removed_before_the_end_came(storage, clock, by, "cancel")
    await storage.jobs.enqueue([parent, child])
    clock.advance(LATER)
    # The time until a cleanup ends each lease.
    lease = await register(storage)
    assert await run_one(storage, lease, done()) == parent.id
    while await tell(storage):
        pass
    assert await status_of(storage, child.id) is JobStatus.PENDING
