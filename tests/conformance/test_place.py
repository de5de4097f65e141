"""How many jobs are claimed before one that waits."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import After
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import LinePlace
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    LEASE,
    QUEUE,
    SECOND,
    claim,
    crashed,
    done,
    enqueue_one,
    finish,
    new_job,
    register,
    revive,
)

pytestmark = pytest.mark.anyio


async def test_the_place_of_a_job_is_how_many_are_claimed_before(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(5)])
    [crashed_once] = await claim(storage, lease)
    clock.advance(LEASE)
    await revive(storage, crashed_once, crashed())
    await register(storage, kinds=("other",))
    for priority in (3, -2, 0):
        for kind in (KIND, "other"):
            await enqueue_one(storage, priority=priority, kind=kind)
    clock.advance(SECOND)
    await storage.jobs.enqueue([new_job(kind=kind) for kind in (KIND, "other", KIND)])
    later = await enqueue_one(storage, delay=SECOND)
    first_of_all = await enqueue_one(storage, delay=SECOND, priority=-100)
    await enqueue_one(storage, queue="elsewhere", priority=-100)
    waiting = (await storage.jobs.list(JobFilter(queues=(QUEUE,)))).jobs
    places = {job.id: await storage.jobs.place(QUEUE, job.id) for job in waiting}

    assert places.pop(later) == LinePlace(ahead=12)
    assert places.pop(first_of_all) == LinePlace(ahead=0)
    both = await register(storage, kinds=(KIND, "other"))
    claimed = await claim(storage, both, limit=20, kinds=(KIND, "other"))
    assert [places[job.claim.job_id] for job in claimed] == [
        LinePlace(ahead=number) for number in range(14)
    ]


async def test_only_jobs_that_wait_for_a_claim_have_a_place(
    storage: Storage, lease: PodLease
) -> None:
    running, ended, waiting = [await enqueue_one(storage) for _ in range(3)]
    child = await enqueue_one(storage, after=(After(waiting),))
    strange = await enqueue_one(storage, kind="strange", priority=-1)
    claims = await claim(storage, lease, limit=2)
    assert await finish(storage, claims[1], done())
    assert {claims[0].claim.job_id, claims[1].claim.job_id} == {running, ended}

    for job_id in (running, ended, child, strange, new_job_id()):
        assert await storage.jobs.place(QUEUE, job_id) is None
    assert await storage.jobs.place(QUEUE, waiting) == LinePlace(ahead=0)
    assert await storage.jobs.place("elsewhere", waiting) is None
