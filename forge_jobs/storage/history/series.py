"""Series as every store keeps them: records of minutes and of hours, both written at once.

A record has counts by name, three histograms and a depth. Adding two records adds counts and
histograms, and takes the greater of each number of the depths.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from forge_jobs.clock import duration_us, from_us, to_us
from forge_jobs.model.failures import check_steps
from forge_jobs.model.metrics import HOUR, Histogram
from forge_jobs.model.series import Depth, FlowSample, FlowTotal, SeriesAsk, SeriesStep

HOUR_US, MINUTE_US = 3_600_000_000, 60_000_000
LENGTHS = (MINUTE_US, HOUR_US)

WHOLE = ""
"""The kind of a queue's own series, and the queue of the whole store."""

FOREVER = 1 << 62
"""The begin of the hour that stands for all time, behind all hours that end or are read."""

_Key = TypeVar("_Key", str, int)

DepthNumbers = tuple[int, int, int, int, int]
"""Due, the oldest in microseconds (-1 for none), granted, running, most workers."""


class Place(NamedTuple):
    """Where a record stands. Records are written in this order.

    :ivar length: of the step, in microseconds
    """

    queue: str
    kind: str
    length: int
    at: int


class SeriesAsked(NamedTuple):
    """A checked question for the steps of a series. Instants are in microseconds."""

    queue: str
    kind: str
    since: int
    until: int
    step: timedelta

    @classmethod
    def of(
        cls, since: datetime, until: datetime, step: timedelta, *, queue: str, kind: str
    ) -> "SeriesAsked":
        """Return the question.

        :raises InvalidInput: see :func:`check_steps`
        """
        check_steps(since, until, step)
        return cls(queue, kind, to_us(since), to_us(until), step)

    @classmethod
    def of_ask(cls, ask: SeriesAsk) -> "SeriesAsked":
        """Return one of several questions.

        :raises InvalidInput: see :func:`check_steps`
        """
        return cls.of(ask.since, ask.until, ask.step, queue=ask.queue, kind=ask.kind)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of the records to read."""
        return (HOUR_US,) if duration_us(self.step) % HOUR_US == 0 else LENGTHS


class Range(NamedTuple):
    """Records of one kind and one length that several series need, each of another queue."""

    kind: str
    length: int
    since: int
    until: int


def ranges_of(asked: Sequence[SeriesAsked]) -> dict[Range, set[str]]:
    """Return the records to read, and of which queues: as few readings as can be."""
    found: defaultdict[Range, set[str]] = defaultdict(set)
    for each in asked:
        for length in each.lengths:
            found[Range(each.kind, length, each.since, each.until)].add(each.queue)
    return found


@dataclass
class Record:
    """The parts of a record, or of a gain."""

    counts: dict[str, int] = field(default_factory=Counter[str])
    delay: dict[int, int] = field(default_factory=Counter[int])
    processing: dict[int, int] = field(default_factory=Counter[int])
    total: dict[int, int] = field(default_factory=Counter[int])
    depth: DepthNumbers | None = None

    def add(self, other: "Record", *, counts: bool = True) -> None:
        """Add another record."""
        if counts:
            _add(self.counts, other.counts)
        _add(self.delay, other.delay)
        _add(self.processing, other.processing)
        _add(self.total, other.total)
        self.depth = greater(self.depth, other.depth)


def _add(numbers: dict[_Key, int], more: Mapping[_Key, int]) -> None:
    if not numbers:
        numbers.update(dict(more))
        return
    for key, count in more.items():
        numbers[key] = numbers.get(key, 0) + count


Gains = defaultdict[Place, Record]


def greater(one: DepthNumbers | None, other: DepthNumbers | None) -> DepthNumbers | None:
    """Return the greatest of each number."""
    if one is None or other is None:
        return one or other
    due, oldest, granted, running, most = map(max, one, other)
    return due, oldest, granted, running, most


def numbers_of(depth: Depth) -> DepthNumbers:
    """Return a depth as stored."""
    oldest = -1 if depth.oldest_due_for is None else duration_us(depth.oldest_due_for)
    return depth.due, oldest, depth.granted, depth.running, depth.max_workers


def sum_of(depths: Iterable[Depth]) -> Depth:
    """Return the depth of the whole store: sums, and the oldest of all."""
    listed = list(depths)
    ages = [each.oldest_due_for for each in listed if each.oldest_due_for is not None]
    return Depth(
        due=sum(each.due for each in listed),
        oldest_due_for=max(ages, default=None),
        granted=sum(each.granted for each in listed),
        running=sum(each.running for each in listed),
        max_workers=sum(each.max_workers for each in listed),
    )


def record_of(sample: FlowSample) -> Record:
    """Return what a sample adds to the series of its kind."""
    return Record(
        Counter(sample.counts),
        Counter(sample.delay.counts),
        Counter(sample.processing.counts),
        Counter(sample.total.counts),
    )


def gains_of(samples: Iterable[FlowSample]) -> Gains:
    """Return what samples add: to their kinds, and without the counts to queues and the store.

    The counts of queues and of the store are exact, and come with the roll-up.
    """
    gains: Gains = defaultdict(Record)
    for sample in samples:
        added, minute = record_of(sample), to_us(sample.minute)
        for queue, kind in ((sample.queue, sample.kind), (sample.queue, WHOLE), (WHOLE, WHOLE)):
            for length in LENGTHS:
                place = Place(queue, kind, length, minute - minute % length)
                gains[place].add(added, counts=kind != WHOLE)
    return gains


def totals_of(samples: Iterable[FlowSample]) -> Gains:
    """Return what samples add to the totals of their kinds."""
    gains: Gains = defaultdict(Record)
    for sample in samples:
        gains[_total(sample.queue, sample.kind)].add(record_of(sample))
    return gains


def _total(queue: str, kind: str) -> Place:
    return Place(queue, kind, HOUR_US, FOREVER)


def total_of(queue: str, kind: str, record: Record) -> FlowTotal:
    """Return the total of a record."""
    return FlowTotal(
        queue=queue,
        kind=kind,
        counts=dict(record.counts),
        delay=Histogram(dict(record.delay)),
        processing=Histogram(dict(record.processing)),
    )


def gains_of_counts(sums: Mapping[tuple[str, int, str], int]) -> Gains:
    """Return what the counters of queue, minute and name add to queues and the store."""
    gains: Gains = defaultdict(Record)
    for (queue, minute, name), count in sums.items():
        gains[_total(queue, WHOLE)].counts[name] += count
        for of in (queue, WHOLE):
            for length in LENGTHS:
                gains[Place(of, WHOLE, length, minute - minute % length)].counts[name] += count
    return gains


def gains_of_depths(depths: Mapping[str, Depth], now: int) -> Gains:
    """Return what depths of queues add to the queues and the store, at a time."""
    gains: Gains = defaultdict(Record)
    for queue, depth in ({**depths, WHOLE: sum_of(depths.values())}).items():
        for length in LENGTHS:
            gains[Place(queue, WHOLE, length, now - now % length)].depth = numbers_of(depth)
    return gains


def series_of(records: Mapping[tuple[int, int], Record], step: timedelta) -> list[SeriesStep]:
    """Return the steps of records by length and begin.

    Where an hour has no minutes any more, the hour itself is a step.
    """
    width = duration_us(step)
    steps: dict[tuple[int, int], Record] = {}
    hours = {at - at % HOUR_US for length, at in records if length == MINUTE_US}
    for (length, at), record in records.items():
        if width % HOUR_US == 0:
            if length == HOUR_US:
                _join(steps, (at - at % width, width), record)
        elif length == MINUTE_US:
            _join(steps, (at - at % width, width), record)
        elif at not in hours:
            _join(steps, (at, HOUR_US), record)
    return [_step(at, length, record) for (at, length), record in sorted(steps.items())]


def _join(steps: dict[tuple[int, int], Record], step: tuple[int, int], record: Record) -> None:
    """Add a record to a step. One that is the only record of its step is not copied."""
    known = steps.get(step)
    if known is None:
        steps[step] = record
        return
    both = steps[step] = Record({}, {}, {}, {})
    both.add(known)
    both.add(record)


def many_of(
    records: Mapping[tuple[Range, str], Mapping[int, Record]], asked: Sequence[SeriesAsked]
) -> list[list[SeriesStep]]:
    """Return the steps of each question.

    :param records: by range and queue, and by their begin
    """
    return [
        series_of(
            {
                (length, at): record
                for length in each.lengths
                for at, record in records.get(
                    (Range(each.kind, length, each.since, each.until), each.queue), {}
                ).items()
            },
            each.step,
        )
        for each in asked
    ]


def _step(at: int, length: int, record: Record) -> SeriesStep:
    depth = None
    if record.depth is not None:
        due, oldest, granted, running, most = record.depth
        depth = Depth(
            due=due,
            oldest_due_for=None if oldest < 0 else timedelta(microseconds=oldest),
            granted=granted,
            running=running,
            max_workers=most,
        )
    return SeriesStep(
        at=from_us(at),
        length=HOUR if length == HOUR_US else timedelta(microseconds=length),
        counts=record.counts,
        delay=Histogram(record.delay),
        processing=Histogram(record.processing),
        total=Histogram(record.total),
        depth=depth,
    )
