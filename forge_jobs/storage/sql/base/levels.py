"""The priorities and kinds of the jobs that wait, found by seeking from one to the next."""

from typing import Any

from sqlalchemy import CTE, ColumnElement, Select, select, text

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
