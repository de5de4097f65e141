"""Retention: finds what is past its time once a pass, and removes it in batches.

A pass asks once for every queue and status whether anything is overdue. From then on the pass
visits only overdue ones, so a batch costs what its rows cost, for any number of queues. The size of
a batch follows from the time for which it may delay others.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import Column, Table, bindparam, delete, select, text, tuple_, update

from forge_jobs.clock import duration_us
from forge_jobs.model.ids import is_seed_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.retention import HISTORY_KEPT, Kept
from forge_jobs.storage.sql.base.history_tables import (
    error_groups,
    error_hours,
    series_hours,
    series_minutes,
)
from forge_jobs.storage.sql.base.job_rows import Ended
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import (
    FINISHED,
    counters,
    events,
    gauges,
    hours,
    jobs,
    latencies,
    pod_hours,
    queues,
)
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.base.unique_tables import replacements, unique_windows
from forge_jobs.storage.sql.config.queues import retention_of
from forge_jobs.storage.sql.config.tables import rate_keys
from forge_jobs.storage.sql.jobs.children import (
    children_kept,
    forget_locked_edges,
    tell_children,
)
from forge_jobs.storage.sql.jobs.cleanup.holds import Holds, in_portions
from forge_jobs.storage.sql.jobs.cleanup.overdue import FINISHED_OF
from forge_jobs.storage.sql.jobs.metrics import (
    delete_keys,
    fold_counters,
    fold_gauges,
    fold_latencies,
    hour_of,
)
from forge_jobs.storage.sql.jobs.sequences.leaving import leave_lines
from forge_jobs.storage.sql.jobs.sequences.lines import lock_lines
from forge_jobs.storage.sql.progress.notes import forget

KEPT_AT_LEAST = timedelta(minutes=1)
"""An ended job stays as a row this long, so that a repeat of its end is recognised."""

MINUTES_KEPT = HISTORY_KEPT
"""How long minutes stay before they are folded into hours, by default."""

_LAST = "~"
"""An id after every real one."""

_QUEUES = select(queues.c.name, queues.c.retention).order_by(queues.c.name)
_NEWEST_BEYOND = (
    select(jobs.c.finished_at, jobs.c.id)
    .where(*FINISHED_OF)
    .order_by(jobs.c.finished_at.desc(), jobs.c.id.desc())
    .limit(1)
    .offset(bindparam("kept"))
)
_STILL_FINISHED = (
    select(jobs.c.id, jobs.c.status, jobs.c.has_children)
    .where(one_of(jobs.c.id, "ids"), text(FINISHED), jobs.c.finished_at <= bindparam("before"))
    .order_by(jobs.c.id)
    .with_for_update(skip_locked=True)
)
_REMOVE = delete(jobs).where(one_of(jobs.c.id, "ids"))
_EXPIRED_RESULTS = (
    select(jobs.c.id, jobs.c.result_expires_at.label("at"))
    .where(
        text("result_expires_at IS NOT NULL"),
        jobs.c.result_expires_at >= bindparam("since"),
        jobs.c.result_expires_at <= bindparam("before"),
    )
    .order_by(jobs.c.result_expires_at)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
)
_CLEAR_RESULTS = (
    update(jobs).where(one_of(jobs.c.id, "ids")).values(result=None, result_expires_at=None)
)
_OLD_EVENTS = (
    select(events.c.id, events.c.at)
    .where(
        tuple_(events.c.at, events.c.id) > tuple_(bindparam("since"), bindparam("past")),
        events.c.at <= bindparam("before"),
    )
    .order_by(events.c.at, events.c.id)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
)
_REMOVE_EVENTS = delete(events).where(one_of(events.c.id, "ids"))
RESULTS, EVENTS = "results", "events"
_ENDING = (unique_windows, replacements, rate_keys)
"""Tables whose rows say themselves when they are over."""
_HISTORY: dict[str, tuple[Table, Column[int]]] = {
    **{table.name: (table, table.c.minute) for table in (counters, latencies, gauges)},
    **{table.name: (table, table.c.hour) for table in (hours, pod_hours)},
    **{table.name: (table, table.c.ends_at) for table in _ENDING},
    error_groups.name: (error_groups, error_groups.c.last_at),
    error_hours.name: (error_hours, error_hours.c.hour),
    **{table.name: (table, table.c.at) for table in (series_minutes, series_hours)},
}
"""Tables whose rows are removed, and their columns of time."""
FOLDED: dict[str, tuple[Table, Callable[[Tx, int, int, int], Sequence[Any]]]] = {
    f"fold {table.name}": (table, fold)
    for table, fold in (
        (counters, fold_counters),
        (latencies, fold_latencies),
        (gauges, fold_gauges),
    )
}
"""Tables whose rows become hours."""
_OLDEST = {
    RESULTS: select(jobs.c.result_expires_at)
    .where(text("result_expires_at IS NOT NULL"), jobs.c.result_expires_at <= bindparam("before"))
    .order_by(jobs.c.result_expires_at)
    .limit(1),
    EVENTS: select(events.c.at)
    .where(events.c.at <= bindparam("before"))
    .order_by(events.c.at)
    .limit(1),
    **{
        name: select(at).where(at <= bindparam("before")).order_by(at).limit(1)
        for name, (_, at) in _HISTORY.items()
    },
}
"""Queries for any such row. In order, so that an index is used."""


class Other(NamedTuple):
    """Results or a history, oldest first.

    :param before: the time of the last row to remove
    :param since: the time of the last row that was dealt with
    :param past: the id of that row, where rows have one
    """

    what: str
    before: int
    since: int = -1
    past: int = -1


class Rest(NamedTuple):
    """The remaining work of a pass."""

    jobs: Sequence[Ended]
    others: Sequence[Other]


class Refused(Exception):
    """The database refuses to delete a row. Nothing of the batch has happened.

    :param ids: of the batch's jobs
    :param rest: the rest of the pass after this batch
    """

    def __init__(self, ids: Sequence[str], reason: str, rest: Sequence[Ended] = ()) -> None:
        super().__init__(reason)
        self.ids = ids
        self.reason = reason
        self.rest = rest


# -- the pass ----------------------------------------------------------------------------------


def plan(tx: Tx, kept: Kept) -> Rest:
    """Find overdue rows, queue by queue."""
    rules = [
        rule for row in tx.execute(_QUEUES).all() for rule in _rules(tx, row.name, row.retention)
    ]
    places = tx.flavor.overdue(tx, [(rule.queue, rule.status, rule.until) for rule in rules])
    ages = {RESULTS: timedelta(0), EVENTS: kept.events}
    ages |= dict.fromkeys((table.name for table in _ENDING), timedelta(0))
    ages |= dict.fromkeys((error_groups.name, error_hours.name), kept.errors)
    ages |= {series_minutes.name: kept.minutes_or(MINUTES_KEPT), series_hours.name: kept.series}
    others = [Other(what, tx.now - duration_us(ages.get(what, kept.hours))) for what in _OLDEST]
    others = [
        other
        for other in others
        if tx.execute(_OLDEST[other.what], {"before": other.before}).first()
    ]
    others += _to_fold(tx, kept)
    return Rest([rules[place] for place in sorted(places)], others)


def _to_fold(tx: Tx, kept: Kept) -> Iterator[Other]:
    """Yield the minutes of hours that are past their minutes, and not old enough to be removed."""
    oldest = tx.now - duration_us(kept.hours)
    before = hour_of(tx.now - duration_us(kept.minutes_or(MINUTES_KEPT)))
    for what, (table, _) in FOLDED.items():
        at = table.c.minute
        found = select(at).where(at > oldest, at < before).order_by(at).limit(1)
        if tx.execute(found).first():
            yield Other(what, before, oldest)


def _rules(tx: Tx, queue: str, rule: str) -> Iterator[Ended]:
    """Yield what each status of the queue may lose."""
    kept = retention_of(rule)
    if kept is None:
        # An unreadable rule may have said that they stay. The state of the queue reports the
        # problem.
        return
    young = tx.now - duration_us(KEPT_AT_LEAST)
    for status, age, most in (
        (JobStatus.DONE, kept.done, kept.max_done),
        (JobStatus.DEAD, kept.dead, kept.max_dead),
        (JobStatus.CANCELLED, kept.cancelled, kept.max_cancelled),
    ):
        end = (tx.now - duration_us(max(age, KEPT_AT_LEAST)), _LAST)
        if most is not None:
            beyond = {"of": queue, "as_status": status.value, "kept": most}
            newest = tx.execute(_NEWEST_BEYOND, beyond).first()
            if newest is not None:
                end = max(end, min((newest.finished_at, newest.id), (young, _LAST)))
        yield Ended(queue, status.value, rule, *end)


# -- jobs --------------------------------------------------------------------------------------


def remove_ended(
    tx: Tx, overdue: Sequence[Ended], limit: int, held: Collection[str], holds: Holds
) -> tuple[int, list[Ended], list[str]]:
    """Remove the first jobs. Return the rows dealt with, the rest, and the ids that were skipped.

    :param held: jobs to skip
    :raises Refused: the database refuses one of them
    """
    left = deque(overdue)
    passed: list[str] = []
    removed: list[str] = []
    stayed = 0

    def step(size: int) -> int:
        nonlocal stayed
        rows: list[Any] = []
        while left and len(rows) < size:
            some, seen = tx.flavor.next_ended(tx, left, size - len(rows))
            rows += some
            for _ in range(seen):
                left.popleft()
            if len(rows) == size:
                left[0] = left[0]._replace(since=some[-1].finished_at, past=some[-1].id)
        passed.extend(row.id for row in rows if row.id in held)
        gone = [row for row in rows if row.id not in held and not is_seed_id(row.id)]
        removed.extend(row.id for row in gone)
        try:
            stayed += len(gone) - _remove(tx, gone)
        except tx.flavor.driver_errors as error:
            reason = tx.flavor.refusal(error)
            if reason is None:
                raise
            raise Refused(removed, reason, list(left)) from None
        return len(rows)

    in_portions(limit, holds, step)
    return len(removed) - stayed, list(left), passed


def remove_these(tx: Tx, ids: Sequence[str]) -> int:
    """Remove those jobs that are still finished, and return how many.

    :raises Refused: the database refuses one of them
    """
    before = tx.now - duration_us(KEPT_AT_LEAST)
    rows = tx.execute(_STILL_FINISHED, {"ids": ids, "before": before}).all()
    try:
        return _remove(tx, rows)
    except tx.flavor.driver_errors as error:
        reason = tx.flavor.refusal(error)
        if reason is None:
            raise
        raise Refused(ids, reason) from None


def _remove(tx: Tx, rows: Sequence[Any]) -> int:
    """Remove jobs except those with an edge or a sequence that another transaction keeps locked.
    Return how many."""
    kept = children_kept(tx, (row.id for row in rows)) if rows else set[str]()
    kept |= lock_lines(tx, (row.id for row in rows if row.has_children))
    rows = [row for row in rows if row.id not in kept]
    if rows:
        ids = [row.id for row in rows]
        # A child that was requeued alone may wait for one of them.
        parents = {row.id: JobStatus(row.status) for row in rows if row.has_children}
        if parents:
            leave_lines(tx, list(parents))
        tell_children(tx, parents, removed=True)
        tx.execute(_REMOVE, {"ids": ids})
        forget_locked_edges(tx, ids)
        forget(tx, ids)
    return len(rows)


# -- all else ----------------------------------------------------------------------------------


def remove_others(tx: Tx, other: Other, limit: int, holds: Holds) -> tuple[int, Other | None]:
    """Clear results, or remove rows of a history. Return how many, and the rest."""
    left = other

    def step(size: int) -> int:
        nonlocal left
        rows = remove(tx, left, size)
        if rows and left.what in _REMOVERS:
            # Do not pass the removed rows again, which the index may still have.
            left = left._replace(since=rows[-1].at, past=rows[-1].id)
        return len(rows)

    remove = _fold if other.what in FOLDED else _REMOVERS.get(other.what, _remove_history)
    removed, is_more = in_portions(limit, holds, step)
    return removed, left if is_more else None


def _clear_results(tx: Tx, other: Other, size: int) -> Sequence[Any]:
    found = {"since": other.since, "before": other.before, "at_most": size}
    rows = tx.execute(_EXPIRED_RESULTS, found).all()
    if rows:
        tx.execute(_CLEAR_RESULTS, {"ids": [row.id for row in rows]})
    return rows


def _remove_events(tx: Tx, other: Other, size: int) -> Sequence[Any]:
    found = {**other._asdict(), "at_most": size}
    del found["what"]
    rows = tx.execute(_OLD_EVENTS, found).all()
    if rows:
        tx.execute(_REMOVE_EVENTS, {"ids": [row.id for row in rows]})
    return rows


def _fold(tx: Tx, other: Other, size: int) -> Sequence[Any]:
    return FOLDED[other.what][1](tx, other.since, other.before, size)


def _remove_history(tx: Tx, other: Other, size: int) -> Sequence[Any]:
    table, at = _HISTORY[other.what]
    key = tuple(table.primary_key)
    oldest = (
        select(*key)
        .where(at <= other.before)
        .order_by(at)
        .limit(size)
        .with_for_update(skip_locked=True)
    )
    rows = tx.execute(oldest).all()
    delete_keys(tx, table, [part.name for part in key], rows)
    return rows


_REMOVERS = {RESULTS: _clear_results, EVENTS: _remove_events}
