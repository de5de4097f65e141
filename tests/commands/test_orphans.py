"""Commands that do not want to end: no process is left, no descriptor."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Job, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.executors.test_processes import gone, process_of
from tests.support.commands import processes_below, python, python_commands
from tests.support.process_handlers import FORKS_TWICE
from tests.support.runtimes import a_runtime, ended
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

GROUP = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""
"""A program of two processes that ignore SIGTERM."""

MOVED = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child == 0:
    time.sleep(600)
os.setpgid(child, child)
os.setpgid(0, child)
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""
"""A program that ignores SIGTERM and has left the process group."""


async def orphan_of(mark: Path) -> int:
    """Return the process that has written its id to ``mark``."""
    found: int = await wait_until(
        lambda: process_of(mark), description="the program has forked twice"
    )
    return found


async def _ended_soon(storage: Storage, job_id: JobId, orphan: int) -> Job:
    """Wait for the end of the job, by which the orphan has to be gone."""
    try:
        async with asyncio.timeout(40):
            job = await ended(storage, job_id)
        assert not psutil.pid_exists(orphan), "the job has not ended before its processes"
    finally:
        with suppress(ProcessLookupError):
            os.kill(orphan, signal.SIGKILL)
    return job


@pytest.mark.parametrize("code", [FORKS_TWICE, GROUP, MOVED], ids=["forks_twice", "group", "moved"])
async def test_a_cancel_ends_what_ignores_sigterm_and_left_the_session(
    storage: Storage, tmp_path: Path, code: str
) -> None:
    before = processes_below()
    mark = tmp_path / "mark"
    async with a_runtime(storage, python_commands(tmp_path)).start() as handle:
        outcome = await handle.enqueue(python(code, str(mark), "600"))
        orphan = await orphan_of(mark)
        await handle.cancel(outcome.job_id)
        job = await _ended_soon(storage, outcome.job_id, orphan)
        assert processes_below() <= before
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.CANCELLED)


async def test_a_timeout_ends_every_process(storage: Storage, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with a_runtime(storage, python_commands(tmp_path)).start() as handle:
        request = python(FORKS_TWICE, str(mark), "600")
        outcome = await handle.enqueue(request, timeout=2)
        orphan = await orphan_of(mark)
        job = await _ended_soon(storage, outcome.job_id, orphan)
    assert (job.status, job.cause) == (JobStatus.DEAD, Cause.TIMED_OUT)


async def test_what_a_command_leaves_behind_ends_with_the_command(
    storage: Storage, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    async with a_runtime(storage, python_commands(tmp_path)).start() as handle:
        outcome = await handle.enqueue(python(FORKS_TWICE, str(mark), "0"))
        job = await ended(storage, outcome.job_id)
        orphan = process_of(mark)
        assert orphan is not None
        assert not psutil.pid_exists(orphan)
    assert job.status is JobStatus.DONE


async def test_a_stop_of_the_pod_ends_every_process_and_hands_the_attempt_back(
    storage: Storage, tmp_path: Path
) -> None:
    before = processes_below()
    mark = tmp_path / "mark"
    async with a_runtime(storage, python_commands(tmp_path)).start() as handle:
        outcome = await handle.enqueue(python(FORKS_TWICE, str(mark), "600"))
        orphan = await orphan_of(mark)
        report = await handle.stop(0.4)
    await gone(orphan)
    await wait_until(lambda: processes_below() <= before, description="all are gone")
    job = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
    assert (job.status, job.cause, job.attempt) == (JobStatus.PENDING, Cause.INTERRUPTED, 0)
    assert report.is_clean
