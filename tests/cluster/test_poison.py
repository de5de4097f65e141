"""A job that kills every process in which it runs."""

import asyncio
import os
import signal
from contextlib import ExitStack
from multiprocessing.context import ForkServerProcess

import pytest

from forge_jobs import HandlerRegistry, JobClient, JobStatus, QueueRuntime, open_storage
from forge_jobs.model.jobs import Cause
from forge_jobs.storage.protocols import Storage
from tests.support.factories import get_job
from tests.support.pods import forkserver, quick_settings
from tests.support.runtimes import ended, seconds
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

handlers = HandlerRegistry()


@handlers.job("kills_its_process", max_attempts=None)
async def kills_its_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@handlers.job("behaves")
async def behaves() -> str:
    return "ran"


def _serve(url: str) -> None:
    asyncio.run(_run(url))


async def _run(url: str) -> None:
    settings = quick_settings(
        heartbeat_interval=seconds(0.1), lease=seconds(0.6), fence_margin=seconds(0.2)
    )
    async with await open_storage(url) as storage:
        await QueueRuntime(storage, handlers, settings=settings).with_queues(work=1).run()


async def exit_code(process: ForkServerProcess) -> int:
    """Wait for the end of the process, and return the exit code."""
    code: int = await wait_until(lambda: process.exitcode, description="it was killed")
    return code


async def test_a_job_that_kills_three_processes_is_dead_and_the_next_runs(
    url: str, storage: Storage, client: JobClient
) -> None:
    poison = await client.enqueue(kills_its_process.request(), queue="work", priority=-1)
    behind = await client.enqueue(behaves.request(), queue="work")
    killed: list[int] = []
    with ExitStack() as stack:
        for number in range(4):
            process = forkserver.Process(target=_serve, args=(url,), daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
            if number < 3:
                killed.append(await exit_code(process))
        job = await ended(storage, poison.job_id)
        assert await client.result(behind.job_id, timeout=100) == "ran"
    assert killed == [-signal.SIGKILL] * 3
    assert (job.status, job.cause, job.crashes) == (JobStatus.DEAD, Cause.CRASHED, 3)
    assert "suspected" in job.errors[-1].message
    assert (await get_job(storage, behind.job_id)).crashes == 0
