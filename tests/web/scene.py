"""A store with something on every page."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from forge_jobs import (
    After,
    Dead,
    EnqueueRequest,
    Fixed,
    HandlerRegistry,
    JobContext,
    QueueRuntime,
    RateLimit,
    RuntimeSettings,
)
from forge_jobs.clients.client import JobClient
from forge_jobs.clients.schedules import put_schedule, schedule
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.protocols import Storage
from tests.support.waiting import wait_until

handlers = HandlerRegistry()


@handlers.job("gh.sync_issue", queue="gh", max_attempts=3, retry=Fixed(timedelta(hours=1)))
async def sync_issue(number: int) -> dict[str, int]:
    """Succeed, fail or die by the number."""
    if number % 7 == 3:
        raise Dead(f"card {number} declined")
    if number % 7 == 5:
        raise ValueError(f"issue {number} has no title")
    return {"number": number}


@handlers.job("image.crop", queue="images", max_attempts=2)
async def crop(job: JobContext, path: str) -> None:
    """Report progress, and stay until the scene ends."""
    job.progress.set(31, 50, message=path)
    job.log.info("cropping %s", path)
    await Scene.gate.wait()


class Scene:
    """Names of what there is."""

    gate: asyncio.Event

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.pod = ""


@asynccontextmanager
async def playing(storage: Storage) -> AsyncIterator[Scene]:
    """Fill the store and keep a pod running there."""
    scene = Scene()
    Scene.gate = asyncio.Event()
    settings = RuntimeSettings(event_flush_interval=timedelta(milliseconds=100))
    runtime = QueueRuntime(storage, handlers, settings=settings, version="8f2c").with_queues(
        gh=4, images=2
    )
    async with JobClient(storage, handlers) as client:
        requests = [EnqueueRequest("gh.sync_issue", {"number": n}) for n in range(20)]
        requests += [EnqueueRequest("image.crop", {"path": f"/photos/{n}.png"}) for n in range(6)]
        requests += [EnqueueRequest("mail.send", {"to": "a@b.example"}, queue="mail")]
        requests += [
            EnqueueRequest(
                "mail.send",
                {"to": "c@d.example", "amount": 2**63},
                queue="mail",
                delay=timedelta(hours=3),
                tags=["nightly", "eu"],
                unique_key="mail-c",
            )
        ]
        outcomes = [await client.enqueue(each) for each in requests]
        child = EnqueueRequest("mail.send", {}, queue="mail", after=[After(outcomes[-1].job_id)])
        blocked = await client.enqueue(child)
    await storage.config.set_queue("mail", QueueChange(max_workers=4))
    await storage.config.set_paused("mail", True)
    await storage.config.ensure_rate_limit("smtp", RateLimit(100, 60))
    await storage.config.ensure_limits("mail", {"hosts": 2})
    await storage.config.take_tokens("smtp", 37)
    for name, expression in (("nightly", "30 2 * * *"), ("tick", "@every 6h")):
        request = EnqueueRequest("mail.send", {"to": "all"}, queue="mail")
        spec = schedule(name, request, expression, timezone="Europe/Berlin")
        await put_schedule(storage.cron, spec)
    async with runtime.start() as handle:
        scene.pod = handle.host_id
        try:
            await _settled(storage)
            scene.jobs = {
                "done": outcomes[0].job_id,
                "dead": outcomes[3].job_id,
                "failed": outcomes[5].job_id,
                "running": outcomes[20].job_id,
                "scheduled": outcomes[-1].job_id,
                "blocked": blocked.job_id,
            }
            yield scene
        finally:
            Scene.gate.set()


async def _settled(storage: Storage) -> None:
    async def is_settled() -> bool:
        counts = await storage.jobs.counts(["gh", "images"])
        gh, images = counts["gh"].by_status, counts["images"]
        return gh[JobStatus.DONE] >= 14 and images.running == 2

    await wait_until(is_settled, description="the scene is set", timeout=60)
