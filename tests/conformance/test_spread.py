"""Jobs that are spread over a window, as clients store them."""

from datetime import timedelta

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.clock import ManualClock
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.support.factories import KIND, claim

pytestmark = pytest.mark.anyio
WINDOW = timedelta(minutes=10)


async def test_a_bulk_is_due_evenly_over_the_window(storage: Storage, lease: PodLease) -> None:
    async with JobClient(storage) as client:
        requests = [EnqueueRequest(KIND, {"n": n}) for n in range(300)]
        outcomes = await client.enqueue_many(requests, spread=WINDOW)

        jobs = await storage.jobs.get([each.job_id for each in outcomes])

    now, step = await storage.cron.now(), WINDOW / 300
    places = [(jobs[each.job_id].due_at - now) // step for each in outcomes]
    assert places == list(range(300))
    assert len(await claim(storage, lease, limit=10)) <= 1


async def test_a_repeat_stores_nothing_and_moves_nothing(
    storage: Storage, clock: ManualClock
) -> None:
    ids = [new_job_id() for _ in range(20)]
    requests = [EnqueueRequest(KIND, {"n": n}, id=each) for n, each in enumerate(ids)]
    async with JobClient(storage) as client:
        await client.enqueue_many(requests, spread=WINDOW)
        before = await storage.jobs.get(ids)
        clock.advance(7)
        outcomes = await client.enqueue_many(requests, spread=WINDOW)
        outcomes += await client.enqueue_many(requests[3:9], spread=WINDOW / 2)
        await client.enqueue(requests[0], spread=5)

        after = await storage.jobs.get(ids)

    assert {each.job_id for each in outcomes} == set(ids)
    assert not any(each.deduplicated for each in outcomes)
    assert {each.id: each.due_at for each in after.values()} == {
        each.id: each.due_at for each in before.values()
    }
    assert {each.status for each in after.values()} == {JobStatus.PENDING}
