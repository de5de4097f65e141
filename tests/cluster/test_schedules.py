"""Hundreds of schedules due at one instant, and the coordinator killed while they fire."""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import pytest

from forge_jobs import EnqueueRequest
from forge_jobs.clients.schedules import schedule
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.schedules import ScheduleSpec
from forge_jobs.runtime.passes.cron import FIRE_BATCH
from forge_jobs.storage.protocols import Storage
from tests.support.pods import Fleet, quick_settings
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.long]

SCHEDULES = int(os.environ.get("FORGE_TEST_SCHEDULES", "300"))
PODS = int(os.environ.get("FORGE_TEST_SCHEDULE_PODS", "4"))
DECLARERS = 8
HEAD_START = timedelta(seconds=5)
SETTINGS = quick_settings(lease=timedelta(seconds=6), leader_lease=timedelta(seconds=3))
IN_CALL = 2
"""The call that is cut short, of those that fire schedules: the jobs of the first are there."""
AFTER = {"sqlite": 0.006, "postgres": 0.012, "redis": 0.05}
"""Seconds into that call: half of the call's time on an idle machine."""


async def test_each_fires_once_although_the_coordinator_is_killed_while_they_fire(
    backend: str, storage: Storage, pods: Fleet, tmp_path: Path
) -> None:
    assert SCHEDULES > IN_CALL * FIRE_BATCH, "nothing would be left to fire for those who live"
    # No pod serves the queue of these jobs: what counts is that they are there, once each.
    death = (IN_CALL, AFTER[backend], str(tmp_path / "died"))
    for _ in range(PODS):
        pods.start({"other": PODS}, SETTINGS, death=death)
    await wait_until(lambda: _live(storage, PODS), description="all pods are there", timeout=100)
    due_at = await storage.cron.now() + HEAD_START
    specs = [
        schedule(f"s{number}", EnqueueRequest("report", queue="reports"), "@yearly")
        for number in range(SCHEDULES)
    ]
    async with anyio.create_task_group() as group:
        for start in range(DECLARERS):
            group.start_soon(_declare, storage, specs[start::DECLARERS], due_at)

    await wait_until(lambda: _killed(pods), description="a pod was killed while it fired")
    await wait_until(
        lambda: _all_fired(storage), description="every schedule has fired", timeout=100
    )

    assert await _jobs_by_schedule(storage) == Counter({spec.name: 1 for spec in specs})
    await wait_until(lambda: _all_counted(storage), description="what fired has been counted")
    assert _killed(pods) == [-signal.SIGKILL]


async def _declare(storage: Storage, specs: Sequence[ScheduleSpec], due_at: datetime) -> None:
    for spec in specs:
        await storage.cron.ensure_schedule(spec, due_at)


async def _live(storage: Storage, count: int) -> bool:
    pods = await storage.procs.pods()
    return sum(pod.lease_remaining.total_seconds() > 0 for pod in pods) == count


def _killed(pods: Fleet) -> list[int]:
    """The exit codes of the pods that do not run."""
    return [pod.exit_code for pod in pods.pods if pod.exit_code is not None]


async def _fired(storage: Storage) -> int:
    counts = await storage.jobs.counts(["reports"])
    return sum(counts["reports"].by_status.values()) if "reports" in counts else 0


async def _all_fired(storage: Storage) -> bool:
    return await _fired(storage) >= SCHEDULES


async def _all_counted(storage: Storage) -> bool:
    return all(one.fired == 1 for one in await storage.cron.schedules())


async def _jobs_by_schedule(storage: Storage) -> Counter[str]:
    found: Counter[str] = Counter()
    cursor = None
    while True:
        page = await storage.jobs.list(JobFilter(queues=("reports",)), cursor=cursor, limit=1_000)
        jobs = await storage.jobs.get([job.id for job in page.jobs])
        found.update(job.schedule for job in jobs.values())
        cursor = page.cursor
        if cursor is None:
            return found
