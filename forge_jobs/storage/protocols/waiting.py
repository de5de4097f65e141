"""The part of the job store that knows the order of claims."""

from typing import Protocol

from forge_jobs.model.ids import JobId
from forge_jobs.model.queues import LinePlace


class WaitingStore(Protocol):
    """Waiting jobs in the order of claims: priority, due time, id."""

    async def place(self, queue: str, job_id: JobId) -> LinePlace | None:
        """Count the due jobs of the queue that come before a waiting job, whatever their kind.

        No more than ``MOST_AHEAD`` are counted. Expired jobs count until the sweep cancels them,
        held jobs do not count. Of a job that is not due yet all due jobs come before whose
        priority is not higher.

        None: the job is held, blocked, runs, has ended, or is not in the queue.
        """
        ...
