"""Job filters as SQL, the ids they mean, and cursors."""

import heapq
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, or_, select

from forge_jobs.clock import to_us
from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.jobs import JobFilter, JobStatus
from forge_jobs.storage.sql.flavor import Flavor
from forge_jobs.storage.sql.job_rows import tag_patterns
from forge_jobs.storage.sql.tables import jobs, queues
from forge_jobs.storage.sql.transaction import Tx

_MOST_LISTS = 256
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
    statement = select(jobs.c.id).where(jobs.c.id > after).order_by(jobs.c.id).limit(limit)
    return heapq.nsmallest(limit, _ids(tx, which, statement))


def newest_ids(tx: Tx, which: JobFilter, before: str | None, limit: int) -> list[JobId]:
    """Ids of matching jobs below ``before``, descending."""
    statement = select(jobs.c.id).order_by(jobs.c.id.desc()).limit(limit)
    if which.ids is not None:
        statement = statement.where(jobs.c.id.in_(which.ids))
    if before is not None:
        statement = statement.where(jobs.c.id < before)
    return heapq.nlargest(limit, _ids(tx, which, statement))


def _ids(tx: Tx, which: JobFilter, statement: Select[Any]) -> list[JobId]:
    return [
        job_id
        for part in _parts(tx, which)
        for job_id in tx.execute(statement.where(*conditions(part, tx.flavor))).scalars()
    ]


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


def check_cursor(cursor: str | None) -> str | None:
    """The cursor, once it is known to be one that was given out.

    :raises InvalidInput: it is not
    """
    if cursor is None:
        return None
    try:
        return check_job_id(cursor, "cursor")
    except InvalidInput:
        raise InvalidInput(
            "cursor", "is not one that a page has given", "pass the cursor of the last page"
        ) from None
