"""Handlers with ``executor="process"``: how they run, and how they end."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support import process_handlers as jobs
from tests.support.runtimes import a_runtime, ended, job_because
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.any_store]


def process_of(mark: Path) -> int | None:
    """Return the process id that a handler has written to ``mark``."""
    return int(mark.read_text() or 0) or None if mark.exists() else None


def reason_in(mark: Path) -> str:
    """Return the reason for which a handler was stopped."""
    return Path(f"{mark}.reason").read_text()


async def gone(process_id: int) -> None:
    """Wait until there is no such process."""
    await wait_until(lambda: not psutil.pid_exists(process_id), description="the process is gone")


def gone_unseen(process_id: int) -> None:
    """Wait until there is no such process, while the event loop stands still."""
    with suppress(psutil.NoSuchProcess):
        psutil.Process(process_id).wait(timeout=20)


async def test_results_and_arguments_cross_and_a_child_stays_warm(storage: Storage) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        first = await handle.enqueue(jobs.adds.request(2, 3))
        total, process, attempt = await handle.result(first.job_id, 60)
        second = await handle.enqueue(jobs.adds_async.request(4, 5))
        assert await handle.result(second.job_id, 60) == [9, process]
    assert (total, attempt) == (5, 1)
    assert process != os.getpid()
    await gone(process)


async def test_again_and_its_arguments_cross(storage: Storage) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.begins_again.request(jobs.Size(5)))
        assert await handle.result(outcome.job_id, 60) == [7, 1]


async def test_an_exception_is_recorded_with_the_lines_of_the_handler(storage: Storage) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(jobs.fails.request())).job_id)
    assert (job.status, job.cause, job.crashes) == (JobStatus.DEAD, Cause.FAILED, 0)
    error = job.errors[0]
    assert (error.type, error.message) == ("LookupError", "no such thing")
    assert 'raise LookupError("no such thing")' in error.traceback
    assert "forge_jobs/runtime" not in error.traceback


async def test_a_lost_key_of_a_checkpoint_uses_no_attempt(storage: Storage) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.lacks_key.request())
        job = await job_because(storage, outcome.job_id, Cause.KEY_MISSING)
    assert (job.status, job.attempt, job.errors) == (JobStatus.PENDING, 0, ())


async def test_a_retry_policy_that_is_a_function_sees_the_exception(storage: Storage) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.fails_by_turns.request())
        assert await handle.result(outcome.job_id, 60) == "there now"


async def test_outcomes_of_the_handler_hold(storage: Storage, tmp_path: Path) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.snoozes.request(str(tmp_path / "mark")))
        assert await handle.result(outcome.job_id, 60) == "awake"
    job = await ended(storage, outcome.job_id)
    assert (job.snoozes, job.attempt) == (1, 1)


@pytest.mark.daily("kill")
@pytest.mark.parametrize(
    ("how", "words"),
    [("exit", "exit code 3"), ("kill", "killed by SIGKILL"), ("segfault", "killed by SIGSEGV")],
)
async def test_a_child_that_dies_is_a_crash_of_its_job_alone(
    storage: Storage, how: str, words: str, tmp_path: Path
) -> None:
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    async with a_runtime(storage, jobs.handlers, workers=2).start() as handle:
        neighbour = await handle.enqueue(jobs.waits_for.request(str(mark), str(gate)))
        await wait_until(lambda: process_of(mark), description="the neighbour runs")
        poison = await handle.enqueue(jobs.dies.request(how))
        job = await job_because(storage, poison.job_id, Cause.CRASHED)
        gate.touch()
        assert await handle.result(neighbour.job_id, 60) == "went through"
        assert not handle.health().problems
    assert job.crashes >= 1
    assert job.errors[0].cause is Cause.CRASHED
    assert words in job.errors[0].message


async def test_a_job_that_kills_its_process_as_often_as_allowed_is_dead(storage: Storage) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(jobs.dies_at_once.request())).job_id)
    assert (job.status, job.cause, job.crashes) == (JobStatus.DEAD, Cause.CRASHED, 1)
    assert job.errors[0].message.startswith("crash 1 of 1: the process of the handler")


@pytest.mark.parametrize("kind", ["waits", "waits_async"])
async def test_a_cancel_interrupts_the_handler_which_cleans_up(
    storage: Storage, tmp_path: Path, kind: str
) -> None:
    mark = tmp_path / "mark"
    handler = getattr(jobs, kind)
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(handler.request(str(mark)))
        child = await wait_until(lambda: process_of(mark), description="the handler runs")
        await handle.cancel(outcome.job_id)
        job = await ended(storage, outcome.job_id)
        assert psutil.pid_exists(child), "a handler that ends in time costs no process"
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.CANCELLED)
    assert reason_in(mark) == "cancel"


@pytest.mark.daily("deaf")
@pytest.mark.parametrize("kind", ["waits", "waits_async", "deaf"])
async def test_a_timeout_ends_every_handler(storage: Storage, tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "mark"
    request = getattr(jobs, kind).request(str(mark))
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(request, timeout=0.3, max_attempts=1)
        job = await ended(storage, outcome.job_id)
        child = process_of(mark)
        if kind == "deaf" and child is not None:
            await gone(child)
        after = await handle.enqueue(jobs.adds.request(1, 1))
        assert (await handle.result(after.job_id, 60))[0] == 2
    assert (job.status, job.cause, job.crashes) == (JobStatus.DEAD, Cause.TIMED_OUT, 0)


async def test_a_deaf_handler_is_killed_at_a_stop_and_its_attempt_handed_back(
    storage: Storage, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.deaf.request(str(mark)))
        child = await wait_until(lambda: process_of(mark), description="the handler runs")
        report = await handle.stop(0.4)
    job = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
    assert (job.status, job.cause, job.attempt) == (JobStatus.PENDING, Cause.INTERRUPTED, 0)
    assert (report.interrupted, report.abandoned) == ((outcome.job_id,), ())
    assert report.is_clean
    await gone(child)


async def test_a_killed_handler_takes_every_process_along(storage: Storage, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.leaves.request(str(mark)))
        orphan = await wait_until(
            lambda: process_of(mark), description="the program has forked twice"
        )
        assert psutil.pid_exists(orphan)
        await handle.cancel(outcome.job_id)
        await ended(storage, outcome.job_id)
    await gone(orphan)


async def test_a_child_that_dies_takes_every_process_along(
    storage: Storage, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.leaves_and_dies.request(str(mark)))
        job = await ended(storage, outcome.job_id)
        orphan = process_of(mark)
        assert orphan is not None
        assert not psutil.pid_exists(orphan)
    assert job.cause is Cause.CRASHED


async def test_sigterm_from_others_does_not_end_a_run(storage: Storage, tmp_path: Path) -> None:
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.waits_for.request(str(mark), str(gate)))
        child = await wait_until(lambda: process_of(mark), description="the handler runs")
        for signum in (signal.SIGTERM, signal.SIGINT):
            os.kill(child, signum)
        guardian = psutil.Process(child).parent()
        assert guardian is not None
        guardian.send_signal(signal.SIGTERM)
        gate.touch()
        assert await handle.result(outcome.job_id, 60) == "went through"


@pytest.mark.parametrize(
    ("how", "cause", "noted"),
    [
        ("returns", Cause.SUCCEEDED, "succeeded done  None"),
        ("raises", Cause.FAILED, "failed failed LookupError None"),
        ("dies", Cause.CRASHED, "crashed pending Crashed None"),
    ],
)
async def test_hooks_run_in_the_pod(
    storage: Storage, how: str, cause: Cause, noted: str, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    request = jobs.hooked.request(how).options(metadata={"note": str(note)})
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(request)

        async def noted_lines() -> list[str]:
            return note.read_text().splitlines() if note.exists() else []

        first, *_ = await wait_until(noted_lines, description="the hook was called")
        await handle.client.cancel(outcome.job_id)
    assert first == f"{os.getpid()} {noted}"
