"""Schedules in a store, and firings of them."""

from datetime import datetime, timedelta
from typing import Any

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import occurrence_job_id
from forge_jobs.model.jobs import NewJob
from forge_jobs.model.schedules import Firing, Schedule, ScheduleSpec
from forge_jobs.storage.protocols import Storage
from tests.support.factories import KIND, MICROSECOND, QUEUE, new_job

HOUR = timedelta(hours=1)
NAME = "nightly: a'b %s {}"


def a_spec(**overrides: Any) -> ScheduleSpec:
    fields: dict[str, Any] = {"name": NAME, "queue": QUEUE, "kind": KIND, "expression": "@hourly"}
    return ScheduleSpec(**(fields | overrides))


async def declared(
    storage: Storage, clock: ManualClock, due_in: timedelta = HOUR, **overrides: Any
) -> Schedule:
    return await storage.cron.ensure_schedule(a_spec(**overrides), clock.now() + due_in)


async def stored(storage: Storage, name: str = NAME) -> Schedule:
    schedule = await storage.cron.get_schedule(name)
    assert schedule is not None
    return schedule


def occurrence(schedule: Schedule, at: datetime, **overrides: Any) -> NewJob:
    """Return the job of one occurrence, under the derived id."""
    microseconds = (at - datetime(1970, 1, 1, tzinfo=at.tzinfo)) // MICROSECOND
    return new_job(
        id=occurrence_job_id(schedule.spec.name, microseconds),
        schedule=schedule.spec.name,
        **overrides,
    )


def firing(schedule: Schedule, *jobs: NewJob, **overrides: Any) -> Firing:
    assert schedule.next_at is not None
    fields: dict[str, Any] = {
        "name": schedule.spec.name,
        "version": schedule.version,
        "jobs": jobs,
        "next_at": schedule.next_at + HOUR,
        "fired_at": schedule.next_at if jobs else None,
    }
    return Firing(**(fields | overrides))


async def fire(storage: Storage, schedule: Schedule, *jobs: NewJob, **overrides: Any) -> bool:
    [written] = await storage.cron.fire([firing(schedule, *jobs, **overrides)])
    return written


async def job_count(storage: Storage) -> int:
    return len((await storage.jobs.list(JobFilter(), limit=1000)).jobs)
