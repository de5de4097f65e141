"""A worker process is killed while a dependency is made, or cleaned up."""

from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.model.jobs import Job, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.ledger import Ledger
from tests.support.pods import Fleet
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


@pytest.mark.parametrize("amid", ["the factory", "the clean-up"])
async def test_a_process_killed_amid_a_dependency_costs_one_run_and_no_job(
    storage: Storage, client: JobClient, pods: Fleet, ledger: Path, amid: str
) -> None:
    handled = Path(f"{ledger}.handler")
    payload = {"ledger": str(ledger), "amid": amid}
    outcome = await client.enqueue(EnqueueRequest("ledger.inject", payload, queue="work"))
    killed = pods.start({"work": 1})
    hangs = ledger if amid == "the factory" else handled
    await wait_until(lambda: len(Ledger.read(hangs).runs) == 1, description="the process is there")
    # The end of a handler is stored after the clean-up.
    assert (await _job(storage, outcome.job_id)).status is JobStatus.IN_PROGRESS
    killed.kill()

    pods.start({"work": 1})
    assert await client.result(outcome, timeout=100) == [2, 2]
    job = await _job(storage, outcome.job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.DONE, 2, 1)
    ran = Ledger.read(ledger)
    assert len(ran.runs) == 2
    assert ran.ended() == {outcome.job_id}
    assert ran.overlaps() == []
    assert len(Ledger.read(handled).runs) == (1 if amid == "the factory" else 2)


async def _job(storage: Storage, job_id: str) -> Job:
    return (await storage.jobs.get([job_id]))[job_id]  # type: ignore[list-item,index]
