"""Lists of jobs, as a part of the store of jobs."""

from collections.abc import Mapping, Sequence

from msgspec import structs

from forge_jobs.clock import from_us
from forge_jobs.errors import PartlyUnavailable
from forge_jobs.model.filters import MOST_COUNTED, Count, JobFilter, JobOrder, Page
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Job
from forge_jobs.model.looks import JobsAsked, JobsLook
from forge_jobs.model.metrics import MINUTE
from forge_jobs.storage.history.looks import (
    EVENTS_OF_A_RUN,
    crashes_since,
    longest,
    look_of,
    parents_of,
    read_whole,
    searches,
)
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.fleet.pods import read_workers
from forge_jobs.storage.redis.jobs import read
from forge_jobs.storage.redis.jobs.lists.counting import count_jobs
from forge_jobs.storage.redis.jobs.looks.limits import loads
from forge_jobs.storage.redis.jobs.metrics import read_events, summaries
from forge_jobs.storage.redis.jobs.struck import struck_lines
from forge_jobs.storage.redis.locators.late import LateLocators


class ListCalls:
    """The methods of :class:`~forge_jobs.storage.protocols.JobStore` that list and count jobs."""

    _database: Database
    _late_locators: LateLocators

    async def count(
        self, which: JobFilter, *, at_most: int = MOST_COUNTED, cursor: str | None = None
    ) -> Count:
        return await count_jobs(self._database, which, at_most, cursor)

    async def list(
        self,
        which: JobFilter,
        *,
        order: JobOrder = "id",
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page:
        return await read.list_jobs(self._database, which, order, cursor, limit)

    async def look(self, asked: JobsAsked) -> JobsLook:
        db = self._database
        if asked.crashed:
            asked = structs.replace(asked, crashed=await self._crashed(asked.crashed))
        lines = {
            name: (await read.list_jobs(db, which, order, None, limit)).jobs
            for name, (which, order, limit) in searches(asked).items()
        }
        look = look_of(lines, await self._there(read_whole(lines)))
        runs, cancelled = longest(await read_workers(db, None) if asked.runs else ())
        return structs.replace(
            look,
            struck=await struck_lines(db, asked.struck) if asked.struck else (),
            parents=await self._there(parents_of(look)),
            limits=await loads(db, asked.limited) if asked.limited else (),
            runs=tuple(runs),
            cancelled=tuple(cancelled),
            events={
                each.job_id: tuple(await read_events(db, each.job_id, None, EVENTS_OF_A_RUN))
                for each in cancelled
            },
        )

    async def _crashed(self, queues: Sequence[str]) -> tuple[str, ...]:
        """Return the queues in which a job has crashed of late."""
        db = self._database
        now = from_us(await db.run_one("time", db.keys.fleet, [], int))
        found = await summaries(db, queues, crashes_since(now), now + MINUTE)
        return tuple(name for name, each in sorted(found.items()) if each.counts.get(Cause.CRASHED))

    async def _there(self, ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        """Return jobs that answer: those of silent queues are left out."""
        if not ids:
            return {}
        try:
            return await read.get(self._database, ids, self._late_locators.queues)
        except PartlyUnavailable as error:
            return error.found
