"""The searches of a look, the same on every store."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forge_jobs.model.filters import JobFilter, JobOrder
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.looks import (
    MOST_BLOCKED,
    MOST_CANCELLED,
    MOST_CRASHED,
    MOST_HELD,
    MOST_RUNS,
    MOST_STARVED,
    JobsAsked,
)
from forge_jobs.model.processes import WorkerState

_AFTER_CRASHES = (JobStatus.PENDING, JobStatus.FAILED, JobStatus.IN_PROGRESS, JobStatus.DEAD)


class Search(NamedTuple):
    """The arguments of a list."""

    which: JobFilter
    order: JobOrder
    limit: int


def searches(asked: JobsAsked) -> dict[str, Search]:
    """Return the lists of a look that are not empty, by the field of the answer."""
    blocked = JobFilter(queues=asked.blocked, statuses=(JobStatus.BLOCKED,))
    crashed = JobFilter(queues=asked.crashed, statuses=_AFTER_CRASHES, causes=(Cause.CRASHED,))
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


def longest(workers: Iterable[WorkerState]) -> tuple[Sequence[WorkerState], Sequence[WorkerState]]:
    """Return the longest runs, and of those that were asked to stop the longest."""
    ordered = sorted(workers, key=lambda each: (each.started_at, each.job_id))
    asked = [each for each in ordered if each.cancel_requested]
    return ordered[:MOST_RUNS], asked[:MOST_CANCELLED]
