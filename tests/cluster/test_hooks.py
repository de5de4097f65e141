"""A worker process dies within a hook."""

import signal
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.ledger import Ledger
from tests.support.pods import Fleet
from tests.support.runtimes import ended
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


@pytest.mark.daily
async def test_a_process_that_dies_in_a_hook_loses_nothing_and_the_hook_runs_again(
    storage: Storage, client: JobClient, pods: Fleet, ledger: Path, tmp_path: Path
) -> None:
    hooks = tmp_path / "hooks"
    request = EnqueueRequest(
        "ledger.dies_in_a_hook",
        {"ledger": str(ledger)},
        queue="work",
        metadata={"hooks": str(hooks)},
    )
    outcome = await client.enqueue(request)
    dies = pods.start({"work": 1})
    await wait_until(lambda: dies.exit_code == -signal.SIGKILL, description="the process dies")
    assert hooks.read_text() == "on_done in attempt 1\n"
    pods.start({"work": 1})
    job = await ended(storage, outcome.job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.DONE, 2, 1)
    assert hooks.read_text() == "on_done in attempt 1\non_done in attempt 2\n"
    assert Ledger.read(ledger).overlaps() == []
