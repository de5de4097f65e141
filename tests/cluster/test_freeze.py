"""A worker process stopped for longer than its lease, and continued."""

import signal
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claims_kept
from tests.support.ledger import Ledger
from tests.support.pods import Fleet
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


@pytest.mark.daily
@pytest.mark.parametrize(
    "kind", ["ledger.wait_for_file", pytest.param("ledger.wait_in_thread", marks=pytest.mark.long)]
)
async def test_the_late_result_of_a_frozen_process_is_refused(
    storage: Storage, client: JobClient, pods: Fleet, ledger: Path, tmp_path: Path, kind: str
) -> None:
    gate = tmp_path / "gate"
    payload = {"ledger": str(ledger), "gate": str(gate)}
    outcome = await client.enqueue(EnqueueRequest(kind, payload, queue="work"))
    frozen = pods.start({"work": 1})
    await wait_until(lambda: len(Ledger.read(ledger).runs) == 1, description="the job runs")

    await frozen.freeze()
    other = pods.start({"work": 1})
    await wait_until(
        lambda: len(Ledger.read(ledger).runs) == 2, description="it runs again elsewhere"
    )
    gate.touch()
    await wait_until(
        lambda: _status(storage, outcome.job_id, JobStatus.DONE), description="it is done"
    )
    done = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
    frozen.send(signal.SIGCONT)

    await wait_until(
        lambda: _lives(storage, 2),
        description="the frozen pod is admitted again",
    )
    other.kill()
    again = await client.enqueue(EnqueueRequest(kind, payload, queue="work"))
    await wait_until(
        lambda: _status(storage, again.job_id, JobStatus.DONE),
        description="the pod that was frozen goes on with other work",
    )
    after = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
    assert after == done
    assert (await claims_kept(storage, "work"), done.attempt, done.crashes) == (3, 2, 1)
    assert frozen.exit_code is None


async def _status(storage: Storage, job_id: str, status: JobStatus) -> bool:
    return (await storage.jobs.get([job_id]))[job_id].status is status  # type: ignore[list-item,index]


async def _lives(storage: Storage, count: int) -> bool:
    pods = await storage.procs.pods()
    return sum(pod.lease_remaining.total_seconds() > 0 for pod in pods) == count
