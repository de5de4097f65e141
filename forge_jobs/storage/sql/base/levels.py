"""The priorities and kinds of the jobs that wait, found by seeking from one to the next."""

from typing import Any

from sqlalchemy import CTE, ColumnElement, ScalarSelect, Select, func, literal_column, select, text

from forge_jobs.storage.sql.base.tables import READY, jobs


def levels_of(queue: ColumnElement[str]) -> CTE:
    """Select each of these queues with each priority of the queue's ready jobs.

    One index step for each priority, for any number of jobs.

    :param queue: a column of queue names, without repetition. Its key is the key of the names
    :return: the names, and ``priority``. A last row of each queue has the priority NULL
    """
    found = select(queue, _lowest(queue).label("priority")).cte("levels", recursive=True)
    name = found.c[queue.key or "queue"]
    higher = _lowest(name, jobs.c.priority > found.c.priority)
    return found.union_all(select(name, higher).where(found.c.priority.is_not(None)))


def next_due_of(column: str) -> ScalarSelect[Any]:
    """Select the least ``run_at`` of the ready jobs of a queue. NULL for no jobs.

    The ready index is sorted by priority first, so the least time of a whole queue would be found
    by a scan of that queue. Instead the first row of each priority in use is read.

    A value of each row, and no join: the join of all queues compared each with each where the
    database had no statistics of the tables yet (ADR 320).

    :param column: of the outer query, with the names of queues. A text, which adds no table to the
        FROM of a subquery
    """
    queue: ColumnElement[str] = literal_column(column)
    lowest = select(_lowest(queue).label("priority"))
    found = lowest.cte("levels_of_one", recursive=True, nesting=True)
    higher = _lowest(queue, jobs.c.priority > found.c.priority)
    found = found.union_all(select(higher).where(found.c.priority.is_not(None)))
    first = (
        select(jobs.c.run_at)
        .where(jobs.c.queue == queue, jobs.c.priority == found.c.priority, text(READY))
        .order_by(jobs.c.run_at)
        .limit(1)
        .scalar_subquery()
    )
    return select(func.min(first)).select_from(found).scalar_subquery()


def _lowest(queue: Any, *above: Any) -> Any:
    return (
        select(jobs.c.priority)
        .where(jobs.c.queue == queue, text(READY), *above)
        .order_by(jobs.c.priority)
        .limit(1)
        .scalar_subquery()
    )


def kinds_of(queue: ColumnElement[str]) -> Select[Any]:
    """Select the kinds of the ready jobs of a queue, one index step for each. The last is NULL."""
    found = select(_first_kind(queue).label("kind")).cte("kinds", recursive=True)
    higher = _first_kind(queue, jobs.c.kind > found.c.kind)
    found = found.union_all(select(higher).where(found.c.kind.is_not(None)))
    return select(found.c.kind)


def _first_kind(queue: Any, *above: Any) -> Any:
    return (
        select(jobs.c.kind)
        .where(jobs.c.queue == queue, text(READY), *above)
        .order_by(jobs.c.kind)
        .limit(1)
        .scalar_subquery()
    )
