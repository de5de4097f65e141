"""The searches of a look, the same on every store."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from forge_jobs.model.filters import JobFilter, JobOrder, JobSummary
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Job, JobStatus
from forge_jobs.model.looks import (
    AFTER_CRASHES,
    CRASHED_WITHIN,
    MOST_BLOCKED,
    MOST_CANCELLED,
    MOST_CRASHED,
    MOST_HELD,
    MOST_RUNS,
    MOST_STARVED,
    JobsAsked,
    JobsLook,
)
from forge_jobs.model.processes import WorkerState

EVENTS_OF_A_RUN = 100
"""Events of a job in a look."""

Lines = Mapping[str, Sequence[JobSummary]]
"""The findings of the searches, by the field of the answer."""


class Search(NamedTuple):
    """The arguments of a list."""

    which: JobFilter
    order: JobOrder
    limit: int


def searches(asked: JobsAsked) -> dict[str, Search]:
    """Return the lists of a look that are not empty, by the field of the answer."""
    blocked = JobFilter(queues=asked.blocked, statuses=(JobStatus.BLOCKED,))
    crashed = JobFilter(queues=asked.crashed, statuses=AFTER_CRASHES, causes=(Cause.CRASHED,))
    held = JobFilter(queues=asked.held, statuses=(JobStatus.PENDING, JobStatus.FAILED))
    starved = JobFilter(
        queues=asked.starved, statuses=(JobStatus.PENDING,), causes=(Cause.RATE_LIMITED,)
    )
    found = {
        "blocked": Search(blocked, "id", MOST_BLOCKED),
        "crashed": Search(crashed, "id", MOST_CRASHED),
        "held": Search(held, "id", MOST_HELD),
        "starved": Search(starved, "due", MOST_STARVED),
    }
    return {name: each for name, each in found.items() if each.which.queues}


def crashes_since(now: datetime) -> datetime:
    """Return the first of the minutes whose crashes a look asks for."""
    return (now - CRASHED_WITHIN).replace(second=0, microsecond=0)


def read_whole(lines: Lines) -> list[JobId]:
    """Return the jobs of which a look tells more than their lines."""
    return [job.id for name, found in lines.items() if name != "held" for job in found]


def look_of(lines: Lines, jobs: Mapping[JobId, Job]) -> JobsLook:
    """Return what the searches have found. ``jobs``: those of :func:`read_whole` that are there."""

    def whole(name: str) -> tuple[Job, ...]:
        return tuple(jobs[job.id] for job in lines.get(name, ()) if job.id in jobs)

    return JobsLook(
        blocked=whole("blocked"),
        crashed=whole("crashed"),
        held=tuple(lines.get("held", ())),
        starved=whole("starved"),
    )


def parents_of(look: JobsLook) -> list[JobId]:
    """Return the jobs that hold the blocked ones."""
    return sorted({parent for child in look.blocked for parent in child.held_by})


def longest(workers: Iterable[WorkerState]) -> tuple[Sequence[WorkerState], Sequence[WorkerState]]:
    """Return the longest runs, and of those that were asked to stop the longest."""
    ordered = sorted(workers, key=lambda each: (each.started_at, each.job_id))
    asked = [each for each in ordered if each.cancel_requested]
    return ordered[:MOST_RUNS], asked[:MOST_CANCELLED]
