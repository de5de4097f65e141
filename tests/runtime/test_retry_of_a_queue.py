"""The handler's retry policy decides, else the policy of the queue."""

from datetime import timedelta

import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import QueueSettings
from forge_jobs.model.retries import Fixed
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import job_when, quick_settings

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


async def test_a_queues_policy_holds_for_handlers_without_one(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("plain", queue="slow")
    async def plain() -> None:
        raise OSError("not today")

    @handlers.job("own", queue="slow", retry=Fixed(timedelta(hours=2), jitter=False))
    async def own() -> None:
        raise OSError("not today")

    runtime = QueueRuntime(storage, handlers, settings=quick_settings())
    settings = QueueSettings(retry=Fixed(timedelta(hours=9), jitter=False))
    async with runtime.with_queues(slow=settings).start() as handle:
        delays = {}
        for handler in (plain, own):
            outcome = await handle.enqueue(handler.request())
            before = await storage.cron.now()
            job = await job_when(storage, outcome.job_id, JobStatus.FAILED)
            delays[job.kind] = round((job.due_at - before) / timedelta(hours=1))

    assert delays == {"plain": 9, "own": 2}
