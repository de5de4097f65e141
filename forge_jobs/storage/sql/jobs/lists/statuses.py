"""How many jobs queues have, by status."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    CompoundSelect,
    Select,
    bindparam,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    text,
    union_all,
)

from forge_jobs.model.jobs import TERMINAL, JobStatus
from forge_jobs.model.queues import QueueCounts
from forge_jobs.storage.sql.base.levels import levels_of
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import CLAIMED, READY, SET_ASIDE, WAITING, jobs, queues
from forge_jobs.storage.sql.base.transaction import Tx

_QUEUE_NAMES = select(queues.c.name).order_by(queues.c.name)
_now: BindParameter[Any] = bindparam("now")
_most: BindParameter[Any] = bindparam("most")


def _by_status(
    statuses: Sequence[JobStatus], most: BindParameter[Any] | None
) -> CompoundSelect[Any]:
    """Count once per queue and status, each a walk over a part of an index: grouping the rows
    takes twice as long. The status is in the text, because PostgreSQL reads the whole table for a
    status that only the run tells."""
    return union_all(*(_of_status(each, most) for each in statuses))


def _of_status(status: JobStatus, most: BindParameter[Any] | None) -> Select[Any]:
    walk = select(jobs.c.id).where(
        jobs.c.queue == queues.c.name, jobs.c.status == literal_column(f"'{status.value}'")
    )
    walk = walk.correlate(queues)
    if most is not None:
        # In the order of the index, which nothing but the index has.
        walk = walk.order_by(jobs.c.id).limit(most)
    count: ColumnElement[int] = select(func.count()).select_from(walk.subquery()).scalar_subquery()
    return select(queues.c.name, literal(status.value), count).where(one_of(queues.c.name, "names"))


_ALL = _by_status(list(JobStatus), None)
_ACTIVE = _by_status([each for each in JobStatus if each not in TERMINAL], None)
_ENDED = _by_status([each for each in JobStatus if each in TERMINAL], _most)
_named = select(queues.c.name.label("queue")).where(one_of(queues.c.name, "names")).subquery()
_levels = levels_of(_named.c.queue)
_OF_LEVEL = (
    jobs.c.queue == _levels.c.queue,
    jobs.c.priority == _levels.c.priority,
    jobs.c.run_at <= _now,
    text(READY),
)
# Of one statement, so that both parts see the same jobs. Per queue and priority, because the
# database then reads an index alone, however many jobs are due. Expired jobs are few: the leader
# ends them.
_DUE = union_all(
    select(
        _levels.c.queue,
        select(func.count()).where(*_OF_LEVEL).correlate(_levels).scalar_subquery(),
        select(jobs.c.run_at)
        .where(*_OF_LEVEL, or_(jobs.c.expires_at.is_(None), jobs.c.expires_at > _now))
        .order_by(jobs.c.run_at)
        .limit(1)
        .correlate(_levels)
        .scalar_subquery(),
    ).where(_levels.c.priority.is_not(None)),
    select(jobs.c.queue, -func.count(), null())
    .where(
        jobs.c.expires_at <= _now,
        text(f"expires_at IS NOT NULL AND {WAITING}"),
        jobs.c.run_at <= _now,
        text("status <> 'blocked' AND hold IS NULL"),
    )
    .group_by(jobs.c.queue),
)
_HELD = (
    select(jobs.c.queue, func.count())
    .where(one_of(jobs.c.queue, "names"), text(SET_ASIDE))
    .group_by(jobs.c.queue)
)
_RUNNING = (
    select(jobs.c.queue, func.count())
    .where(one_of(jobs.c.queue, "names"), jobs.c.started_at.is_not(None), text(CLAIMED))
    .group_by(jobs.c.queue)
)


def counts(
    tx: Tx, names: Sequence[str] | None, ended_at_most: int | None
) -> dict[str, QueueCounts]:
    """See ``JobStore.counts``."""
    wanted = tx.execute(_QUEUE_NAMES).scalars().all() if names is None else sorted(set(names))
    at: dict[str, Any] = {"names": list(wanted), "now": tx.now}
    by_status = {name: dict.fromkeys((status.value for status in JobStatus), 0) for name in wanted}
    more: dict[str, tuple[str, ...]] = {}
    for queue, status, count in tx.execute(_ALL if ended_at_most is None else _ACTIVE, at):
        by_status[queue][status] = count
    if ended_at_most is not None:
        # One more, which tells that there are more.
        for queue, status, count in tx.execute(_ENDED, {**at, "most": ended_at_most + 1}):
            by_status[queue][status] = min(count, ended_at_most)
            if count > ended_at_most:
                more[queue] = (*more.get(queue, ()), status)
    due, oldest = _due(tx, at)
    held = {row[0]: row[1] for row in tx.execute(_HELD, at)}
    running = {row[0]: row[1] for row in tx.execute(_RUNNING, at)}
    return {
        name: QueueCounts(
            by_status=by_status[name],
            due=due.get(name, 0),
            held=held.get(name, 0),
            running=running.get(name, 0),
            oldest_due_for=timedelta(microseconds=tx.now - oldest[name])
            if name in oldest
            else None,
            more=more.get(name, ()),
        )
        for name in wanted
    }


def _due(tx: Tx, at: dict[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many jobs of each queue are due, and since when the oldest is."""
    due: dict[str, int] = {}
    oldest: dict[str, int] = {}
    for queue, count, earliest in tx.execute(_DUE, at):
        due[queue] = due.get(queue, 0) + count
        if earliest is not None:
            oldest[queue] = min(earliest, oldest.get(queue, earliest))
    return due, oldest
