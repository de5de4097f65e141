"""Job filters as SQL, the ids they mean, and cursors."""

import heapq
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Column, ColumnElement, Select, literal, or_, select, tuple_

from forge_jobs.clock import to_us
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobFilter, JobStatus
from forge_jobs.storage.sql.flavor import Flavor
from forge_jobs.storage.sql.job_rows import tag_patterns
from forge_jobs.storage.sql.tables import TEXT, jobs, queues
from forge_jobs.storage.sql.transaction import Tx

_MOST_LISTS = 256
_BEYOND_ALL = "~"
"""Sorts after every id."""

_QUEUE_NAMES = select(queues.c.name)


def conditions(which: JobFilter, flavor: Flavor) -> list[ColumnElement[bool]]:
    """Every part of the filter that is set, but for the ids."""
    found: list[ColumnElement[bool]] = []
    choices: tuple[tuple[ColumnElement[Any], tuple[str, ...]], ...] = (
        (jobs.c.queue, which.queues),
        (jobs.c.kind, which.kinds),
        (jobs.c.status, tuple(status.value for status in which.statuses)),
        (jobs.c.cause, tuple(cause.value for cause in which.causes)),
    )
    found.extend(_is_one_of(column, values) for column, values in choices if values)
    if which.tag is not None:
        patterns = tag_patterns(which.tag)
        found.append(or_(*(flavor.contains(jobs.c.tags, pattern) for pattern in patterns)))
    if which.unique_key is not None:
        found.append(jobs.c.unique_key == which.unique_key)
    if which.schedule is not None:
        found.append(jobs.c.schedule == which.schedule)
    if which.enqueued_before is not None:
        found.append(jobs.c.enqueued_at < to_us(which.enqueued_before))
    if which.enqueued_after is not None:
        found.append(jobs.c.enqueued_at >= to_us(which.enqueued_after))
    return found


def _is_one_of(column: ColumnElement[Any], values: Sequence[str]) -> ColumnElement[bool]:
    return column == values[0] if len(values) == 1 else column.in_(values)


def oldest_ids(tx: Tx, which: JobFilter, after: str, limit: int) -> list[JobId]:
    """Ids of matching jobs beyond ``after``, ascending. ``which.ids`` is not looked at."""
    which = msgspec.structs.replace(which, ids=None)
    found = (
        tx.execute(_page(part, tx.flavor, after, None).order_by(*_index(part)).limit(limit))
        for part in _parts(tx, which)
    )
    return heapq.nsmallest(limit, (job_id for rows in found for job_id in rows.scalars()))


def newest_ids(tx: Tx, which: JobFilter, before: str | None, limit: int) -> list[JobId]:
    """Ids of matching jobs below ``before``, descending."""
    found = (
        tx.execute(
            _page(part, tx.flavor, "", before)
            .order_by(*(column.desc() for column in _index(part)))
            .limit(limit)
        )
        for part in _parts(tx, which)
    )
    return heapq.nlargest(limit, (job_id for rows in found for job_id in rows.scalars()))


def _page(part: JobFilter, flavor: Flavor, after: str, before: str | None) -> Select[Any]:
    """Ids of one part between the two, neither included."""
    statement = select(jobs.c.id)
    if part.ids is not None:
        statement = statement.where(jobs.c.id.in_(part.ids))
    if _is_list(part):
        key = tuple_(*_index(part))
        fixed = (literal(part.queues[0], TEXT), literal(part.statuses[0].value, TEXT))
        statement = statement.where(
            key > tuple_(*fixed, literal(after, TEXT)),
            key < tuple_(*fixed, literal(before or _BEYOND_ALL, TEXT)),
        )
        part = msgspec.structs.replace(part, queues=(), statuses=())
    else:
        if after:
            statement = statement.where(jobs.c.id > after)
        if before is not None:
            statement = statement.where(jobs.c.id < before)
    return statement.where(*conditions(part, flavor))


def _index(part: JobFilter) -> tuple[Column[Any], ...]:
    """What a page is sorted by: the whole of an index, spelled out.

    Were queue and status compared for themselves, a planner could take the ids of the whole table
    for as quick a way, and walk over all that is newer than the first match.
    """
    return (jobs.c.queue, jobs.c.status, jobs.c.id) if _is_list(part) else (jobs.c.id,)


def _is_list(part: JobFilter) -> bool:
    """Whether it is of one queue and status."""
    alone = part.ids is None and part.unique_key is None
    return alone and len(part.queues) == len(part.statuses) == 1


def _parts(tx: Tx, which: JobFilter) -> list[JobFilter]:
    """Filters that together mean the same, each of one queue and status.

    There is an index of the ids of each queue and status. A list over several would be sorted
    whole, however long, to show its first page.
    """
    if (
        which.ids is not None
        or which.unique_key is not None
        or not (which.queues or which.statuses)
    ):
        return [which]
    names = set(which.queues or tx.execute(_QUEUE_NAMES).scalars())
    statuses = set(which.statuses or JobStatus)
    if len(names) * len(statuses) > _MOST_LISTS:
        return [which]
    return [
        msgspec.structs.replace(which, queues=(name,), statuses=(status,))
        for name in sorted(names)
        for status in sorted(statuses)
    ]
