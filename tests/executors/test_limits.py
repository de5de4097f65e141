"""Limits of handlers in processes: memory, and the number of runs."""

import pytest

from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support import process_handlers as jobs
from tests.support.runtimes import a_runtime, ended

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.any_store]


@pytest.mark.daily("-grows")
@pytest.mark.parametrize("kind", ["grows", "child_grows"])
async def test_a_handler_above_its_memory_is_killed_and_fails(storage: Storage, kind: str) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(getattr(jobs, kind).request())
        job = await ended(storage, outcome.job_id)
        after = await handle.enqueue(jobs.adds.request(1, 1))
        assert (await handle.result(after.job_id, 60))[0] == 2
    assert (job.status, job.cause, job.crashes) == (JobStatus.DEAD, Cause.FAILED, 0)
    assert job.errors[0].type == "MemoryError"
    assert job.errors[0].message.endswith("max_memory is 200 MiB")


async def test_a_child_is_replaced_after_its_runs(storage: Storage) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcomes = await handle.enqueue_many([jobs.thrice.request() for _ in range(9)])
        processes = [await handle.result(each.job_id, 60) for each in outcomes]
    assert [processes.count(each) for each in dict.fromkeys(processes)] == [3, 3, 3]
