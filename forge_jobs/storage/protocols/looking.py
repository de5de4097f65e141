"""The parts of the stores that answer the list of problems, in one call each."""

from typing import Protocol

from forge_jobs.model.looks import FleetLook, JobsAsked, JobsLook


class LookedAtJobs(Protocol):
    """Jobs that may be a problem."""

    async def look(self, asked: JobsAsked) -> JobsLook:
        """Return jobs of each sort that is asked for, a bounded number of each.

        One call, however many queues and jobs there are. On SQL one transaction. On Redis a few
        steps, so a job that changes meanwhile may be in two parts or in none. Queues that are
        silent are left out.
        """
        ...


class LookedAtFleet(Protocol):
    """All but the jobs."""

    async def look(self) -> FleetLook:
        """Return time, leader, schedules, queues, the names of those with limits by key, rate
        limits, pods and their events in one call.

        Each part is what the verb of that name returns. On SQL one transaction. On Redis a few
        steps. Queues that are silent are left out.
        """
        ...
