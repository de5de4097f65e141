"""Handlers in processes that use what belongs to the whole process: event loops and signals."""

from pathlib import Path

import psutil
import pytest

from forge_jobs.model.jobs import Cause
from forge_jobs.storage.protocols import Storage
from tests.executors.test_processes import process_of, reason_in
from tests.support import unruly_handlers as jobs
from tests.support.runtimes import a_runtime, ended
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.any_store]


async def test_a_plain_handler_may_run_an_event_loop(storage: Storage, tmp_path: Path) -> None:
    note = tmp_path / "note"
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.has_a_loop.request())
        assert await handle.result(outcome.job_id, 60) == "of a loop"
        outcome = await handle.enqueue(jobs.has_a_loop_and_a_value.request(str(note)))
        assert await handle.result(outcome.job_id, 60) == "of a loopa value"
    assert note.read_text() == "cleaned up\n"


async def test_signal_handlers_that_a_job_leaves_behind_do_not_reach_the_next(
    storage: Storage, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    async with a_runtime(storage, jobs.handlers).start() as handle:
        first = await handle.enqueue(jobs.takes_signals.request())
        child = await handle.result(first.job_id, 60)
        outcome = await handle.enqueue(jobs.waits.request(str(mark)))
        await wait_until(lambda: process_of(mark), description="the handler runs")
        assert process_of(mark) == child
        await handle.cancel(outcome.job_id)
        job = await ended(storage, outcome.job_id)
        assert psutil.pid_exists(child), "a handler that ends in time costs no process"
    assert job.cause is Cause.CANCELLED
    assert reason_in(mark) == "cancel"
