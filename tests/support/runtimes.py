"""Runtimes with small numbers, and what is asked of them again and again."""

from datetime import timedelta
from typing import Any

from msgspec import structs

from forge_jobs.config import RuntimeSettings
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Job, JobStatus
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.protocols import Storage
from tests.support.waiting import wait_until

QUEUE = "default"


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def quick_settings(**overrides: Any) -> RuntimeSettings:
    """Beat every 50 ms, with a lease that no stall of a loaded machine outlasts.

    Tests of what happens when a lease runs out ask for a short one.
    """
    settings = RuntimeSettings(
        heartbeat_interval=seconds(0.05),
        lease=seconds(20),
        fence_margin=seconds(2),
        leader_lease=seconds(1),
        grace=seconds(5),
        reap_interval=seconds(0.1),
        coordinate_interval=seconds(0.05),
        handover_interval=seconds(0.1),
        cron_interval=seconds(0.1),
        event_flush_interval=seconds(0.1),
    )
    return structs.replace(settings, **overrides)


def a_runtime(
    storage: Storage,
    handlers: HandlerRegistry,
    workers: int = 1,
    *,
    settings: RuntimeSettings | None = None,
    **options: Any,
) -> QueueRuntime:
    """A runtime of the default queue."""
    runtime = QueueRuntime(storage, handlers, settings=settings or quick_settings(), **options)
    return runtime.with_queues(default=workers)


async def job_when(storage: Storage, job_id: JobId, *statuses: JobStatus) -> Job:
    """Wait until the job has one of ``statuses``."""

    async def look() -> Job | None:
        job = (await storage.jobs.get([job_id])).get(job_id)
        return job if job is not None and job.status in statuses else None

    wanted = " or ".join(statuses)
    job: Job = await wait_until(look, description=f"job {job_id} is {wanted}")
    return job


async def job_because(storage: Storage, job_id: JobId, cause: Cause) -> Job:
    """Wait until the job is where it is for ``cause``."""

    async def look() -> Job | None:
        job = (await storage.jobs.get([job_id])).get(job_id)
        return job if job is not None and job.cause is cause else None

    job: Job = await wait_until(look, description=f"the cause of job {job_id} is {cause}")
    return job


async def ended(storage: Storage, job_id: JobId) -> Job:
    """Wait until the job is terminal."""
    return await job_when(storage, job_id, JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED)


async def in_progress(storage: Storage, queue: str = QUEUE) -> int:
    """How many claims the store knows of."""
    counts = await storage.jobs.counts([queue])
    return counts[queue].by_status.get(JobStatus.IN_PROGRESS, 0) if queue in counts else 0


async def found_no_work(handle: QueueHandle, queue: str = QUEUE) -> None:
    """Wait until the pod has slots of the queue, has looked, and has no call under way.

    The next call for the queue is then one that the test causes.
    """
    loop = handle._pod.queues[queue]

    def is_idle() -> bool:
        asked = loop.pool.grant and loop.calls_begun
        return bool(asked and loop.is_idle and not loop.pool._may_have_work)

    await wait_until(is_idle, description="it has found no work")
