"""Processes of handlers and commands beside uvloop, whose transports are classes of its own."""

import os
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from tests.executors import test_early_ends as early
from tests.support import process_handlers as jobs
from tests.support.commands import python, python_commands
from tests.support.loops import LOOPS
from tests.support.runtimes import a_runtime, ended

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.any_store]

children = early.children
test_children_close_after_a_start_that_was_cancelled = (
    early.test_children_close_after_a_start_that_was_cancelled
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": LOOPS["uvloop"]}


async def test_a_handler_runs_in_a_process(storage: Storage) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.adds.request(2, 3))
        total, process, _ = await handle.result(outcome.job_id, 60)
    assert total == 5
    assert process != os.getpid()


async def test_the_output_of_a_command_is_read(storage: Storage, tmp_path: Path) -> None:
    async with a_runtime(storage, python_commands(tmp_path)).start() as handle:
        outcome = await handle.enqueue(python("print('x' * 100_000)"))
        job = await ended(storage, outcome.job_id)
    assert job.status is JobStatus.DONE
