"""Reads of jobs."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    TEXT,
    BigInteger,
    BindParameter,
    ColumnElement,
    Select,
    bindparam,
    func,
    literal,
    or_,
    select,
    text,
    true,
    union_all,
)

from forge_jobs.model.filters import JobFilter, JobOrder, Page
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Job, JobStatus
from forge_jobs.model.queues import MOST_AHEAD, LinePlace, QueueCounts
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
from forge_jobs.storage.sql.base.tables import CLAIMED, READY, jobs, queues
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
_QUEUE_NAMES = select(queues.c.name).order_by(queues.c.name)
_now: BindParameter[Any] = bindparam("now")
_statuses = union_all(*(select(literal(each.value).label("status")) for each in JobStatus)).cte()
# One count per queue and status, each a walk over a part of an index: grouping the rows takes
# twice as long.
_BY_STATUS = (
    select(
        queues.c.name,
        _statuses.c.status,
        select(func.count())
        .where(jobs.c.queue == queues.c.name, jobs.c.status == _statuses.c.status)
        .scalar_subquery(),
    )
    .join_from(queues, _statuses, true())
    .where(one_of(queues.c.name, "names"))
)
_DUE = (
    select(jobs.c.queue, func.count(), func.min(jobs.c.run_at))
    .where(
        one_of(jobs.c.queue, "names"),
        jobs.c.run_at <= _now,
        text(READY),
        or_(jobs.c.expires_at.is_(None), jobs.c.expires_at > _now),
    )
    .group_by(jobs.c.queue)
)
_HELD = (
    select(jobs.c.queue, func.count())
    .where(one_of(jobs.c.queue, "names"), text("hold IS NOT NULL"))
    .group_by(jobs.c.queue)
)
_RUNNING = (
    select(jobs.c.queue, func.count())
    .where(one_of(jobs.c.queue, "names"), jobs.c.started_at.is_not(None), text(CLAIMED))
    .group_by(jobs.c.queue)
)


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


def counts(tx: Tx, names: Sequence[str] | None) -> dict[str, QueueCounts]:
    """See ``JobStore.counts``."""
    wanted = tx.execute(_QUEUE_NAMES).scalars().all() if names is None else sorted(set(names))
    at: dict[str, Any] = {"names": list(wanted), "now": tx.now}
    by_status = {name: dict.fromkeys((status.value for status in JobStatus), 0) for name in wanted}
    for queue, status, count in tx.execute(_BY_STATUS, at):
        by_status[queue][status] = count
    due = {queue: (count, earliest) for queue, count, earliest in tx.execute(_DUE, at)}
    held = {row[0]: row[1] for row in tx.execute(_HELD, at)}
    running = {row[0]: row[1] for row in tx.execute(_RUNNING, at)}
    return {
        name: QueueCounts(
            by_status=by_status[name],
            due=due[name][0] if name in due else 0,
            held=held.get(name, 0),
            running=running.get(name, 0),
            oldest_due_for=timedelta(microseconds=tx.now - due[name][1]) if name in due else None,
        )
        for name in wanted
    }
