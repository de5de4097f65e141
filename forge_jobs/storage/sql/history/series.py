"""Series of queues, kinds and the whole store: written from what pods count, read in steps."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import BigInteger, bindparam, select

from forge_jobs.clock import to_us
from forge_jobs.model.series import (
    MOST_KINDS,
    OTHER_KINDS,
    Depth,
    FlowSample,
    FlowTotal,
    SeriesStep,
)
from forge_jobs.storage.history.series import (
    FOREVER,
    HOUR_US,
    MINUTE_US,
    WHOLE,
    DepthNumbers,
    Gains,
    Range,
    Record,
    SeriesAsked,
    gains_of,
    gains_of_counts,
    gains_of_depths,
    many_of,
    ranges_of,
    total_of,
    totals_of,
)
from forge_jobs.storage.salvage import UNREADABLE, counts_of, names_of
from forge_jobs.storage.sql.base.history_tables import series_hours, series_minutes
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import queues
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.base.upserts import Records

_TABLES = {MINUTE_US: series_minutes, HOUR_US: series_hours}


_COLUMNS = ("counts", "delay", "processing", "total", "depth")
_RECORDS = {
    length: Records(table, ("queue", "kind", "at"), _COLUMNS) for length, table in _TABLES.items()
}
_OF_QUEUES = {
    length: select(table).where(
        one_of(table.c.queue, "names"),
        table.c.kind == bindparam("by"),
        table.c.at >= bindparam("since", type_=BigInteger),
        table.c.at < bindparam("until", type_=BigInteger),
    )
    for length, table in _TABLES.items()
}
_KINDS = select(series_hours.c.queue, series_hours.c.kind).where(
    series_hours.c.at == bindparam("begins", type_=BigInteger),
    one_of(series_hours.c.queue, "names"),
    series_hours.c.kind != WHOLE,
)

_TOTALS = (
    select(series_hours)
    .where(series_hours.c.at == FOREVER, series_hours.c.queue.in_(select(queues.c.name)))
    .order_by(series_hours.c.queue, series_hours.c.kind)
)

_KNOWN = select(queues.c.name).where(one_of(queues.c.name, "names"))

_decode_depth = msgspec.json.Decoder(DepthNumbers).decode


def add_flows(tx: Tx, samples: Sequence[FlowSample]) -> None:
    """See ``JobStore.add_flows``."""
    gains = gains_of(_with_few_kinds(tx, samples, _hour_of))
    gains.update(totals_of(_with_few_kinds(tx, samples, lambda _: FOREVER)))
    add(tx, gains)


def _hour_of(sample: FlowSample) -> int:
    minute = to_us(sample.minute)
    return minute - minute % HOUR_US


def _with_few_kinds(
    tx: Tx, samples: Sequence[FlowSample], hour_of: Callable[[FlowSample], int]
) -> list[FlowSample]:
    """Return the samples, those of too many kinds of a queue in an hour as of all other kinds."""
    names: defaultdict[int, set[str]] = defaultdict(set)
    for sample in samples:
        names[hour_of(sample)].add(sample.queue)
    known: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for hour, of_hour in names.items():
        for queue, kind in tx.execute(_KINDS, {"names": sorted(of_hour), "begins": hour}):
            known[queue, hour].add(kind)
    found: list[FlowSample] = []
    for sample in samples:
        kinds = known[sample.queue, hour_of(sample)]
        is_one_more = sample.kind not in kinds and len(kinds - {OTHER_KINDS}) >= MOST_KINDS
        kind = OTHER_KINDS if is_one_more else sample.kind
        kinds.add(kind)
        found.append(msgspec.structs.replace(sample, kind=kind))
    return found


def add_counts(tx: Tx, sums: Mapping[tuple[str, int, str], int]) -> None:
    """Add counters of queue, minute and name to the series of the queues and of the store."""
    add(tx, gains_of_counts(sums))


def record_depths(tx: Tx, depths: Mapping[str, Depth]) -> None:
    """See ``JobStore.record_depths``."""
    add(tx, gains_of_depths(depths, tx.now))


def add(tx: Tx, gains: Gains) -> None:
    """Add to records, in an order that is the same for all.

    A queue that was deleted gets no total, which a later queue of that name would have.
    """
    with_total = {place.queue for place in gains if place.at == FOREVER}
    known = set(tx.execute(_KNOWN, {"names": sorted(with_total)}).scalars()) if with_total else ()
    for length, records in _RECORDS.items():
        of_length = {
            (place.queue, place.kind, place.at): gained
            for place, gained in sorted(gains.items(), key=lambda each: each[0])
            if place.length == length and (place.at != FOREVER or place.queue in known)
        }
        empty = _columns(Record())
        stored = records.held(
            tx,
            [{"queue": queue, "kind": kind, "at": at, **empty} for queue, kind, at in of_length],
        )
        records.put(
            tx, [(row, _added(row, of_length[row.queue, row.kind, row.at])) for row in stored]
        )


def _added(row: Any, gained: Record) -> dict[str, Any]:
    record = _record(row)
    record.add(gained)
    return _columns(record)


def _columns(record: Record) -> dict[str, Any]:
    return {
        "counts": _json(record.counts),
        "delay": _json(record.delay),
        "processing": _json(record.processing),
        "total": _json(record.total),
        "depth": None if record.depth is None else msgspec.json.encode(record.depth).decode(),
    }


def _json(counts: Mapping[Any, int]) -> str:
    return msgspec.json.encode(dict(counts)).decode()


def _record(row: Any) -> Record:
    queue = row.queue
    return Record(
        names_of(queue, row.counts),
        counts_of(queue, row.delay),
        counts_of(queue, row.processing),
        counts_of(queue, row.total),
        _depth(row.depth),
    )


def _depth(stored: str | None) -> DepthNumbers | None:
    try:
        return None if stored is None else _decode_depth(stored)
    except UNREADABLE:
        return None


def read_many(tx: Tx, asked: Sequence[SeriesAsked]) -> list[list[SeriesStep]]:
    """See ``JobStore.many_series``."""
    found: defaultdict[tuple[Range, str], dict[int, Record]] = defaultdict(dict)
    for span, names in ranges_of(asked).items():
        key = {"by": span.kind, "since": span.since, "until": span.until, "names": sorted(names)}
        for row in tx.execute(_OF_QUEUES[span.length], key):
            found[span, row.queue][row.at] = _record(row)
    return many_of(found, asked)


def read_totals(tx: Tx) -> list[FlowTotal]:
    """See ``JobStore.flow_totals``."""
    return [total_of(row.queue, row.kind, _record(row)) for row in tx.execute(_TOTALS)]
