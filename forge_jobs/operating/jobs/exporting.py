"""The read of whole jobs, page by page."""

from typing import ClassVar

from msgspec import Struct

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import Job
from forge_jobs.operating.access import Right
from forge_jobs.operating.base import Calls
from forge_jobs.operating.documents import widened


class WholeJob(Job, frozen=True, kw_only=True):
    """A job with all fields, secrets hidden. In the document payload, result and trace are values.

    Without progress and timeline, which have reads of their own.
    """

    JSON_TEXTS: ClassVar[tuple[str, ...]] = ("payload", "result", "trace")


class JobsExport(Struct, frozen=True, kw_only=True):
    """A page of whole jobs, newest first.

    :param cursor: pass it with the same filter to get the next page. None on the last page. A page
        may be empty before
    :param silent: queues that did not answer, so that none of their jobs are on the page
    """

    jobs: tuple[WholeJob, ...]
    cursor: str | None
    silent: tuple[str, ...] = ()


class ExportCalls(Calls):
    """A part of the methods of an operator. See ``Operator``."""

    async def export_jobs(
        self, which: JobFilter | None = None, *, cursor: str | None = None, limit: int = 100
    ) -> JobsExport:
        """A page of whole matching jobs, newest first. Jobs that come meanwhile are on no page.

        Two calls of the store. Jobs that are removed between the two are left out.

        :param cursor: of the page before
        :param limit: 1 to 1,000 jobs, which are in memory at once with their payloads
        :raises Unavailable: a part of the store that has jobs of the page is silent
        """
        self.actor.need(Right.READ)
        page = await self.client.list(
            self._within(which or JobFilter()), cursor=cursor, limit=limit
        )
        ids = [line.id for line in page.jobs]
        found = await self.storage.jobs.get(ids) if ids else {}
        whole = [self._readable(found[job_id]) for job_id in ids if job_id in found]
        return JobsExport(
            # A job may have moved to a queue that is closed to the actor.
            jobs=tuple(widened(WholeJob, job) for job in whole if self.actor.sees(job.queue)),
            cursor=page.cursor,
            silent=page.silent,
        )
