"""Handlers in processes that fork, and that close what is not theirs."""

from pathlib import Path

import psutil
import pytest

from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.executors.test_processes import gone, process_of
from tests.support import unruly_handlers as jobs
from tests.support.runtimes import a_runtime, ended
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


@pytest.mark.daily("returns")
@pytest.mark.any_store
@pytest.mark.parametrize(
    ("how", "code"), [("returns", 0), ("exits", 7), ("raises", 1), ("tells", 1)]
)
async def test_only_the_process_of_the_handler_speaks_to_the_pod(
    storage: Storage, caplog: pytest.LogCaptureFixture, how: str, code: int
) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.forks.request(how))
        process, exit_code = await handle.result(outcome.job_id, 60)
        after = await handle.enqueue(jobs.forks_async.request())
        assert await handle.result(after.job_id, 60) == [process, 0]
    assert exit_code == code
    lines = [each.getMessage() for each in caplog.records if each.name == "shop"]
    assert lines == [f"line {number} of the handler" for number in range(50)]
    job = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
    assert (job.status, job.attempt, job.errors) == (JobStatus.DONE, 1, ())


@pytest.mark.any_store
async def test_values_are_cleaned_up_in_the_process_of_the_handler_alone(
    storage: Storage, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.forks_with_a_value.request(str(note)))
        assert await handle.result(outcome.job_id, 60) == ["a value", 0]
    assert note.read_text() == "cleaned up\n"


@pytest.mark.any_store
async def test_a_stop_ends_a_forked_process_which_ignores_no_signal(
    storage: Storage, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.leaves_a_fork.request(str(mark)))
        fork = await wait_until(lambda: process_of(mark), description="the fork runs")
        child = psutil.Process(fork).ppid()
        await handle.cancel(outcome.job_id)
        job = await ended(storage, outcome.job_id)
        await wait_until(
            lambda: psutil.Process(fork).status() == psutil.STATUS_ZOMBIE,
            description="the fork has ended",
            timeout=20,
        )
        assert psutil.pid_exists(child), "the handler ended in time, which costs no process"
        terminated = await handle.enqueue(jobs.terminates.request(20))
        assert await handle.result(terminated.job_id, 60) == [-15] * 20
    assert job.cause is Cause.CANCELLED
    await gone(fork)


@pytest.mark.long
@pytest.mark.any_store
async def test_a_handler_that_closes_its_descriptors_crashes_and_its_files_are_untouched(
    storage: Storage, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.touch()  # the process may notice the closed connection before the handler opens the file
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.closes.request(str(path)))
        job = await ended(storage, outcome.job_id)
        after = await handle.enqueue(jobs.forks.request("returns"))
        assert (await handle.result(after.job_id, 60))[1] == 0
    assert (job.status, job.cause) == (JobStatus.DEAD, Cause.CRASHED)
    assert path.read_bytes() == b""


@pytest.mark.any_store
async def test_a_handler_that_writes_to_the_connection_is_killed(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.writes_rubbish.request())
        job = await ended(storage, outcome.job_id)
        assert not handle.health().problems
    assert (job.status, job.cause) == (JobStatus.DEAD, Cause.CRASHED)
    assert "sent what is no message" in caplog.text
