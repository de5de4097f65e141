"""Timeline events, counters, histograms and roll-ups."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count

import msgspec

from forge_jobs.clock import from_us, to_us
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.metrics import HOUR, MINUTE, Histogram, LatencySample, MetricBucket
from forge_jobs.storage.history.summaries import Summary
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_all_queues, note_queues, queue_names
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.history.series import add_counts
from forge_jobs.storage.redis.jobs.filters import portions
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.salvage import Fields, salvaged_event

_EVENTS_AT_ONCE = 500
_MINUTES_AT_ONCE = 200
_LISTS = ((HOUR, ":hours", ":hm:", ":hl:"), (MINUTE, ":minutes", ":m:", ":l:"))
"""Where hours and minutes are listed, and the keys of their counters and histograms."""

_appended = count(1)
"""Puts events of one instant that this process appends to several queues in order."""


class _StoredEvent(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``events.lua``."""

    at: int
    number: int
    kind: str
    job_id: str
    host_id: str
    detail: str


class _Minute(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``metrics.lua``: names or buckets and their counts, in turn."""

    minute: int
    counts: list[str | int]
    processing: list[int]
    total: list[int]


class _Folded(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``fold.lua``: rows, then names and counts in turn."""

    rows: int
    counts: list[str | int]


# -- timeline ----------------------------------------------------------------------------------


async def append_events(db: Database, events: Sequence[TimelineEvent]) -> list[TimelineEvent]:
    """See ``JobStore.append_events``."""
    await _note_queues(db, (event.queue for event in events))
    left: list[TimelineEvent] = []
    for portion in portions(events, _EVENTS_AT_ONCE):
        requests: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
        for event in portion:
            requests[_base(db, event.queue)].append(
                item_of(
                    "append_events",
                    "event",
                    least=next(_appended),
                    at=to_us(event.at),
                    kind=event.kind.value,
                    id=event.job_id,
                    host=event.host_id,
                    detail=event.detail,
                )
            )
        silent = (await db.run_some("append_events", requests, bool)).silent
        left += (event for event in portion if _base(db, event.queue) in silent)
    return left


async def read_events(
    db: Database, job_id: JobId | None, queue: str | None, limit: int
) -> list[TimelineEvent]:
    """See ``JobStore.events``."""
    queues = ["", *await queue_names(db)] if queue is None else [queue]
    requests = dict.fromkeys(
        (_base(db, name) for name in queues), request_of("events", id=job_id or "", limit=limit)
    )
    answers, silent = await db.run_some("events", requests, list[_StoredEvent])
    if queue is not None and silent:
        raise silent[_base(db, queue)]
    found = sorted(
        ((event, base) for base, events in answers.items() for event in events),
        key=lambda each: (each[0].at, each[0].number),
        reverse=True,
    )
    return [
        _event(event, "" if base == db.keys.fleet else queue_of(base))
        for event, base in found[:limit]
    ]


def _event(stored: _StoredEvent, queue: str) -> TimelineEvent:
    read = Fields({"kind": stored.kind, "at": stored.at})
    found = TimelineEvent(
        at=read.instant("at"),
        kind=read.member("kind", EventKind.UNREADABLE),
        queue=queue,
        job_id=stored.job_id,
        host_id=stored.host_id,
        detail=stored.detail,
    )
    return salvaged_event(found, read.problems)


def _base(db: Database, queue: str) -> str:
    return db.keys.queue(queue) if queue else db.keys.fleet


async def _note_queues(db: Database, names: Iterable[str]) -> None:
    """Let what is written of queues be found, whether they have a record or not."""
    fresh = {name for name in names if name} - db.queues_met
    if fresh:
        await note_queues(db, fresh)


# -- metrics -----------------------------------------------------------------------------------


async def add_latencies(
    db: Database, host_id: HostId, samples: Sequence[LatencySample]
) -> list[LatencySample]:
    """See ``JobStore.add_latencies``."""
    await _note_queues(db, (sample.queue for sample in samples))
    measured: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    for sample in samples:
        measured[db.keys.queue(sample.queue)].append(
            item_of(
                "add_latencies",
                "sample",
                minute=to_us(sample.minute),
                processing=_flat(sample.processing),
                total=_flat(sample.total),
            )
        )
    requests = {
        base: request_of("add_latencies", host=host_id, samples=found)
        for base, found in measured.items()
    }
    silent = (await db.run_some("add_latencies", requests, bool)).silent
    return [sample for sample in samples if db.keys.queue(sample.queue) in silent]


async def metrics(db: Database, queue: str, since: datetime, until: datetime) -> list[MetricBucket]:
    """See ``JobStore.metrics``."""
    base, last = db.keys.queue(queue), to_us(until) - 1
    buckets: list[MetricBucket] = []
    for length, *keys in _LISTS:
        first = to_us(since)
        while True:
            request = _asked(first, last, keys)
            minutes = await db.run_one("metrics", base, request, list[_Minute])
            buckets += (
                _bucket(queue, each, length) for each in minutes if each.counts or each.processing
            )
            if len(minutes) < _MINUTES_AT_ONCE:
                break
            first = minutes[-1].minute + 1
    return sorted(buckets, key=lambda bucket: bucket.minute)


async def summaries(
    db: Database, queues: Iterable[str], since: datetime, until: datetime
) -> dict[str, MetricBucket]:
    """See ``JobStore.summaries``."""
    sums: defaultdict[str, Summary] = defaultdict(Summary)
    bases = {db.keys.queue(name): name for name in queues}
    last, gone = to_us(until) - 1, set[str]()
    for _, *keys in _LISTS:
        first = dict.fromkeys(bases, to_us(since))
        while first:
            requests = {base: _asked(at, last, keys) for base, at in first.items()}
            found, silent = await db.run_some("metrics", requests, list[_Minute])
            gone.update(bases[base] for base in silent)
            for base, minutes in found.items():
                for each in minutes:
                    if each.counts or each.processing:
                        sums[bases[base]].add(*_maps(each))
            first = {
                base: minutes[-1].minute + 1
                for base, minutes in found.items()
                if len(minutes) == _MINUTES_AT_ONCE
            }
    return {
        queue: each.bucket(queue, since, until) for queue, each in sums.items() if queue not in gone
    }


def _asked(first: int, last: int, keys: Sequence[str]) -> tuple[object, ...]:
    listed, counters, latencies = keys
    return request_of(
        "metrics",
        first=first,
        last=last,
        most=_MINUTES_AT_ONCE,
        list=listed,
        counters=counters,
        latencies=latencies,
    )


def _maps(stored: _Minute) -> tuple[dict[str, int], dict[int, int], dict[int, int]]:
    counts = stored.counts
    return (
        {str(name): int(each) for name, each in zip(counts[::2], counts[1::2], strict=True)},
        _pairs(stored.processing),
        _pairs(stored.total),
    )


async def roll_up(db: Database, limit: int) -> int:
    """See ``JobStore.roll_up``."""
    answers = await in_all_queues(db, "unfolded", limit, list[int])
    folded, sums = 0, Counter[tuple[int, str]]()
    # One after the other, because only so many in all are folded, and the oldest first.
    for minute, queue in sorted(
        (minute, queue) for queue, minutes in answers.items() for minute in minutes
    ):
        if folded == limit:
            break
        request = request_of("fold", minute=minute, limit=limit - folded)
        rows, _ = await db.run_some("fold", {db.keys.queue(queue): request}, _Folded)
        for each in rows.values():
            folded += each.rows
            names = zip(each.counts[::2], each.counts[1::2], strict=True)
            sums.update({(minute, str(name)): int(count) for name, count in names})
    await add_counts(db, sums)
    return folded


def _bucket(queue: str, stored: _Minute, length: timedelta) -> MetricBucket:
    counts, processing, total = _maps(stored)
    return MetricBucket(
        queue=queue,
        minute=from_us(stored.minute),
        counts=counts,
        processing=Histogram(processing),
        total=Histogram(total),
        length=length,
    )


def _flat(histogram: Histogram) -> list[int]:
    counts: Mapping[int, int] = histogram.counts
    return [number for pair in counts.items() for number in pair]


def _pairs(flat: Sequence[int]) -> dict[int, int]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
