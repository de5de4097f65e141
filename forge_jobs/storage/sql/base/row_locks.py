"""Locks of jobs, without waiting for callers' open transactions.

Calls of the store hold a row for milliseconds, callers' transactions as long as they like. So
locked rows are skipped, tried again for a moment, and then left to a later call. No call waits
inside the database, so no two calls deadlock, in whatever order they meet rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, text

from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.lists import portions
from forge_jobs.storage.sql.base.transaction import Tx

PAUSES_S = (0.002, 0.004, 0.008, 0.016, 0.032)
"""Seconds between the tries of a call for which workers wait."""

LONGER_PAUSES_S = (*PAUSES_S, 0.064, 0.128, 0.256)
"""The same of a call for which a person waits, and which reports the jobs that it leaves."""

_PAUSE = text("SELECT pg_sleep(:seconds)")


class Rows(dict[str, JobRow]):
    """Jobs by id, locked by the call.

    :ivar kept: jobs that another transaction has kept locked, as committed
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: Mapping[str, JobRow] = {}


class Lockable:
    """A query of jobs by the list parameter ``ids``, in the order of ids, that may lock them.

    Where a user's table has a foreign key to jobs, an open insert there keeps the ids of its jobs.
    That is in the way only of calls that change an id or remove the job.

    :param removes: the jobs are locked to be removed
    """

    def __init__(self, look: Select[Any], *, removes: bool = False) -> None:
        self._look = look
        self._waiting = look.with_for_update(key_share=not removes)
        self._passing = look.with_for_update(key_share=not removes, skip_locked=True)

    def lock(self, tx: Tx, ids: Iterable[str], pauses: Sequence[float] = PAUSES_S) -> Rows:
        """Lock and return existing jobs of ``ids``. In a caller's own transaction all are waited
        for."""
        wanted = sorted(set(ids))
        if tx.is_callers or not tx.flavor.locks_rows:
            return _found(tx, self._waiting, wanted)
        rows = _found(tx, self._passing, wanted)
        missing = [each for each in wanted if each not in rows]
        kept = _found(tx, self._look, missing)
        for seconds in pauses:
            if not kept:
                break
            pause(tx, seconds)
            rows.update(_found(tx, self._passing, kept))
            kept = _found(tx, self._look, [each for each in kept if each not in rows])
        rows.kept = kept
        return rows

    def read(self, tx: Tx, ids: Iterable[str]) -> Rows:
        """Return the jobs as committed."""
        return _found(tx, self._look, sorted(set(ids)))

    def lock_free(self, tx: Tx, ids: Iterable[str]) -> Rows:
        """Lock and return the jobs that no other transaction has locked."""
        return _found(tx, self._passing, sorted(set(ids)))


def pause(tx: Tx, seconds: float) -> None:
    """Give other transactions time to end. Only where rows can be locked."""
    tx.execute(_PAUSE, {"seconds": seconds})


def _found(tx: Tx, statement: Select[Any], ids: Iterable[str]) -> Rows:
    rows = Rows()
    for portion in portions(ids):
        rows.update({row.id: row for row in tx.execute(statement, {"ids": portion})})
    return rows
