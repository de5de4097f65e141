"""The parts of the stores that answer the list of problems, in one call each."""

from typing import Protocol

from forge_jobs.model.looks import ConfigLook, CronLook, JobsAsked, JobsLook


class LookedAtJobs(Protocol):
    """Jobs that may be a problem."""

    async def look(self, asked: JobsAsked) -> JobsLook:
        """Return jobs of each sort that is asked for, a bounded number of each.

        One call, however many queues and jobs there are. On SQL one transaction. On Redis a few
        steps, so a job that changes meanwhile may be in two parts or in none. Queues that are
        silent are left out.
        """
        ...


class LookedAtConfig(Protocol):
    """Settings and limits."""

    async def look(self) -> ConfigLook:
        """Return ``queues`` and ``rate_limits`` in one call."""
        ...


class LookedAtCron(Protocol):
    """The leader and schedules."""

    async def look(self) -> CronLook:
        """Return ``now``, ``leader`` and ``schedules`` in one call."""
        ...
