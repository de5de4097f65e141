"""The part of the job store by which an operator edits one job."""

from typing import Protocol

from forge_jobs.model.edits import JobContent
from forge_jobs.model.ids import JobId


class EditedStore(Protocol):
    """Edits of one job that waits."""

    async def edit(
        self, job_id: JobId, *, token: int, before: JobContent, after: JobContent
    ) -> None:
        """Give a blocked, pending or failed job another content. An event on the timeline.

        Compare and set: nothing happens unless the job waits, ``token`` is that of the job, and the
        content is ``before``. So of two edits of one content the second is refused, and an edit
        never reaches a run that has begun. A repeat after the answer was lost is refused too.

        Fields that are equal in ``before`` and ``after`` stay as they are, byte for byte. Unique
        key, parents, attempts and hold stay, but for the hold of a limit, which the next claim
        looks at again. A pending or blocked job with another ``due_at`` was
        asked for that time from now on, and the cause of the pending one is ``enqueued``. Another
        payload drops the checkpoint and the steps, which are of the payload before. A repeat of the
        request that stored the job stays a repeat, whatever the payload is by now. Wakes the queue
        when the job is due.

        The call must not wait for a caller's open transaction.

        :param after: checked by the caller. A ``due_at`` in the past means a place before jobs that
            are due later
        :raises NotFound: no such job
        :raises Conflict: the job runs, has ended, cannot be read, has run since, or has another
            content. The text says which
        :raises Locked: an open transaction holds the job
        """
        ...
