"""Lists of jobs, as a part of the store of jobs."""

from forge_jobs.model.filters import MOST_COUNTED, Count, JobFilter, JobOrder, Page
from forge_jobs.model.looks import JobsAsked, JobsLook
from forge_jobs.storage.history.looks import longest, searches
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.fleet.read import list_workers
from forge_jobs.storage.sql.jobs import read
from forge_jobs.storage.sql.jobs.lists.counting import count_jobs
from forge_jobs.storage.sql.jobs.metrics import read_events

_EVENTS = 100
"""Events of a job in a look."""


class ListCalls:
    """The methods of :class:`~forge_jobs.storage.protocols.JobStore` that list and count jobs."""

    _database: Database

    async def count(
        self, which: JobFilter, *, at_most: int = MOST_COUNTED, cursor: str | None = None
    ) -> Count:
        return await self._database.read(lambda tx: count_jobs(tx, which, at_most, cursor))

    async def list(
        self,
        which: JobFilter,
        *,
        order: JobOrder = "id",
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page:
        return await self._database.read(lambda tx: read.list_jobs(tx, which, order, cursor, limit))

    async def look(self, asked: JobsAsked) -> JobsLook:
        return await self._database.read(lambda tx: _look(tx, asked))


def _look(tx: Tx, asked: JobsAsked) -> JobsLook:
    lines = {
        name: read.list_jobs(tx, which, order, None, limit).jobs
        for name, (which, order, limit) in searches(asked).items()
    }
    ids = [job.id for name, found in lines.items() if name != "held" for job in found]
    jobs = read.get(tx, ids) if ids else {}
    whole = {
        name: tuple(jobs[job.id] for job in found if job.id in jobs)
        for name, found in lines.items()
        if name != "held"
    }
    parents = {parent for child in whole.get("blocked", ()) for parent in child.held_by}
    runs, cancelled = longest(list_workers(tx, None) if asked.runs else ())
    return JobsLook(
        blocked=whole.get("blocked", ()),
        parents=read.get(tx, sorted(parents)) if parents else {},
        crashed=whole.get("crashed", ()),
        held=tuple(lines.get("held", ())),
        starved=whole.get("starved", ()),
        runs=tuple(runs),
        cancelled=tuple(cancelled),
        events={
            each.job_id: tuple(read_events(tx, each.job_id, None, _EVENTS)) for each in cancelled
        },
    )
