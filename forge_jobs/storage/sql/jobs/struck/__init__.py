"""Jobs that strikes hold: what they wait for, and their release."""

from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import bindparam, select, text, update

from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import STRUCK, jobs
from forge_jobs.storage.sql.base.transaction import Tx

_NEXT_MARK = (
    select(jobs.c.rate_limit)
    .where(text(STRUCK), jobs.c.rate_limit > bindparam("after"))
    .order_by(jobs.c.rate_limit)
    .limit(1)
)
_OF_MARK = (
    select(jobs.c.id, jobs.c.queue)
    .where(text(STRUCK), jobs.c.rate_limit == bindparam("mark"))
    .order_by(jobs.c.queue, jobs.c.priority, jobs.c.run_at, jobs.c.id)
    .limit(bindparam("count"))
    # A later look finds jobs that another transaction has locked.
    .with_for_update(key_share=True, skip_locked=True)
)
_RELEASE = update(jobs).where(one_of(jobs.c.id, "ids"), text(STRUCK)).values(hold=None)


def left_marks(tx: Tx, in_force: Collection[str]) -> list[str]:
    """Return the marks by which jobs are held, without those in force. One index step for each."""
    return [mark for mark in _marks(tx) if mark not in in_force]


def _marks(tx: Tx) -> Iterator[str]:
    mark: Any = ""
    while (mark := tx.execute(_NEXT_MARK, {"after": mark}).scalar()) is not None:
        yield mark


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
