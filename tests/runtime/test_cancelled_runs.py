"""Runs whose tasks the program cancels: their workers are freed, and no job runs twice at once."""

import asyncio
import threading

import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.storage.protocols import Storage
from tests.support.factories import get_job
from tests.support.runtimes import QUEUE, a_runtime, ended, found_no_work, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


async def _two_in_one_turn(pod: QueueHandle) -> list[JobId]:
    """Enqueue jobs that the pod claims with one call and starts in one turn of the loop."""
    await wait_until(lambda: pod.health().queues[QUEUE].grant == 2, description="two slots")
    await found_no_work(pod)
    requests = [EnqueueRequest("cancels", {}), EnqueueRequest("works", {})]
    return [each.job_id for each in await pod.client.enqueue_many(requests)]


async def test_a_run_that_is_cancelled_before_its_first_step_frees_its_worker(
    storage: Storage,
) -> None:
    handlers, unstarted = HandlerRegistry(), []

    @handlers.job("cancels")
    async def cancels() -> None:
        own = asyncio.current_task()
        for task in asyncio.all_tasks() - {own}:
            if getattr(task.get_coro(), "__qualname__", "") == "Worker._work":
                unstarted.append(task)
                task.cancel()

    @handlers.job("works")
    async def works() -> None:
        pass

    async with a_runtime(storage, handlers, workers=2).start() as pod:
        ids = await _two_in_one_turn(pod)
        jobs = [await ended(storage, job_id) for job_id in ids]
        assert len(unstarted) == 1
        assert [(job.status, job.attempt, job.crashes) for job in jobs] == [
            (JobStatus.DONE, 1, 0),
            (JobStatus.DONE, 1, 0),
        ]
        await wait_until(
            lambda: pod.health().queues[QUEUE].running == 0, description="workers are free"
        )


async def test_a_thread_whose_run_is_cancelled_keeps_its_claim_until_it_ends(
    storage: Storage,
) -> None:
    handlers, before, goes_on = HandlerRegistry(), asyncio.all_tasks(), threading.Event()
    started = threading.Event()

    @handlers.job("works")
    def works() -> None:
        started.set()
        goes_on.wait(30)

    settings = quick_settings(lease=seconds(60), fence_margin=seconds(1), grace=seconds(20))
    pod = await a_runtime(storage, handlers, settings=settings).start()
    outcome = await pod.enqueue(EnqueueRequest("works", {}))
    await wait_until(started.is_set, description="the thread works")
    for task in asyncio.all_tasks() - before:
        task.cancel()
    beats: set[float | None] = set()

    def has_beaten() -> bool:
        beats.add(pod._pod.heartbeat.last_success)
        return len(beats) > 4

    try:
        await wait_until(has_beaten, description="four beats")
        assert (await get_job(storage, outcome.job_id)).status is JobStatus.IN_PROGRESS
    finally:
        goes_on.set()
    assert (await pod.stop()).is_clean
    job = await get_job(storage, outcome.job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.DONE, 1, 0)
