"""Lists of jobs in the order of times, each a merge of walks over parts of an index.

Finished jobs have an index for each queue and status. Jobs that wait have one for each queue and
priority, which claims use too.
"""

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Column, ColumnElement, Select, literal, select, text, tuple_

from forge_jobs.model.answering.filters import with_statuses
from forge_jobs.model.filters import JobFilter, JobOrder
from forge_jobs.model.jobs import TERMINAL, JobStatus
from forge_jobs.model.queries.terms import Compared
from forge_jobs.storage.cursors import Place
from forge_jobs.storage.sql.base.job_columns import TEXT
from forge_jobs.storage.sql.base.levels import levels_of
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import FINISHED, READY, jobs, queues
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.filters import Walk, search
from forge_jobs.storage.sql.jobs.matching.terms import time_bound

_QUEUE_NAMES = select(queues.c.name)
_LEVELS = levels_of(queues.c.name)
_LINES = select(_LEVELS.c.name, _LEVELS.c.priority).where(
    _LEVELS.c.priority.is_not(None), one_of(_LEVELS.c.name, "names")
)
_IN_LINE = frozenset({JobStatus.PENDING, JobStatus.FAILED})


class _Way(NamedTuple):
    """How a list by times is walked.

    :ivar at: the time of a job
    :ivar listed: which jobs the list holds, in the words of the index
    """

    at: Column[Any]
    listed: str
    is_descending: bool


_WAYS = {
    "finished": _Way(jobs.c.finished_at, FINISHED, is_descending=True),
    "due": _Way(jobs.c.run_at, READY, is_descending=False),
}


class Placed(NamedTuple):
    """The jobs that one call has found, in order.

    :ivar looked_at: as in :class:`~forge_jobs.storage.sql.jobs.filters.Found`
    """

    places: list[Place]
    looked_at: Place | None


def in_order(tx: Tx, which: JobFilter, order: JobOrder, beyond: Place | None, limit: int) -> Placed:
    """Return the places of matching jobs behind ``beyond``, in the order of times."""
    way = _WAYS[order]
    walks = _walks(tx, with_statuses(which), order, beyond)
    places, ends = search(tx, walks, limit, is_descending=way.is_descending)
    pick = heapq.nlargest if way.is_descending else heapq.nsmallest
    # Beyond the nearest of the ends some part may have jobs that were not looked at.
    end = (max if way.is_descending else min)(ends, default=None)
    nearest = (
        each for each in places if end is None or each == end or (each > end) == way.is_descending
    )
    found = pick(limit, nearest)
    return Placed(found, end if len(found) < limit else None)


def _walks(tx: Tx, which: JobFilter, order: JobOrder, beyond: Place | None) -> list[Walk]:
    bounds = _in_time(tx, which, order)
    if which.ids is not None:
        return [_walk(order, [jobs.c.id.in_(which.ids), *bounds], which, beyond)]
    if which.unique_key is not None:
        return [_walk(order, bounds, which, beyond)]
    names = sorted(set(which.queues or tx.execute(_QUEUE_NAMES).scalars()))
    if order == "finished":
        statuses = sorted(set(which.statuses or TERMINAL) & TERMINAL)
        rest = msgspec.structs.replace(which, queues=(), statuses=())
        parts: Iterable[Sequence[ColumnElement[bool]]] = (
            (jobs.c.queue == name, jobs.c.status == literal(status.value, TEXT))
            for name in names
            for status in statuses
        )
    else:
        waiting = set(which.statuses or _IN_LINE) & _IN_LINE
        rest = msgspec.structs.replace(
            which, queues=(), statuses=() if waiting == _IN_LINE else tuple(waiting)
        )
        lines = tx.execute(_LINES, {"names": names}).all() if waiting else []
        parts = ((jobs.c.queue == line.name, jobs.c.priority == line.priority) for line in lines)
    return [_walk(order, (*part, *bounds), rest, beyond) for part in parts]


def _in_time(tx: Tx, which: JobFilter, order: JobOrder) -> list[ColumnElement[bool]]:
    """The bounds of the filter on the time of the order: a range of the index."""
    of_time = (term for term in which.terms if term.name == order and isinstance(term, Compared))
    return [time_bound(term, tx, _WAYS[order].at) for term in of_time]


def _walk(
    order: JobOrder, part: Iterable[ColumnElement[bool]], rest: JobFilter, beyond: Place | None
) -> Walk:
    way = _WAYS[order]
    # The index has these already.
    left = tuple(term for term in rest.terms if term.name != order)
    rest = msgspec.structs.replace(rest, terms=left)
    part = tuple(part)
    return Walk(_behind(way, part, beyond), rest, lambda place: _behind(way, part, place))


def _behind(way: _Way, part: Iterable[ColumnElement[bool]], beyond: Place | None) -> Select[Any]:
    key = tuple_(way.at, jobs.c.id)
    statement = select(way.at.label("at"), jobs.c.id).where(*part, text(way.listed))
    if beyond is not None:
        start = tuple_(literal(beyond.at), literal(beyond.id, TEXT))
        statement = statement.where(key < start if way.is_descending else key > start)
    sort = (way.at, jobs.c.id)
    return statement.order_by(*(each.desc() if way.is_descending else each for each in sort))
