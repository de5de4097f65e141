"""Handovers of one call are applied one after the other, in the order of the call."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from forge_jobs.model.edges import Tally
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Delivery
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import counters, dead, done, enqueue_one, get_job, only, run_one

pytestmark = pytest.mark.anyio

BLOCKED, PENDING, CANCELLED = JobStatus.BLOCKED, JobStatus.PENDING, JobStatus.CANCELLED


class Told(NamedTuple):
    """A job, and the deliveries of the ends of the two parents.

    :ivar again: of a parent whose end the job has noted before, and so does not wait for
    :ivar last: of the only parent that the job waits for
    """

    child: JobId
    again: Delivery
    last: Delivery


async def told_twice(storage: Storage, lease: PodLease) -> Told:
    first, last = await enqueue_one(storage), await enqueue_one(storage, queue="elsewhere")
    edges = (After(first, "note"), After(last, "note"))
    child = await enqueue_one(storage, queue="after", after=edges)
    assert await run_one(storage, lease, dead()) == first
    found = await storage.jobs.handovers(10)
    assert await storage.jobs.deliver([delivery(each) for each in found]) == 1
    await storage.jobs.requeue(only(first))
    assert await run_one(storage, lease, done()) == first
    await storage.jobs.cancel(only(last))
    by_parent = {each.parent_id: delivery(each) for each in await storage.jobs.handovers(10)}
    return Told(child, by_parent[first], by_parent[last])


@pytest.mark.parametrize(
    ("action", "noted"),
    [
        ("settle", Tally(settled=1, cancelled=1)),
        ("dead", Tally(dead=1, cancelled=1)),
        ("cancelled", Tally(cancelled=2)),
        ("hold", Tally(held=1, cancelled=1)),
        ("cancel", Tally(held=1, cancelled=1)),
    ],
)
async def test_a_handover_behind_the_one_that_frees_the_job_is_recorded_only(
    storage: Storage, lease: PodLease, action: str, noted: Tally
) -> None:
    told = await told_twice(storage, lease)
    assert await storage.jobs.deliver([told.last, replace(told.again, action=action)]) == 1
    assert (await get_job(storage, told.child)).status is PENDING
    assert (await storage.jobs.tallies([told.child]))[told.child] == noted
    assert (await counters(storage, "after"))["parents_settled"] == 1


@pytest.mark.parametrize(
    ("action", "applied", "status"),
    [
        ("settle", 2, PENDING),
        ("dead", 2, PENDING),
        ("cancelled", 2, PENDING),
        ("hold", 2, BLOCKED),
        ("cancel", 1, CANCELLED),
    ],
)
async def test_a_handover_before_the_one_that_frees_the_job_is_applied(
    storage: Storage, lease: PodLease, action: str, applied: int, status: JobStatus
) -> None:
    told = await told_twice(storage, lease)
    assert await storage.jobs.deliver([replace(told.again, action=action), told.last]) == applied
    assert (await get_job(storage, told.child)).status is status


async def test_handovers_of_several_queues_are_applied_in_the_order_of_the_call(
    storage: Storage, lease: PodLease
) -> None:
    told = await told_twice(storage, lease)
    parent = await enqueue_one(storage)
    await enqueue_one(storage, queue="after", after=(After(parent),))
    assert await run_one(storage, lease, done()) == parent
    [other] = [
        delivery(each) for each in await storage.jobs.handovers(10) if each.parent_id == parent
    ]
    # The first and the third are of parents of one queue.
    assert await storage.jobs.deliver([other, told.last, told.again]) == 2


async def test_a_repeat_in_the_same_call_is_not_applied(storage: Storage, lease: PodLease) -> None:
    told = await told_twice(storage, lease)
    twice: Sequence[Delivery] = [told.again, told.again, told.last, told.again, told.last]
    assert await storage.jobs.deliver(twice) == 2
    assert await storage.jobs.deliver(twice) == 0
    assert (await get_job(storage, told.child)).status is PENDING
