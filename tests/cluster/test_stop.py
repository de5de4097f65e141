"""SIGTERM to real worker processes."""

import signal
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.ledger import Ledger
from tests.support.pods import Fleet, quick_settings
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

SLOTS = 4


def running(ledger: Path) -> int:
    """How many runs have started."""
    return len(Ledger.read(ledger).runs)


@pytest.mark.daily
async def test_sigterm_lets_running_jobs_end_and_leaves_nothing_behind(
    storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    request = EnqueueRequest("ledger.work", {"ledger": str(ledger), "seconds": 0.5}, queue="work")
    await client.enqueue_many([request] * 40)
    pod = pods.start({"work": SLOTS})
    await wait_until(lambda: running(ledger) >= SLOTS, description="all slots are busy")

    pod.send(signal.SIGTERM)

    grace = quick_settings().grace.total_seconds()
    assert await pod.wait(grace + 1) == 0
    ran = Ledger.read(ledger)
    assert ran.started() == ran.ended()
    by_status = (await storage.jobs.counts(["work"]))["work"].by_status
    assert by_status.get(JobStatus.IN_PROGRESS, 0) == 0
    assert by_status[JobStatus.DONE] == len(ran.ended())
    assert by_status[JobStatus.PENDING] == 40 - len(ran.ended())
    assert await storage.procs.pods() == []


@pytest.mark.daily
async def test_a_job_longer_than_the_grace_is_handed_back_with_its_attempt(
    storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    request = EnqueueRequest(
        "ledger.work", {"ledger": str(ledger), "seconds": 3600}, queue="work", max_attempts=1
    )
    outcome = await client.enqueue(request)
    pod = pods.start({"work": 1}, quick_settings(grace=timedelta(seconds=0.5)))
    await wait_until(lambda: running(ledger) == 1, description="the job runs")

    pod.send(signal.SIGTERM)

    assert await pod.wait(10) == 0
    job = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
    assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)


@pytest.mark.daily
async def test_a_second_sigterm_does_not_wait_for_the_grace(
    storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    request = EnqueueRequest("ledger.work", {"ledger": str(ledger), "seconds": 3600}, queue="work")
    outcome = await client.enqueue(request)
    pod = pods.start({"work": 1}, quick_settings(grace=timedelta(hours=1)))
    await wait_until(lambda: running(ledger) == 1, description="the job runs")

    pod.send(signal.SIGTERM)
    await wait_until(
        lambda: _is_draining(storage), description="the first signal makes the pod drain"
    )
    pod.send(signal.SIGTERM)

    assert await pod.wait(10) == 0
    job = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
    assert (job.status, job.attempt) == (JobStatus.PENDING, 0)


async def _is_draining(storage: Storage) -> bool:
    return any(pod.draining for pod in await storage.procs.pods())
