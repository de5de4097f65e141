"""Timeline events, counters, histograms and roll-ups.

Minutes past their retention are kept as hours. The transaction that adds a minute to its hour also
removes the minute, so each is counted once.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row, Table, bindparam, delete, func, insert, select, text

from forge_jobs.clock import from_us, to_us
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.metrics import HOUR, Histogram, LatencySample, MetricBucket
from forge_jobs.storage.salvage import Fields, counts_of, names_of, salvaged_event, tally
from forge_jobs.storage.sql.base.tables import counters, events, gauges, hours, latencies, pod_hours
from forge_jobs.storage.sql.base.transaction import MINUTE_US, Tx
from forge_jobs.storage.sql.base.upserts import Records
from forge_jobs.storage.sql.history.series import add_counts

_COUNTER_KEY = ("queue", "minute", "host_id", "part", "name")
_LATENCY_KEY = ("queue", "minute", "host_id")
_Minute = tuple[str, int, str]

_UNFOLDED = (
    select(*(counters.c[name] for name in _COUNTER_KEY), counters.c.count.label("amount"))
    .where(text("part <> ''"), counters.c.minute <= bindparam("closed"))
    .order_by(counters.c.minute)
    .limit(bindparam("at_most"))
    # The next roll-up folds rows that are being written.
    .with_for_update(skip_locked=True)
)
_UNFOLDED_LATENCIES = (
    select(latencies)
    .where(text("host_id <> ''"), latencies.c.minute <= bindparam("closed"))
    .order_by(latencies.c.minute)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
)
_LATENCIES = Records(latencies, _LATENCY_KEY, ("processing", "total"))


# -- timeline ----------------------------------------------------------------------------------


def append_events(tx: Tx, added: Sequence[TimelineEvent]) -> None:
    """Append to the timeline."""
    if added:
        tx.execute(
            insert(events),
            [
                {
                    "at": to_us(event.at),
                    "kind": event.kind.value,
                    "queue": event.queue,
                    "job_id": event.job_id,
                    "host_id": event.host_id,
                    "detail": event.detail,
                }
                for event in added
            ],
        )


def read_events(tx: Tx, job_id: JobId | None, queue: str | None, limit: int) -> list[TimelineEvent]:
    """Return the newest events, newest first, and of one instant the later appended first."""
    wanted = select(events).order_by(events.c.at.desc(), events.c.id.desc()).limit(limit)
    if job_id is not None:
        wanted = wanted.where(events.c.job_id == job_id)
    if queue is not None:
        wanted = wanted.where(events.c.queue == queue)
    return [_event(row) for row in tx.execute(wanted)]


def _event(row: Row[Any]) -> TimelineEvent:
    read = Fields({**row._mapping})
    found = TimelineEvent(
        at=read.instant("at"),
        kind=read.member("kind", EventKind.UNREADABLE),
        queue=read.text("queue"),
        job_id=read.text("job_id"),
        host_id=read.text("host_id"),
        detail=read.text("detail"),
    )
    return salvaged_event(found, read.problems)


# -- histograms --------------------------------------------------------------------------------


def add_latencies(tx: Tx, host_id: HostId, samples: Sequence[LatencySample]) -> None:
    """Add one pod's histograms to their minutes."""
    sums: defaultdict[_Minute, _Sums] = defaultdict(_Sums)
    for sample in samples:
        minute = sums[sample.queue, to_us(sample.minute), host_id]
        minute.processing.update(sample.processing.counts)
        minute.total.update(sample.total.counts)
    _add_latencies(tx, sums)


def _add_latencies(tx: Tx, sums: Mapping[_Minute, "_Sums"]) -> None:
    made = [
        {**dict(zip(_LATENCY_KEY, key, strict=True)), "processing": "{}", "total": "{}"}
        for key in sorted(sums)
    ]
    changed = []
    for row in _LATENCIES.held(tx, made):
        gained = sums[row.queue, row.minute, row.host_id]
        changed.append((row, gained.durations(row)))
    _LATENCIES.put(tx, changed)


# -- metrics -----------------------------------------------------------------------------------


