"""Pods whose clocks are wrong, on stores that have a clock of their own."""

from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient, JobStatus
from forge_jobs.model.filters import JobFilter
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS
from tests.support.factories import claims_kept
from tests.support.ledger import Ledger
from tests.support.pods import Fleet, quick_settings
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.parametrize(
        "backend", [name for name in ("postgres", "redis") if name in BACKENDS], indirect=True
    ),
]

HOUR = 3600.0
JOBS = 20


async def test_pods_whose_clocks_are_hours_apart_work_as_one_fleet(
    storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    request = EnqueueRequest("ledger.work", {"ledger": str(ledger), "seconds": 0.1}, queue="work")
    not_yet = await client.enqueue(request, delay=HOUR / 2)
    settings = quick_settings(lease=timedelta(seconds=6))
    early = pods.start({"work": 2}, settings, clock_off=-HOUR)
    late = pods.start({"work": 2}, settings, clock_off=HOUR)
    await wait_until(
        lambda: _shares(storage), description="each has a slot, whatever its clock shows"
    )

    await client.enqueue_many([request] * JOBS)
    await wait_until(
        lambda: _done(storage, JOBS), description="the jobs are done, by nobody's clock"
    )

    page = await storage.jobs.list(JobFilter(statuses=(JobStatus.DONE,)), limit=1_000)
    done = (await storage.jobs.get([job.id for job in page.jobs])).values()
    assert {(job.attempt, job.crashes) for job in done} == {(1, 0)}
    assert await claims_kept(storage, "work") == JOBS
    ran = Ledger.read(ledger)
    assert ran.repeated() == {}
    waiting = (await storage.jobs.get([not_yet.job_id]))[not_yet.job_id]
    assert waiting.status is JobStatus.PENDING
    assert {run.process_id for run in ran.runs} == {early.process_id, late.process_id}
    leader = await storage.cron.leader()
    assert leader is not None
    assert leader.term == 1


async def _shares(storage: Storage) -> bool:
    allocations = await storage.procs.allocations()
    return any(
        sorted(slots.grant for slots in allocation.pods.values()) == [1, 1]
        for allocation in allocations
    )


async def _done(storage: Storage, count: int) -> bool:
    counts = (await storage.jobs.counts(["work"]))["work"].by_status
    return counts.get(JobStatus.DONE, 0) == count
