"""Minutes that are past their time become hours: sums of queues, last measurements of pods.

A minute goes in the transaction that adds it to its hour, so each is counted once.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import bindparam, select, update

from forge_jobs.clock import from_us, to_us
from forge_jobs.model.ids import HostId
from forge_jobs.model.metrics import HOUR, Histogram, MetricBucket, PodMinute
from forge_jobs.storage.salvage import tally
from forge_jobs.storage.salvaged_history import counts_of, gauges_of, names_of
from forge_jobs.storage.sql.base.bookkeeping import delete_keys
from forge_jobs.storage.sql.base.tables import counters, gauges, hours, latencies, pod_hours
from forge_jobs.storage.sql.base.transaction import Tx

HOUR_US = 3_600_000_000


_FOLDED = {
    table.name: select(table)
    .where(table.c.minute > bindparam("since"), table.c.minute < bindparam("before"))
    .order_by(table.c.minute)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
    for table in (counters, latencies, gauges)
}
_LOCKED = (
    select(hours)
    .where(hours.c.queue == bindparam("of"), hours.c.hour == bindparam("at"))
    .with_for_update(key_share=True)
)
_OF_QUEUE = (
    select(hours)
    .where(
        hours.c.queue == bindparam("of"),
        hours.c.hour >= bindparam("since"),
        hours.c.hour < bindparam("until"),
    )
    .order_by(hours.c.hour)
)
_OF_PODS = (
    select(pod_hours)
    .where(pod_hours.c.hour >= bindparam("since"), pod_hours.c.hour < bindparam("until"))
    .order_by(pod_hours.c.hour, pod_hours.c.host_id)
)


@dataclass
class _Sums:
    """What an hour of a queue gains."""

    counts: Counter[str] = field(default_factory=Counter[str])
    processing: Counter[int] = field(default_factory=Counter[int])
    total: Counter[int] = field(default_factory=Counter[int])


# -- folding -----------------------------------------------------------------------------------


def hour_of(minute: int) -> int:
    """The begin of the hour of an instant."""
    return minute - minute % HOUR_US


def fold_counters(tx: Tx, since: int, before: int, size: int) -> Sequence[Any]:
    """Fold the oldest rows after ``since`` and before ``before`` into their hours; these rows."""
    rows = _rows(tx, counters.name, since, before, size)
    sums: defaultdict[tuple[str, int], _Sums] = defaultdict(_Sums)
    for row in rows:
        sums[row.queue, hour_of(row.minute)].counts[row.name] += tally(row.count)
    _add(tx, sums)
    delete_keys(tx, counters, [part.name for part in counters.primary_key], rows)
    return rows


def fold_latencies(tx: Tx, since: int, before: int, size: int) -> Sequence[Any]:
    """As :func:`fold_counters`."""
    rows = _rows(tx, latencies.name, since, before, size)
    sums: defaultdict[tuple[str, int], _Sums] = defaultdict(_Sums)
    for row in rows:
        hour = sums[row.queue, hour_of(row.minute)]
        hour.processing.update(counts_of(row.queue, row.processing))
        hour.total.update(counts_of(row.queue, row.total))
    _add(tx, sums)
    delete_keys(tx, latencies, [part.name for part in latencies.primary_key], rows)
    return rows


def fold_gauges(tx: Tx, since: int, before: int, size: int) -> Sequence[Any]:
    """As :func:`fold_counters`: of each pod the last measurement of the hour stays."""
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
    for (queue, hour), gained in sorted(sums.items(), key=lambda each: each[0]):
        empty = {"queue": queue, "hour": hour, "counts": "{}", "processing": "{}", "total": "{}"}
        tx.execute(tx.flavor.insert_ignore(hours), empty)
        stored = tx.execute(_LOCKED, {"of": queue, "at": hour}).one()
        gained.counts.update(names_of(queue, stored.counts))
        gained.processing.update(counts_of(queue, stored.processing))
        gained.total.update(counts_of(queue, stored.total))
        tx.execute(
            update(hours)
            .where(hours.c.queue == queue, hours.c.hour == hour)
            .values(
                counts=_json(gained.counts),
                processing=_json(gained.processing),
                total=_json(gained.total),
            )
        )


def _json(counts: Mapping[Any, int]) -> str:
    return msgspec.json.encode(dict(counts)).decode()


# -- reading -----------------------------------------------------------------------------------


def metrics_of_hours(tx: Tx, queue: str, since: datetime, until: datetime) -> list[MetricBucket]:
    """The hours of a queue that begin in the range."""
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


def gauges_of_hours(tx: Tx, since: datetime, until: datetime) -> list[PodMinute]:
    """The hours of pods that begin in the range."""
    rows = tx.execute(_OF_PODS, {"since": to_us(since), "until": to_us(until)})
    return [
        PodMinute(
            host_id=HostId(row.host_id), minute=from_us(row.hour), gauges=measured, length=HOUR
        )
        for row in rows
        if (measured := gauges_of(row.host_id, row.gauges)) is not None
    ]