def metrics(tx: Tx, queue: str, since: datetime, until: datetime) -> list[MetricBucket]:
    """Return minutes of one queue that counted anything, oldest first, summed over pods."""
    start, end = to_us(since), to_us(until)
    counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
    summed = (
        select(counters.c.minute, counters.c.name, func.sum(counters.c.count).label("total"))
        .where(counters.c.queue == queue, counters.c.minute >= start, counters.c.minute < end)
        .group_by(counters.c.minute, counters.c.name)
    )
    for row in tx.execute(summed):
        counts[row.minute][str(row.name)] = tally(int(row.total))
    processing: defaultdict[int, Counter[int]] = defaultdict(Counter)
    total: defaultdict[int, Counter[int]] = defaultdict(Counter)
    measured = select(latencies).where(
        latencies.c.queue == queue, latencies.c.minute >= start, latencies.c.minute < end
    )
    for row in tx.execute(measured):
        processing[row.minute].update(counts_of(queue, row.processing))
        total[row.minute].update(counts_of(queue, row.total))
    return [
        MetricBucket(
            queue=queue,
            minute=from_us(minute),
            counts=counts[minute],
            processing=Histogram(dict(processing[minute])),
            total=Histogram(dict(total[minute])),
        )
        for minute in sorted(counts.keys() | processing.keys())
    ]


def roll_up(tx: Tx, limit: int) -> int:
    """Fold rows of closed minutes into one row per queue, minute and name. Return how many."""
    closed = tx.now - MINUTE_US
    folded = _fold_counters(tx, closed, limit)
    return folded + _fold_latencies(tx, closed, limit - folded)


def _fold_counters(tx: Tx, closed: int, limit: int) -> int:
    rows = tx.execute(_UNFOLDED, {"closed": closed, "at_most": limit}).all()
    sums: Counter[tuple[str, int, str]] = Counter()
    for row in rows:
        sums[row.queue, row.minute, row.name] += tally(row.amount)
    # Late rows of a minute already folded are added to its sum.
    if sums:
        tx.put(
            tx.flavor.insert_add(counters, _COUNTER_KEY, "count"),
            [
                {
                    "queue": queue,
                    "minute": minute,
                    "host_id": "",
                    "part": "",
                    "name": name,
                    "count": count,
                }
                for (queue, minute, name), count in sorted(sums.items())
            ],
        )
    add_counts(tx, sums)
    delete_keys(tx, counters, _COUNTER_KEY, rows)
    return len(rows)


def _fold_latencies(tx: Tx, closed: int, limit: int) -> int:
    if limit <= 0:
        return 0
    rows = tx.execute(_UNFOLDED_LATENCIES, {"closed": closed, "at_most": limit}).all()
    sums: defaultdict[_Minute, _Sums] = defaultdict(_Sums)
    for row in rows:
        sums[row.queue, row.minute, ""].add_durations(row)
    _add_latencies(tx, sums)
    delete_keys(tx, latencies, _LATENCY_KEY, rows)
    return len(rows)


def delete_keys(tx: Tx, table: Table, key: Sequence[str], rows: Sequence[Any]) -> None:
    """Delete the rows of these primary keys."""
    if rows:
        # Row by row: SQLite would look up a list of keys of several columns by scanning.
        one = delete(table).where(*(table.c[name] == bindparam(f"its_{name}") for name in key))
        tx.execute(one, [{f"its_{name}": getattr(row, name) for name in key} for row in rows])


HOUR_US = 3_600_000_000


_FOLDED = {
    table.name: select(table)
    .where(table.c.minute > bindparam("since"), table.c.minute < bindparam("before"))
    .order_by(table.c.minute)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
    for table in (counters, latencies, gauges)
}
_HOURS = Records(hours, ("queue", "hour"), ("counts", "processing", "total"))
_OF_QUEUE = (
    select(hours)
    .where(
        hours.c.queue == bindparam("of"),
        hours.c.hour >= bindparam("since"),
        hours.c.hour < bindparam("until"),
    )
    .order_by(hours.c.hour)
)


