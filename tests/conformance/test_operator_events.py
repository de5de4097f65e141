"""Verbs of operators stand on the timelines of the jobs."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.support.factories import QUEUE, claim_one, dead, enqueue_one, run_one

pytestmark = pytest.mark.anyio


async def test_a_request_to_cancel_is_an_event_and_a_plain_cancel_is_none(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    running = (await claim_one(storage, lease)).claim.job_id
    waiting = await enqueue_one(storage)

    await storage.jobs.cancel(JobFilter(ids=(running, waiting)))

    assert await storage.jobs.events(job_id=running) == [
        TimelineEvent(at=clock.now(), kind=EventKind.CANCEL_REQUESTED, queue=QUEUE, job_id=running)
    ]
    assert await storage.jobs.events(job_id=waiting) == []


async def test_a_requeue_is_an_event_and_a_refused_one_is_none(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    gave_up = await run_one(storage, lease, dead())
    waiting = await enqueue_one(storage)

    await storage.jobs.requeue(JobFilter(ids=(gave_up, waiting)))

    assert await storage.jobs.events(job_id=gave_up) == [
        TimelineEvent(at=clock.now(), kind=EventKind.REQUEUED, queue=QUEUE, job_id=gave_up)
    ]
    assert await storage.jobs.events(job_id=waiting) == []
