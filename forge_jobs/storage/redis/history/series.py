"""Series of queues, kinds and the whole store: written from what pods count, read in steps."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

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
    HOUR_US,
    WHOLE,
    DepthNumbers,
    Range,
    Record,
    SeriesAsked,
    many_of,
    numbers_of,
    ranges_of,
    record_of,
    series_of,
    sum_of,
    total_of,
)
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_all_queues, note_queues
from forge_jobs.storage.redis.base.scripts import item_of, request_of

_ITEMS_AT_ONCE = 50
"""Records that one step changes at most, each of a minute and of an hour."""

_RECORDS_AT_ONCE = 200
"""Records that one step reads at most."""


_Parts = tuple[list[Any], list[int], list[int], list[int], list[int]]


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``series_records.lua``: names or buckets and counts, in turn."""

    at: int
    record: _Parts | bool | None


async def add_flows(db: Database, samples: Sequence[FlowSample]) -> list[FlowSample]:
    """See ``JobStore.add_flows``."""
    fresh = {sample.queue for sample in samples} - db.queues_met
    if fresh:
        await note_queues(db, fresh)
    gains: defaultdict[tuple[str, str, int], Record] = defaultdict(Record)
    for sample in samples:
        base, minute, added = db.keys.queue(sample.queue), to_us(sample.minute), record_of(sample)
        gains[base, sample.kind, minute].add(added)
        gains[base, WHOLE, minute].add(added, counts=False)
    silent = await _add(db, gains)
    heard = [sample for sample in samples if db.keys.queue(sample.queue) not in silent]
    whole: defaultdict[tuple[str, str, int], Record] = defaultdict(Record)
    for sample in heard:
        whole[db.keys.fleet, WHOLE, to_us(sample.minute)].add(record_of(sample), counts=False)
    # Where the part of the fleet is silent, the series of the store lacks these.
    await _add(db, whole)
    return [sample for sample in samples if db.keys.queue(sample.queue) in silent]


async def add_counts(db: Database, sums: Mapping[tuple[int, str], int]) -> None:
    """Add counters of minute and name to the series of the whole store."""
    gains: defaultdict[tuple[str, str, int], Record] = defaultdict(Record)
    for (minute, name), count in sums.items():
        gains[db.keys.fleet, WHOLE, minute].counts[name] += count
    await _add(db, gains)


async def record_depths(db: Database, depths: Mapping[str, Depth]) -> None:
    """See ``JobStore.record_depths``."""
    requests = {
        base: _request([_item(WHOLE, False, Record(depth=numbers_of(depth)))])
        for base, depth in (
            *((db.keys.queue(queue), depth) for queue, depth in depths.items()),
            (db.keys.fleet, sum_of(depths.values())),
        )
    }
    await db.run_some("add_series", requests, bool)


async def _add(db: Database, gains: Mapping[tuple[str, str, int], Record]) -> set[str]:
    """Add to records of base, kind and minute. Return the bases that are silent."""
    items: defaultdict[str, list[object]] = defaultdict(list)
    for (base, kind, minute), record in sorted(gains.items(), key=lambda each: each[0]):
        items[base].append(_item(kind, minute, record))
    silent: set[str] = set()
    while items:
        requests = {base: _request(found[:_ITEMS_AT_ONCE]) for base, found in items.items()}
        silent |= (await db.run_some("add_series", requests, bool)).silent.keys()
        left = {base: found[_ITEMS_AT_ONCE:] for base, found in items.items() if base not in silent}
        items = defaultdict(list, {base: found for base, found in left.items() if found})
    return silent


def _request(items: Iterable[object]) -> tuple[object, ...]:
    return request_of("add_series", items=list(items), most=MOST_KINDS, other=OTHER_KINDS)


def _item(kind: str, minute: int | bool, record: Record) -> tuple[object, ...]:
    return item_of(
        "add_series",
        "item",
        kind=kind,
        at=minute,
        sums=_flat(record.counts),
        delay=_flat(record.delay),
        processing=_flat(record.processing),
        total=_flat(record.total),
        depth=record.depth or (),
    )


def _flat(counts: Mapping[Any, int]) -> list[object]:
    return [part for pair in counts.items() for part in pair]


async def read_series(db: Database, asked: SeriesAsked) -> list[SeriesStep]:
    """See ``JobStore.series``."""
    base = db.keys.queue(asked.queue) if asked.queue else db.keys.fleet
    records: dict[tuple[int, int], Record] = {}
    for length in asked.lengths:
        first, last = asked.since, asked.until - 1
        while True:
            request = request_of(
                "series_records",
                kind=asked.kind,
                are_hours=length == HOUR_US,
                first=first,
                last=last,
                most=_RECORDS_AT_ONCE,
            )
            found = await db.run_one("series_records", base, request, list[_Stored])
            for each in found:
                if isinstance(each.record, tuple):
                    records[length, each.at] = _record(each.record)
            if len(found) < _RECORDS_AT_ONCE:
                break
            first = found[-1].at + 1
    return series_of(records, asked.step)


async def read_many(db: Database, asked: Sequence[SeriesAsked]) -> list[list[SeriesStep]]:
    """See ``JobStore.many_series``."""
    found: dict[tuple[Range, str], dict[int, Record]] = {}
    for span, names in ranges_of(asked).items():
        bases = {db.keys.queue(name) if name else db.keys.fleet: name for name in names}
        for base, records in (await _records_of(db, span, bases)).items():
            found[span, bases[base]] = records
    return many_of(found, asked)


async def _records_of(
    db: Database, span: Range, bases: Iterable[str]
) -> dict[str, dict[int, Record]]:
    """Read the records of several bases. Those of a silent one are left out."""
    found: dict[str, dict[int, Record]] = {}
    first = dict.fromkeys(bases, span.since)
    while first:
        requests = {
            base: request_of(
                "series_records",
                kind=span.kind,
                are_hours=span.length == HOUR_US,
                first=at,
                last=span.until - 1,
                most=_RECORDS_AT_ONCE,
            )
            for base, at in first.items()
        }
        answers = (await db.run_some("series_records", requests, list[_Stored])).found
        first = {}
        for base, stored in answers.items():
            records = found.setdefault(base, {})
            for each in stored:
                if isinstance(each.record, tuple):
                    records[each.at] = _record(each.record)
            if len(stored) == _RECORDS_AT_ONCE:
                first[base] = stored[-1].at + 1
    return found


async def read_totals(db: Database) -> list[FlowTotal]:
    """See ``JobStore.flow_totals``."""
    answers = await in_all_queues(db, "flow_totals", [], list[tuple[str, _Parts]])
    return [
        total_of(queue, kind, _record(parts))
        for queue, found in sorted(answers.items())
        for kind, parts in sorted(found, key=lambda each: each[0])
    ]


def _record(parts: _Parts) -> Record:
    names, delay, processing, total, depth = parts
    return Record(
        _counted(names), _counted(delay), _counted(processing), _counted(total), _depth(depth)
    )


def _counted(flat: Sequence[Any]) -> dict[Any, int]:
    return dict(zip(flat[::2], map(int, flat[1::2]), strict=True))


def _depth(numbers: Sequence[int]) -> DepthNumbers | None:
    if len(numbers) != 5:  # the numbers of a depth
        return None
    due, oldest, granted, running, most = map(int, numbers)
    return due, oldest, granted, running, most
