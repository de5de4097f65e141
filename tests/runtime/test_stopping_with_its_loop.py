"""A program that ends an event loop, and every task of the loop, under a stop."""

import asyncio
from pathlib import Path

import pytest

from forge_jobs import JobStatus, open_storage
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import JobId
from tests.support.factories import get_job
from tests.support.runtimes import a_runtime


def test_a_second_interrupt_of_asyncio_run_lets_the_stop_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    handlers = HandlerRegistry()
    jobs: list[JobId] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    @handlers.job("waits", max_attempts=1)
    async def waits() -> None:
        # As asyncio.run does: the first Ctrl-C cancels the main task, the second one ends all.
        [main] = [task for task in asyncio.all_tasks() if task.get_name() == "main"]
        main.cancel()
        asyncio.get_running_loop().call_later(0.1, interrupt)
        await asyncio.Event().wait()

    async def program() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("main")
        async with await open_storage(url) as storage, a_runtime(storage, handlers).start() as pod:
            jobs.append((await pod.enqueue(waits.request())).job_id)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(program())

    async def look() -> None:
        async with await open_storage(url) as storage:
            job = await get_job(storage, jobs[0])
            assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)
            assert await storage.procs.pods() == []

    asyncio.run(look())
