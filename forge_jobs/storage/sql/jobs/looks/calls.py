"""Lists of jobs, as a part of the store of jobs."""

from msgspec import structs
from sqlalchemy import bindparam, literal, select

from forge_jobs.clock import from_us, to_us
from forge_jobs.model.filters import MOST_COUNTED, Count, JobFilter, JobOrder, Page
from forge_jobs.model.jobs import Cause
from forge_jobs.model.looks import JobsAsked, JobsLook
from forge_jobs.storage.history.looks import (
    EVENTS_OF_A_RUN,
    crashes_since,
    longest,
    look_of,
    parents_of,
    read_whole,
    searches,
)
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import counters
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.fleet.read import list_workers
from forge_jobs.storage.sql.jobs import read
from forge_jobs.storage.sql.jobs.lists.counting import count_jobs
from forge_jobs.storage.sql.jobs.looks.limits import loads
from forge_jobs.storage.sql.jobs.metrics import read_events
from forge_jobs.storage.sql.jobs.struck import struck_lines


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


_CRASHED = (
    select(counters.c.queue)
    .where(
        one_of(counters.c.queue, "names"),
        counters.c.minute >= bindparam("since"),
        counters.c.name == literal(Cause.CRASHED.value),
    )
    .distinct()
)


def _look(tx: Tx, asked: JobsAsked) -> JobsLook:
    if asked.crashed:
        at = {"names": list(asked.crashed), "since": to_us(crashes_since(from_us(tx.now)))}
        crashed = sorted(tx.execute(_CRASHED, at).scalars())
        asked = structs.replace(asked, crashed=tuple(crashed))
    lines = {
        name: read.list_jobs(tx, which, order, None, limit).jobs
        for name, (which, order, limit) in searches(asked).items()
    }
    look = look_of(lines, read.get(tx, read_whole(lines)))
    runs, cancelled = longest(list_workers(tx, None) if asked.runs else ())
    return structs.replace(
        look,
        struck=tuple(struck_lines(tx, asked.struck)) if asked.struck else (),
        parents=read.get(tx, parents_of(look)),
        limits=loads(tx, asked.limited) if asked.limited else (),
        runs=tuple(runs),
        cancelled=tuple(cancelled),
        events={
            each.job_id: tuple(read_events(tx, each.job_id, None, EVENTS_OF_A_RUN))
            for each in cancelled
        },
    )
