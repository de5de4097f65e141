"""Job filters as SQL, and cursors."""

from typing import Any

from sqlalchemy import ColumnElement

from forge_jobs.clock import to_us
from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import check_job_id
from forge_jobs.model.jobs import JobFilter
from forge_jobs.storage.sql.flavor import Flavor
from forge_jobs.storage.sql.job_rows import tag_pattern
from forge_jobs.storage.sql.tables import jobs


def conditions(which: JobFilter, flavor: Flavor) -> list[ColumnElement[bool]]:
    """Every part of the filter that is set, but for the ids."""
    found: list[ColumnElement[bool]] = []
    choices: tuple[tuple[ColumnElement[Any], tuple[str, ...]], ...] = (
        (jobs.c.queue, which.queues),
        (jobs.c.kind, which.kinds),
        (jobs.c.status, tuple(status.value for status in which.statuses)),
        (jobs.c.cause, tuple(cause.value for cause in which.causes)),
    )
    found.extend(column.in_(values) for column, values in choices if values)
    if which.tag is not None:
        found.append(flavor.contains(jobs.c.tags, tag_pattern(which.tag)))
    if which.unique_key is not None:
        found.append(jobs.c.unique_key == which.unique_key)
    if which.schedule is not None:
        found.append(jobs.c.schedule == which.schedule)
    if which.enqueued_before is not None:
        found.append(jobs.c.enqueued_at < to_us(which.enqueued_before))
    if which.enqueued_after is not None:
        found.append(jobs.c.enqueued_at >= to_us(which.enqueued_after))
    return found


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