@dataclass
class _Sums:
    """The gain of an hour of a queue."""

    counts: Counter[str] = field(default_factory=Counter[str])
    processing: Counter[int] = field(default_factory=Counter[int])
    total: Counter[int] = field(default_factory=Counter[int])

    def add_durations(self, row: Row[Any]) -> None:
        """Add the histograms of a stored row."""
        self.processing.update(counts_of(row.queue, row.processing))
        self.total.update(counts_of(row.queue, row.total))

    def durations(self, row: Row[Any]) -> dict[str, str]:
        """Return the columns of a stored row with the gain."""
        self.add_durations(row)
        return {"processing": _json(self.processing), "total": _json(self.total)}


# -- folding -----------------------------------------------------------------------------------


def hour_of(minute: int) -> int:
    """Return the begin of the hour of an instant."""
    return minute - minute % HOUR_US


def fold_counters(tx: Tx, since: int, before: int, size: int) -> Sequence[Any]:
    """Fold the oldest rows after ``since`` and before ``before`` into their hours, and return
    them."""
    rows = _rows(tx, counters.name, since, before, size)
    sums: defaultdict[tuple[str, int], _Sums] = defaultdict(_Sums)
    for row in rows:
        sums[row.queue, hour_of(row.minute)].counts[row.name] += tally(row.count)
    _add(tx, sums)
    delete_keys(tx, counters, [part.name for part in counters.primary_key], rows)
    return rows


def fold_latencies(tx: Tx, since: int, before: int, size: int) -> Sequence[Any]:
    """Fold latencies as :func:`fold_counters` folds counters."""
    rows = _rows(tx, latencies.name, since, before, size)
    sums: defaultdict[tuple[str, int], _Sums] = defaultdict(_Sums)
    for row in rows:
        sums[row.queue, hour_of(row.minute)].add_durations(row)
    _add(tx, sums)
    delete_keys(tx, latencies, [part.name for part in latencies.primary_key], rows)
    return rows


def fold_gauges(tx: Tx, since: int, before: int, size: int) -> Sequence[Any]:
    """Fold gauges as :func:`fold_counters` does. Of each pod the last measurement of the hour
    stays."""
    rows = _rows(tx, gauges.name, since, before, size)
    # In the order of time, so that the last one stays.
    last = {(hour_of(row.minute), row.host_id): row.gauges for row in rows}
    if last:
        tx.put(
            tx.flavor.insert_replace(pod_hours, ("hour", "host_id")),
            [
                {"hour": hour, "host_id": host_id, "gauges": measured}
                for (hour, host_id), measured in sorted(last.items())
            ],
        )
    delete_keys(tx, gauges, [part.name for part in gauges.primary_key], rows)
    return rows


def _rows(tx: Tx, table: str, since: int, before: int, size: int) -> Sequence[Any]:
    found = {"since": since, "before": before, "at_most": size}
    return tx.execute(_FOLDED[table], found).all()


def _add(tx: Tx, sums: Mapping[tuple[str, int], _Sums]) -> None:
    empty = {"counts": "{}", "processing": "{}", "total": "{}"}
    made = [{"queue": queue, "hour": hour, **empty} for queue, hour in sorted(sums)]
    changed = []
    for row in _HOURS.held(tx, made):
        gained = sums[row.queue, row.hour]
        gained.counts.update(names_of(row.queue, row.counts))
        changed.append((row, {"counts": _json(gained.counts), **gained.durations(row)}))
    _HOURS.put(tx, changed)


def _json(counts: Mapping[Any, int]) -> str:
    return msgspec.json.encode(dict(counts)).decode()


# -- reading -----------------------------------------------------------------------------------


def metrics_of_hours(tx: Tx, queue: str, since: datetime, until: datetime) -> list[MetricBucket]:
    """Return the hours of a queue that begin in the range."""
    found = {"of": queue, "since": to_us(since), "until": to_us(until)}
    return [
        MetricBucket(
            queue=queue,
            minute=from_us(row.hour),
            counts=names_of(queue, row.counts),
            processing=Histogram(counts_of(queue, row.processing)),
            total=Histogram(counts_of(queue, row.total)),
            length=HOUR,
        )
        for row in tx.execute(_OF_QUEUE, found)
    ]
