"""Jobs that strikes hold: what they wait for, their release, and what an enqueue finds struck."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import bindparam, func, select, text, update

from forge_jobs.clock import from_us
from forge_jobs.model.jobs import Cause, Hold, NewJob
from forge_jobs.model.looks import MOST_MARKS, MOST_STRUCK, StruckLine
from forge_jobs.model.transitions import struck_record
from forge_jobs.storage.sql.base.job_rows import append_error, ends_at_once
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import STRUCK, jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.endings import end_waiting

_NEXT_MARK = (
    select(jobs.c.rate_limit)
    .where(text(STRUCK), jobs.c.rate_limit > bindparam("after"))
    .order_by(jobs.c.rate_limit)
    .limit(1)
)


def _all_marks() -> Any:
    """Select the marks of all strikes that hold jobs: one index step for each mark."""
    struck = jobs.c.rate_limit
    first = select(func.min(struck).label("mark")).where(text(STRUCK)).cte("marks", recursive=True)
    following = select(func.min(struck)).where(text(STRUCK), struck > first.c.mark)
    marks = first.union_all(select(following.scalar_subquery()).where(first.c.mark.is_not(None)))
    return select(marks.c.mark).where(marks.c.mark.is_not(None))


_MARKS = _all_marks()
MARKS_AT_ONCE = 50
"""So many marks one transaction looks at, which takes two statements for each mark."""

_OF_MARK = (
    select(jobs.c.id, jobs.c.queue)
    .where(text(STRUCK), jobs.c.rate_limit == bindparam("mark"))
    .order_by(jobs.c.queue, jobs.c.priority, jobs.c.run_at, jobs.c.id)
    .limit(bindparam("count"))
    # A later look finds jobs that another transaction has locked.
    .with_for_update(key_share=True, skip_locked=True)
)
_FIRST = (
    select(jobs.c.queue, jobs.c.run_at)
    .where(text(STRUCK), jobs.c.rate_limit == bindparam("mark"))
    .order_by(jobs.c.queue, jobs.c.priority, jobs.c.run_at, jobs.c.id)
    .limit(bindparam("count"))
    .subquery()
)
_LINES = (
    select(
        _FIRST.c.queue, func.count().label("jobs"), func.min(_FIRST.c.run_at).label("oldest_due_at")
    )
    .group_by(_FIRST.c.queue)
    .order_by(_FIRST.c.queue)
)
_RELEASE = update(jobs).where(one_of(jobs.c.id, "ids"), text(STRUCK)).values(hold=None)
_HOLD = (
    update(jobs)
    .where(one_of(jobs.c.id, "ids"))
    .values(hold=Hold.STRUCK.value, cause=Cause.STRUCK.value, rate_limit=bindparam("mark"))
)
_NOTE = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(rate_limit=bindparam("mark"), errors=bindparam("new_errors"))
)
_NOTE_KEY = (
    update(jobs).where(jobs.c.id == bindparam("job")).values(unique_key=bindparam("had_key"))
)


def strike_new(tx: Tx, stored: Iterable[NewJob]) -> None:
    """Hold or cancel new jobs that a strike means. Those that wait for others are not held."""
    held: defaultdict[str, list[NewJob]] = defaultdict(list)
    cancelled: list[NewJob] = []
    for one in stored:
        if one.struck is None:
            continue
        if ends_at_once(one):
            cancelled.append(one)
        elif not one.after:
            held[one.struck.mark].append(one)
    for mark, requests in held.items():
        for ids in portions(one.id for one in requests):
            tx.execute(_HOLD, {"mark": mark, "ids": ids})
        for one in requests:
            tx.count(one.queue, Cause.STRUCK)
    if cancelled:
        _cancel(tx, cancelled)


def _cancel(tx: Tx, struck: Collection[NewJob]) -> None:
    """End new jobs with a record of their strikes. A requeue looks at their keys again."""
    notes = [
        {
            "job": one.id,
            "mark": one.struck.mark,
            "new_errors": append_error("[]", struck_record(one.struck.message), tx.now),
        }
        for one in struck
        if one.struck is not None
    ]
    tx.execute(_NOTE, notes)
    end_waiting(tx, [one.id for one in struck], Cause.STRUCK)
    keys = [{"job": one.id, "had_key": one.unique.key} for one in struck if one.unique is not None]
    if keys:
        tx.execute(_NOTE_KEY, keys)


def left_marks(tx: Tx, in_force: Collection[str]) -> list[str]:
    """Return the marks by which jobs are held, without those in force. One statement."""
    return [row.mark for row in tx.execute(_MARKS) if row.mark not in in_force]


def _first_marks(tx: Tx) -> Iterator[str]:
    mark: Any = ""
    while (mark := tx.execute(_NEXT_MARK, {"after": mark}).scalar()) is not None:
        yield mark


def struck_lines(tx: Tx, queues: Collection[str]) -> list[StruckLine]:
    """Return how many jobs the first strikes hold in each of the queues. Two statements each."""
    return [
        StruckLine(
            mark=mark, queue=row.queue, jobs=row.jobs, oldest_due_at=from_us(row.oldest_due_at)
        )
        for mark in islice(_first_marks(tx), MOST_MARKS)
        for row in tx.execute(_LINES, {"mark": mark, "count": MOST_STRUCK})
        if row.queue in queues
    ]


def release(tx: Tx, marks: Collection[str], limit: int) -> int:
    """Make up to ``limit`` jobs of these marks ready, in the order of the queue.

    :returns: how many. Locked jobs are left to a later call
    """
    left = limit
    for mark in marks:
        found = tx.execute(_OF_MARK, {"mark": mark, "count": left}).all()
        for ids in portions(row.id for row in found):
            tx.execute(_RELEASE, {"ids": ids})
        tx.wake_queues({row.queue for row in found})
        left -= len(found)
        if not left:
            break
    return limit - left
