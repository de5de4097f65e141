"""Reads of jobs."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    TEXT,
    BigInteger,
    BindParameter,
    ColumnElement,
    Select,
    bindparam,
    func,
    select,
    text,
)

from forge_jobs.model.filters import JobFilter, JobOrder, Page
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Job, JobStatus
from forge_jobs.model.queues import MOST_AHEAD, LinePlace
from forge_jobs.storage.cursors import (
    Place,
    check_cursor,
    check_limit,
    check_order,
    check_place,
    cursor_of,
)
from forge_jobs.storage.sql.base.job_rows import job, job_summary
from forge_jobs.storage.sql.base.levels import levels_of
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import READY, jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.children import unsettled_parents
from forge_jobs.storage.sql.jobs.filters import newest_ids
from forge_jobs.storage.sql.jobs.lists.ordered import in_order

_WHOLE = select(jobs).where(one_of(jobs.c.id, "ids"))
_LINES = select(
    jobs.c.id,
    jobs.c.queue,
    jobs.c.kind,
    jobs.c.status,
    jobs.c.cause,
    jobs.c.priority,
    jobs.c.attempt,
    jobs.c.max_attempts,
    jobs.c.enqueued_at,
    jobs.c.run_at,
    jobs.c.finished_at,
    jobs.c.hold,
    jobs.c.host_id,
    jobs.c.started_at,
    jobs.c.tags,
    jobs.c.errors,
).where(one_of(jobs.c.id, "ids"))
_now: BindParameter[Any] = bindparam("now")
_of: BindParameter[Any] = bindparam("of", type_=TEXT)
_level: BindParameter[Any] = bindparam("level")
_at: BindParameter[Any] = bindparam("at", type_=BigInteger)
_WAITS = select(jobs.c.priority, jobs.c.run_at).where(
    jobs.c.id == bindparam("job"), jobs.c.queue == _of, text(READY)
)
_levels = levels_of(select(_of.label("queue")).subquery("one").c.queue)
_LEVELS = (
    select(_levels.c.priority).where(_levels.c.priority <= _level).order_by(_levels.c.priority)
)


def _due_before(*before: ColumnElement[bool]) -> Select[Any]:
    """Count due jobs of a priority, a walk over a part of an index. No more than ``most``."""
    of_level = (jobs.c.queue == _of, jobs.c.priority == _level, text(READY))
    walk = select(jobs.c.id).where(*of_level, jobs.c.run_at <= _now, *before)
    return select(func.count()).select_from(walk.limit(bindparam("most")).subquery())


_OF_LEVEL = _due_before()
_EARLIER = _due_before(jobs.c.run_at < _at)
_AS_EARLY = _due_before(jobs.c.run_at == _at, jobs.c.id < bindparam("job"))


def place(tx: Tx, queue: str, job_id: JobId) -> LinePlace | None:
    """See ``JobStore.place``."""
    row = tx.execute(_WAITS, {"job": job_id, "of": queue}).first()
    if row is None:
        return None
    at = {"of": queue, "now": tx.now, "at": row.run_at, "job": job_id}
    ahead = 0
    for level in tx.execute(_LEVELS, {"of": queue, "level": row.priority}).scalars().all():
        walks = (_OF_LEVEL,) if level < row.priority else (_EARLIER, _AS_EARLY)
        for walk in walks:
            most = MOST_AHEAD + 1 - ahead
            ahead += tx.execute(walk, {**at, "level": level, "most": most}).scalar_one()
    return LinePlace(ahead=min(ahead, MOST_AHEAD), is_more=ahead > MOST_AHEAD)


def get(tx: Tx, ids: Iterable[JobId]) -> dict[JobId, Job]:
    """See ``JobStore.get``."""
    rows = [row for portion in portions(ids) for row in tx.execute(_WHOLE, {"ids": portion})]
    blocked = [row.id for row in rows if row.status == JobStatus.BLOCKED.value]
    parents = unsettled_parents(tx, blocked)
    return {JobId(row.id): job(row, parents.get(row.id, {})) for row in rows}


def list_jobs(tx: Tx, which: JobFilter, order: JobOrder, cursor: str | None, limit: int) -> Page:
    """See ``JobStore.list``."""
    check_limit(limit)
    check_order(order)
    if order == "id":
        ids, end = newest_ids(tx, which, check_cursor(cursor), limit + 1)
        places, looked_at = [Place(0, each) for each in ids], None if end is None else Place(0, end)
    else:
        beyond = check_place(order, cursor)
        places, looked_at = in_order(tx, which, order, beyond, limit + 1)
    shown = places[:limit]
    rows = tx.execute(_LINES, {"ids": [place.id for place in shown]})
    lines = {row.id: job_summary(row) for row in rows}
    last = shown[-1] if len(places) > limit else looked_at
    return Page(
        tuple(lines[place.id] for place in shown if place.id in lines),
        None if last is None else cursor_of(order, last),
        looked_at.id if looked_at else None,
    )
