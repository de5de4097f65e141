"""Retention: removes what is no longer kept, in bounded batches, oldest first."""

import heapq
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import Column, ColumnElement, Table, bindparam, delete, select, text, update

from forge_jobs.clock import duration_us
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import Retention
from forge_jobs.storage.sql.bookkeeping import delete_keys
from forge_jobs.storage.sql.children import tell_children
from forge_jobs.storage.sql.chunks import portions
from forge_jobs.storage.sql.lists import one_of
from forge_jobs.storage.sql.tables import (
    FINISHED,
    counters,
    edges,
    events,
    gauges,
    jobs,
    latencies,
    queues,
)
from forge_jobs.storage.sql.transaction import Tx

KEPT_AT_LEAST = timedelta(minutes=1)
"""A job that has ended stays as a row this long, so that a repeat of its end is recognised."""

HISTORY = timedelta(days=30)
"""How long timeline events and minutes stay."""

_retention = msgspec.json.Decoder(Retention)
_QUEUES = select(queues.c.name, queues.c.retention)

_FINISHED_OF = (
    jobs.c.queue == bindparam("of"),
    jobs.c.status == bindparam("as_status"),
    text(FINISHED),
)
_ENDED_BEFORE = (
    select(jobs.c.finished_at, jobs.c.id)
    .where(*_FINISHED_OF, jobs.c.finished_at <= bindparam("before"))
    .order_by(jobs.c.finished_at, jobs.c.id)
    .limit(bindparam("at_most"))
)
_NEWEST_BEYOND = (
    select(jobs.c.finished_at, jobs.c.id)
    .where(*_FINISHED_OF)
    .order_by(jobs.c.finished_at.desc(), jobs.c.id.desc())
    .limit(1)
    .offset(bindparam("kept"))
)
_EXPIRED_RESULTS = (
    select(jobs.c.id)
    .where(text("result_expires_at IS NOT NULL"), jobs.c.result_expires_at <= bindparam("before"))
    .order_by(jobs.c.result_expires_at)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
)
_CLEAR_RESULTS = (
    update(jobs).where(one_of(jobs.c.id, "ids")).values(result=None, result_expires_at=None)
)
# Asked again: a requeue may have come in between, or may be under way.
_STILL_FINISHED = (
    select(jobs.c.id, jobs.c.status, jobs.c.has_children)
    .where(one_of(jobs.c.id, "ids"), text(FINISHED), jobs.c.finished_at <= bindparam("before"))
    .order_by(jobs.c.id)
    .with_for_update(skip_locked=True)
)
_REMOVE = delete(jobs).where(one_of(jobs.c.id, "ids"))
_REMOVE_EDGES = delete(edges).where(one_of(edges.c.child_id, "ids"))


def cleanup(tx: Tx, limit: int) -> int:
    """Remove at most ``limit`` rows of each sort that retention no longer keeps; how many.

    A result past its own time counts as a row, so that a caller who sees ``limit`` goes on.
    """
    removed = _remove_jobs(tx, limit) + _clear_results(tx, limit)
    before = tx.now - duration_us(HISTORY)
    for table, column, key in (
        (events, events.c.at, (events.c.id,)),
        (counters, counters.c.minute, tuple(counters.primary_key)),
        (latencies, latencies.c.minute, tuple(latencies.primary_key)),
        (gauges, gauges.c.minute, tuple(gauges.primary_key)),
    ):
        removed += _remove_old(tx, table, column, key, before=before, limit=limit)
    return removed


def _remove_jobs(tx: Tx, limit: int) -> int:
    found: list[tuple[int, str]] = []
    for row in tx.execute(_QUEUES).all():
        retention = _retention.decode(row.retention)
        for status, age, most in _rules(retention):
            found += _overdue(tx, row.name, status, age, limit)
            if most is not None:
                found += _surplus(tx, row.name, status, most, limit)
    oldest = heapq.nsmallest(limit, set(found))
    ids = sorted(job_id for _, job_id in oldest)
    removed = 0
    before = tx.now - duration_us(KEPT_AT_LEAST)
    for portion in portions(ids):
        rows = tx.execute(_STILL_FINISHED, {"ids": portion, "before": before}).all()
        gone = [row.id for row in rows]
        if gone:
            # A child that was requeued alone may wait for one of them.
            parents = {row.id: JobStatus(row.status) for row in rows if row.has_children}
            tell_children(tx, parents, removed=True)
            tx.execute(_REMOVE, {"ids": gone})
            tx.execute(_REMOVE_EDGES, {"ids": gone})
        removed += len(gone)
    return removed


def _rules(retention: Retention) -> Iterator[tuple[JobStatus, timedelta, int | None]]:
    yield JobStatus.DONE, retention.done, retention.max_done
    yield JobStatus.DEAD, retention.dead, retention.max_dead
    yield JobStatus.CANCELLED, retention.cancelled, retention.max_cancelled


def _overdue(
    tx: Tx, queue: str, status: JobStatus, age: timedelta, limit: int
) -> list[tuple[int, str]]:
    """Jobs that ended at least ``age`` ago, and never less than a minute."""
    before = tx.now - duration_us(max(age, KEPT_AT_LEAST))
    return _ended_before(tx, queue, status, before, limit)


def _surplus(tx: Tx, queue: str, status: JobStatus, most: int, limit: int) -> list[tuple[int, str]]:
    """Jobs older than the ``most`` newest, and never those of the last minute."""
    newest = tx.execute(
        _NEWEST_BEYOND, {"of": queue, "as_status": status.value, "kept": most}
    ).first()
    if newest is None:
        return []
    before = min(newest.finished_at, tx.now - duration_us(KEPT_AT_LEAST))
    candidates = _ended_before(tx, queue, status, before, limit)
    # Of one instant the greater ids are the newer ones.
    return [pair for pair in candidates if pair <= (newest.finished_at, newest.id)]


def _ended_before(
    tx: Tx, queue: str, status: JobStatus, before: int, limit: int
) -> list[tuple[int, str]]:
    rows = tx.execute(
        _ENDED_BEFORE,
        {"of": queue, "as_status": status.value, "before": before, "at_most": limit},
    )
    return [(row.finished_at, row.id) for row in rows]


def _clear_results(tx: Tx, limit: int) -> int:
    ids = tx.execute(_EXPIRED_RESULTS, {"before": tx.now, "at_most": limit}).scalars().all()
    for portion in portions(ids):
        tx.execute(_CLEAR_RESULTS, {"ids": portion})
    return len(ids)


def _remove_old(
    tx: Tx,
    table: Table,
    column: ColumnElement[int],
    key: tuple[Column[Any], ...],
    *,
    before: int,
    limit: int,
) -> int:
    oldest = (
        select(*key)
        .where(column <= before)
        .order_by(column)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = tx.execute(oldest).all()
    delete_keys(tx, table, [part.name for part in key], rows)
    return len(rows)
