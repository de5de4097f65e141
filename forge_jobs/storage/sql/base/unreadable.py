"""Puts unreadable jobs that a claim has met on hold, so that they harm no other job."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Boolean, Column, ColumnElement, Integer, bindparam, text, update

from forge_jobs.model.jobs import Cause, Claim, Hold, JobStatus
from forge_jobs.storage.salvage import log_set_aside
from forge_jobs.storage.sql.base.tables import CLAIMED, jobs
from forge_jobs.storage.sql.base.transaction import Tx

_job = jobs.c.id == bindparam("job")
_HOLD = update(jobs).where(_job).values(hold=Hold.UNREADABLE.value)
# By the database alone: no field of such a job is of use to this program.
_GIVE_BACK = (
    update(jobs)
    .where(_job, jobs.c.token == bindparam("held"), text(CLAIMED))
    .values(
        status=JobStatus.PENDING.value,
        cause=Cause.RELEASED.value,
        hold=Hold.UNREADABLE.value,
        attempt=jobs.c.attempt - 1,
    )
    .returning(jobs.c.limit_name, jobs.c.limit_key)
)


def give_back(tx: Tx, claims: Sequence[Claim]) -> None:
    """End claims of unreadable jobs. The jobs wait on hold, their attempt unused."""
    for claim in claims:
        row = tx.execute(_GIVE_BACK, {"job": claim.job_id, "held": claim.token}).first()
        if row is not None:
            tx.free(claim.queue, row.limit_name, row.limit_key)
            tx.count(claim.queue, Cause.RELEASED)


def hold(tx: Tx, rows: Sequence[Any]) -> None:
    """Put jobs on hold that have not been claimed.

    :param rows: with values that are not of their columns' types
    """
    tx.execute(_HOLD, [{"job": row.id} for row in rows])
    for row in rows:
        log_set_aside(row.queue, row.id, "a value is not of its column's type")


class Shapes:
    """The types of some columns, for a database that keeps values of any type.

    :param columns: of the rows, in order
    """

    def __init__(self, columns: Sequence[ColumnElement[Any]]) -> None:
        self._allowed = [_types_of(column) for column in columns]
        self._good: set[tuple[type, ...]] = set()

    def fits(self, row: Sequence[Any]) -> bool:
        """Return whether each value is of its column's type."""
        shape = tuple(map(type, row))
        if shape in self._good:
            return True
        fits = all(each in allowed for each, allowed in zip(shape, self._allowed, strict=True))
        if fits:
            self._good.add(shape)
        return fits


def _types_of(column: ColumnElement[Any]) -> set[type]:
    types: set[type] = {str}
    if isinstance(column.type, Integer):
        types = {int}
    elif isinstance(column.type, Boolean):
        types = {int, bool}
    return {*types, type(None)} if isinstance(column, Column) and column.nullable else types
