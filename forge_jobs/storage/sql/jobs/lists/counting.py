"""Counts of matching jobs, by indexes where these answer, else by a bounded walk."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, func, literal, select

from forge_jobs.model.filters import Count, JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.storage.cursors import check_at_most, check_cursor
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.filters import (
    Walk,
    conditions,
    end_of,
    is_bounded,
    looked_at,
    newest_ids,
    share,
    walks_by_id,
)


def count_jobs(tx: Tx, which: JobFilter, at_most: int, cursor: str | None) -> Count:
    """See ``JobStore.count``."""
    check_at_most(at_most)
    before = check_cursor(cursor)
    if which.deep:
        # Texts are read here, and not by the database.
        found = newest_ids(tx, which, before, at_most + 1)
        return _counted(len(found.ids), at_most, found.looked_at)
    walks = walks_by_id(tx, which, ("", before), is_newest=True)
    if not walks:
        # The store knows no queue yet.
        return Count(0)
    if is_bounded(walks[0].rest, tx):
        return _of_a_walk(tx, walks, at_most)
    looked_for = conditions(walks[0].rest, tx)
    # In order: else a planner that does not know the bound may read the table from the begin.
    ids = [walk.jobs.where(*looked_for) for walk in walks]
    return _counted(_sum(tx, ids, at_most), at_most, None)


def _of_a_walk(tx: Tx, walks: Sequence[Walk], at_most: int) -> Count:
    most = share(tx, walks)
    # Below the nearest of the ends some part may have jobs that were not looked at.
    end = max((end.id for walk in walks for end in end_of(tx, walk.jobs, most)), default=None)
    meant = []
    for walk in walks:
        first = looked_at(walk, most, walk.jobs)
        looked_for = conditions(walk.rest, tx, first.c)
        if end is not None:
            looked_for.append(first.c.id >= end)
        meant.append(select(first.c.id).where(*looked_for))
    return _counted(_sum(tx, meant, at_most), at_most, end)


def _sum(tx: Tx, meant: Sequence[Select[Any]], at_most: int) -> int:
    """How many jobs these are together, counted to one more than ``at_most``."""
    number = 0
    for statement in meant:
        left = statement.limit(literal(at_most + 1 - number)).subquery()
        number += tx.execute(select(func.count()).select_from(left)).scalar_one()
        if number > at_most:
            break
    return number


def _counted(number: int, at_most: int, looked_back_to: JobId | None) -> Count:
    if number > at_most:
        return Count(at_most, is_more=True)
    return Count(number, looked_back_to=looked_back_to)
