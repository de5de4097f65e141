"""Job filters as SQL, and the ids they mean.

Queue and status have an index, and so have ids and unique keys. All other parts of a filter are
checked on a bounded number of these jobs, newest or oldest first. A further call goes on behind
them.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Select,
    Subquery,
    func,
    literal,
    or_,
    select,
    tuple_,
)

from forge_jobs.clock import to_us
from forge_jobs.model.answering.filters import with_statuses
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.unique.keys import places_of
from forge_jobs.storage.cursors import WALKED, Place
from forge_jobs.storage.sql.base.job_columns import TEXT
from forge_jobs.storage.sql.base.job_rows import tag_patterns
from forge_jobs.storage.sql.base.tables import jobs, queues
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.matching.terms import (
    AT_ONCE,
    HAS_TEXTS,
    term_conditions,
    with_texts,
)

_MOST_LISTS = 256
_BEYOND_ALL = "~"
"""An id after every real one."""

_FEWEST = 200
"""How many jobs of each queue and status may be looked at, at least."""

_FIRST, _GROWTH = 64, 4
"""How many jobs of each queue and status a list looks at to begin with, and how steps grow."""

READ = 2_000
"""How many jobs of one call have their texts read, at most."""

_QUEUE_NAMES = select(queues.c.name)
_LOOKED_AT = (
    jobs.c.queue,
    jobs.c.kind,
    jobs.c.status,
    jobs.c.cause,
    jobs.c.tags,
    jobs.c.unique_key,
    jobs.c.schedule,
    jobs.c.enqueued_at,
    jobs.c.host_id,
    jobs.c.attempt,
    jobs.c.crashes,
    jobs.c.started_at,
    jobs.c.finished_at,
    jobs.c.run_at,
)


class Found(NamedTuple):
    """The jobs that one call has found.

    :ivar looked_at: the last job looked at, where there are more to look at. None: these are all,
    or as many as were asked for
    """

    ids: list[JobId]
    looked_at: JobId | None


class Walk(NamedTuple):
    """The jobs of a part of a filter in the order of their index, and the conditions left to check.

    These conditions are the same for all parts of one filter.

    :ivar jobs: selects ids, or times and ids where the list is in the order of times
    :ivar behind: the same jobs, those behind one of them
    """

    jobs: Select[Any]
    rest: JobFilter
    behind: Callable[[Place], Select[Any]]


def conditions(which: JobFilter, tx: Tx, of: Any = jobs.c) -> list[ColumnElement[bool]]:
    """Return the conditions of every part of the filter that is set, except the ids.

    Jobs that meet the conditions may still fail the deep terms of the filter.

    :param of: the columns that are looked at
    """
    found: list[ColumnElement[bool]] = []
    choices: tuple[tuple[ColumnElement[Any], tuple[str, ...]], ...] = (
        (of.queue, which.queues),
        (of.kind, which.kinds),
        (of.status, tuple(status.value for status in which.statuses)),
        (of.cause, tuple(cause.value for cause in which.causes)),
    )
    found.extend(_is_one_of(column, values) for column, values in choices if values)
    if which.tag is not None:
        patterns = tag_patterns(which.tag)
        found.append(or_(*(tx.flavor.contains(of.tags, pattern) for pattern in patterns)))
    if which.unique_key is not None:
        found.append(of.unique_key.in_(places_of(which.unique_key)))
    if which.schedule is not None:
        found.append(of.schedule == which.schedule)
    if which.enqueued_before is not None:
        found.append(of.enqueued_at < to_us(which.enqueued_before))
    if which.enqueued_after is not None:
        found.append(of.enqueued_at >= to_us(which.enqueued_after))
    return found + term_conditions(which.terms, tx, of)


def _is_one_of(column: ColumnElement[Any], values: Sequence[str]) -> ColumnElement[bool]:
    return column == values[0] if len(values) == 1 else column.in_(values)


def oldest_ids(tx: Tx, which: JobFilter, after: str, limit: int) -> Found:
    """Return ids of matching jobs after ``after``, ascending. ``which.ids`` is not looked at."""
    which = msgspec.structs.replace(which, ids=None)
    ids, ends = _search(tx, which, (after, None), limit, is_newest=False)
    # Beyond the nearest of the ends some part may have jobs that were not looked at.
    end = min(ends, default=None)
    nearest = (job_id for job_id in ids if end is None or job_id <= end)
    return _found(heapq.nsmallest(limit, nearest), limit, end)


def newest_ids(tx: Tx, which: JobFilter, before: str | None, limit: int) -> Found:
    """Return ids of matching jobs below ``before``, descending."""
    ids, ends = _search(tx, which, ("", before), limit, is_newest=True)
    end = max(ends, default=None)
    nearest = (job_id for job_id in ids if end is None or job_id >= end)
    return _found(heapq.nlargest(limit, nearest), limit, end)


def _found(ids: list[JobId], limit: int, end: JobId | None) -> Found:
    return Found(ids, end if len(ids) < limit else None)


def _search(
    tx: Tx, which: JobFilter, between: tuple[str, str | None], limit: int, *, is_newest: bool
) -> tuple[list[JobId], list[JobId]]:
    """Return the first matching jobs of each part, and where walks that reached their bound
    ended."""
    walks = walks_by_id(tx, which, between, is_newest=is_newest)
    places, ends = search(tx, walks, limit, is_descending=is_newest)
    return [place.id for place in places], [end.id for end in ends]


def walks_by_id(
    tx: Tx, which: JobFilter, between: tuple[str, str | None], *, is_newest: bool
) -> list[Walk]:
    """Return the walks that together meet every matching job between the two ids."""
    which = with_statuses(which)
    return [_walk(part, between, is_newest=is_newest) for part in _parts(tx, which)]


def search(
    tx: Tx, walks: Sequence[Walk], limit: int, *, is_descending: bool
) -> tuple[list[Place], list[Place]]:
    """Return the first matching jobs of the walks together, and where those ended that have more.

    Jobs beyond the nearest of these ends may be incomplete.
    """
    if not walks or not is_bounded(walks[0].rest, tx):
        found: list[Place] = []
        for walk in walks:
            meant = walk.jobs.where(*conditions(walk.rest, tx))
            if walk.rest.deep:
                found += _matching(tx, walk, _places(tx.execute(meant)), limit)
            else:
                found += _places(tx.execute(meant.limit(limit)))
        return found, []
    return _Search(tx, walks, limit, is_descending=is_descending).run()


class _Open:
    """A walk of which more may be looked at.

    :ivar end: the last job looked at. None before the first
    """

    def __init__(self, walk: Walk, size: int) -> None:
        self.walk = walk
        self.size = size
        self.end: Place | None = None


class _Search:
    """A search that looks at a bounded number of jobs.

    Goes on with the walk that is furthest behind, in steps that grow, until as many jobs as are
    wanted come before all that no walk has looked at.
    """

    def __init__(self, tx: Tx, walks: Sequence[Walk], limit: int, *, is_descending: bool) -> None:
        self._tx = tx
        self._limit = limit
        self._is_descending = is_descending
        # A walk that is the only one stops by itself when enough is found.
        most = max(WALKED // len(walks), _FEWEST)
        first = WALKED if len(walks) == 1 else min(max(_FIRST, limit), most)
        self._walks = [_Open(walk, first) for walk in walks]
        self._left, self._texts = max(WALKED, _FEWEST * len(walks)), READ
        self._found: list[Place] = []

    def run(self) -> tuple[list[Place], list[Place]]:
        """Return the jobs that were found, and the ends of walks that have more."""
        open_ = [each for each in self._walks if self._goes_on(each)]
        while open_:
            nearest = (max if self._is_descending else min)(open_, key=_end)
            if self._left <= 0 or self._texts <= 0 or self._is_enough(_end(nearest)):
                break
            if not self._goes_on(nearest):
                open_.remove(nearest)
        return self._found, [_end(each) for each in open_]

    def _is_enough(self, end: Place) -> bool:
        """Return whether as many as are wanted come before the end, or are that one."""
        return self._limit <= sum(
            each == end or (each > end) == self._is_descending for each in self._found
        )

    def _goes_on(self, this: _Open) -> bool:
        """Take a step, and return whether there is more to look at."""
        walk, most = this.walk, max(min(this.size, self._left), 1)
        this.size = min(_GROWTH * this.size, WALKED)
        self._left -= most
        jobs = walk.jobs if this.end is None else walk.behind(this.end)
        first = looked_at(walk, most, jobs)
        shown = (first.c[name] for name in list(jobs.selected_columns.keys()))
        meant = select(*shown).where(*conditions(walk.rest, self._tx, first.c))
        if walk.rest.deep:
            read = max(self._texts, 1)
            places = _places(self._tx.execute(meant.limit(read)))
            self._texts -= len(places)
            matching = _matching(self._tx, walk, places, self._limit)
            if len(places) == read and len(matching) < self._limit:
                self._found += matching
                this.end = places[-1]
                return True
        else:
            matching = _places(self._tx.execute(meant.limit(self._limit)))
        self._found += matching
        if len(matching) >= self._limit:
            # Of what comes behind so many nothing is wanted.
            return False
        ends = end_of(self._tx, jobs, most)
        if ends:
            [this.end] = ends
        return bool(ends)


def _end(this: _Open) -> Place:
    assert this.end is not None
    return this.end


def _matching(tx: Tx, walk: Walk, places: Sequence[Place], limit: int) -> list[Place]:
    """Return the first of the jobs whose texts match too."""
    found: list[Place] = []
    for start in range(0, len(places), AT_ONCE):
        some = places[start : start + AT_ONCE]
        ids = with_texts(tx, walk.rest.deep, [place.id for place in some])
        found += (place for place in some if place.id in ids)
        if len(found) >= limit:
            break
    return found[:limit]


def is_bounded(rest: JobFilter, tx: Tx) -> bool:
    """Return whether jobs have to be looked at that may not match, so that a walk has a bound."""
    is_short = rest.ids is not None or rest.unique_key is not None
    return not is_short and bool(conditions(rest, tx))


def looked_at(walk: Walk, most: int, jobs: Select[Any]) -> Subquery:
    """Select the first ``most`` of the jobs of a walk, with all that conditions look at."""
    shown = set(jobs.selected_columns.keys())
    others = (column for column in _LOOKED_AT if column.key not in shown)
    texts = HAS_TEXTS if walk.rest.deep else ()
    return jobs.add_columns(*others, *texts).limit(most).subquery("walked")


def end_of(tx: Tx, jobs: Select[Any], most: int) -> list[Place]:
    """Return the last of the first ``most`` jobs. None where there are no more."""
    # Look at one more row to see whether there is any.
    last = _places(tx.execute(jobs.offset(most - 1).limit(2)))
    return last[:1] if len(last) > 1 else []


def _places(rows: Iterable[Sequence[Any]]) -> list[Place]:
    return [Place(0, row[0]) if len(row) == 1 else Place(row[0], row[1]) for row in rows]


def share(tx: Tx, walks: Sequence[Walk]) -> int:
    """Return how many jobs each walk may look at: short walks leave their share to long ones."""
    share = max(WALKED // len(walks), _FEWEST)
    if len(walks) == 1:
        return share
    counts = (select(func.count()).select_from(each.jobs.limit(share).subquery()) for each in walks)
    sizes: list[int] = [tx.execute(count).scalar_one() for count in counts]
    short = [size for size in sizes if size < share]
    return max((WALKED - sum(short)) // max(len(sizes) - len(short), 1), _FEWEST)


def _walk(part: JobFilter, between: tuple[str, str | None], *, is_newest: bool) -> Walk:
    """Walk the index of a part between the two ids, neither included."""
    after, before = between

    def behind(place: Place) -> Select[Any]:
        rest = (after, place.id) if is_newest else (place.id, before)
        return _between(part, rest, is_newest=is_newest)

    rest = msgspec.structs.replace(part, queues=(), statuses=()) if _is_list(part) else part
    return Walk(_between(part, between, is_newest=is_newest), rest, behind)


def _between(part: JobFilter, between: tuple[str, str | None], *, is_newest: bool) -> Select[Any]:
    after, before = between
    statement = select(jobs.c.id)
    if part.ids is not None:
        statement = statement.where(jobs.c.id.in_(part.ids))
    index = _index(part)
    if _is_list(part):
        queue, *key = index
        status = literal(part.statuses[0].value, TEXT)
        # PostgreSQL ends a scan at the first column of a row comparison alone: with the queue in
        # there, a status without jobs was looked for in all jobs of the queue.
        statement = statement.where(
            queue == literal(part.queues[0], TEXT),
            tuple_(*key) > tuple_(status, literal(after, TEXT)),
            tuple_(*key) < tuple_(status, literal(before or _BEYOND_ALL, TEXT)),
        )
    else:
        if after:
            statement = statement.where(jobs.c.id > after)
        if before is not None:
            statement = statement.where(jobs.c.id < before)
    return statement.order_by(*(c.desc() if is_newest else c for c in index))


def _index(part: JobFilter) -> tuple[Column[Any], ...]:
    """Return the columns that sort a page: a whole index, spelled out.

    With separate conditions on queue and status a planner could take the index of all ids for as
    quick a way, and walk over every job newer than the first match. One on the queue alone leaves
    an order by status and id, which that index does not have.
    """
    return (jobs.c.queue, jobs.c.status, jobs.c.id) if _is_list(part) else (jobs.c.id,)


def _is_list(part: JobFilter) -> bool:
    """Return whether the filter is of one queue and status."""
    alone = part.ids is None and part.unique_key is None
    return alone and len(part.queues) == len(part.statuses) == 1


def _parts(tx: Tx, which: JobFilter) -> list[JobFilter]:
    """Split the filter into filters of one queue and status each, which together mean the same.

    There is an index of the ids of each queue and status. A list over several would be sorted
    whole, however long, to show the first page.
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
