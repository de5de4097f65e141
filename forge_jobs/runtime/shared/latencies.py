"""Durations of jobs, counted per queue and minute until the store has taken the counts."""

from collections import defaultdict
from datetime import datetime

from forge_jobs.clock import Clock, SystemClock, from_us, to_us
from forge_jobs.errors import CONCERNS_ALL, Unavailable
from forge_jobs.model.ids import HostId
from forge_jobs.model.metrics import Histogram, LatencySample
from forge_jobs.model.series import FlowSample
from forge_jobs.policy.percentiles import bucket_of
from forge_jobs.storage.protocols import JobStore

LATENCY_CAPACITY = 10_000
"""Queues, kinds and minutes kept while the store is down: a hundred kinds for over an hour."""

FLUSH_BATCH = 500

_MINUTE_US = 60_000_000
_Key = tuple[str, str, int]
"""Queue, kind and minute."""


class LatencyRecorder:
    """Counts durations in logarithmic buckets, by queue, kind and minute. Cheap for every job.

    Not exact, unlike the counters: a killed process loses the counts of its buffer, and a flush
    whose reply was lost counts twice. For use on one event loop.

    :param clock: shows the store's time, whose minutes count
    :param capacity: queues, kinds and minutes kept at most. The oldest are dropped
    """

    def __init__(
        self,
        jobs: JobStore,
        host_id: HostId,
        *,
        clock: Clock | None = None,
        capacity: int = LATENCY_CAPACITY,
    ) -> None:
        self._jobs = jobs
        self._host_id = host_id
        self._clock = clock or SystemClock()
        self._capacity = capacity
        # Insertion order is age: the clock of a minute may step, the order of first use cannot.
        self._counts: dict[_Key, _Flow] = {}
        self._flows: dict[_Key, _Flow] = {}
        """Counts that the minutes of queues have and the series of kinds do not have yet."""

    def __len__(self) -> int:
        return len(self._counts)

    def record(
        self, queue: str, processing: float, due_at: float, *, kind: str = "", ended: str = ""
    ) -> None:
        """Count a run that ends now.

        :param processing: seconds from the handler's start to its end
        :param due_at: the store's time when the job was due, in seconds since the epoch
        :param ended: the ``Cause`` value of the end
        """
        time_us = self._clock.time_us()
        total = max(time_us / 1_000_000 - due_at, processing)
        key = (queue, kind, time_us // _MINUTE_US)
        flow = self._counts.get(key)
        if flow is None:
            flow = self._counts[key] = _Flow()
            _make_room(self._counts, self._capacity)
        flow.ends[ended] += 1
        flow.processing[bucket_of(processing)] += 1
        flow.total[bucket_of(total)] += 1
        flow.delay[bucket_of(total - processing)] += 1

    async def flush_once(self, *, all_minutes: bool = False) -> int:
        """Write all counts so far, and return how many pairs of queue and minute were written.

        Counts are kept for the next flush when the store, or the part with the queue, is
        unreachable. The series of the kinds get their counts once a minute is over.

        :param all_minutes: the series get the present minute too
        :raises StorageError: the store did not take the counts
        """
        written = 0
        left: dict[_Key, _Flow] = {}
        try:
            while keys := list(self._counts)[:FLUSH_BATCH]:
                taken = {key: self._counts.pop(key) for key in keys}
                samples = _latencies(taken)
                try:
                    silent = await self._jobs.add_latencies(self._host_id, samples)
                except Unavailable:
                    left |= taken
                    raise
                kept = {(each.queue, to_us(each.minute) // _MINUTE_US) for each in silent}
                for key, flow in taken.items():
                    if (key[0], key[2]) in kept:
                        left[key] = flow
                    elif key[1]:
                        self._flows.setdefault(key, _Flow()).add(flow)
                written += len(samples) - len(kept)
        finally:
            self._counts = _joined(left, self._counts)
            _make_room(self._counts, self._capacity)
            _make_room(self._flows, self._capacity)
        await self._flush_flows(all_minutes=all_minutes)
        return written

    async def _flush_flows(self, *, all_minutes: bool) -> None:
        minute = self._clock.time_us() // _MINUTE_US
        over = [key for key in self._flows if all_minutes or key[2] != minute]
        for start in range(0, len(over), FLUSH_BATCH):
            # The last flush, at the stop, may have taken the rest meanwhile.
            some = [key for key in over[start : start + FLUSH_BATCH] if key in self._flows]
            taken = {key: self._flows.pop(key) for key in some}
            samples = {key: _flow_sample(key, flow) for key, flow in taken.items()}
            try:
                silent = await self._jobs.add_flows([*samples.values()])
            except CONCERNS_ALL:
                self._flows = _joined(taken, self._flows)
                raise
            kept = {key: taken[key] for key, sample in samples.items() if sample in silent}
            self._flows = _joined(kept, self._flows)


class _Flow:
    """The ends and durations of one kind in one minute."""

    __slots__ = ("delay", "ends", "processing", "total")

    def __init__(self) -> None:
        self.ends: defaultdict[str, int] = defaultdict(int)
        self.delay: defaultdict[int, int] = defaultdict(int)
        self.processing: defaultdict[int, int] = defaultdict(int)
        self.total: defaultdict[int, int] = defaultdict(int)

    def add(self, other: "_Flow") -> None:
        for name, count in other.ends.items():
            self.ends[name] += count
        for into, added in (
            (self.delay, other.delay),
            (self.processing, other.processing),
            (self.total, other.total),
        ):
            for bucket, count in added.items():
                into[bucket] += count


def _joined(older: dict[_Key, _Flow], newer: dict[_Key, _Flow]) -> dict[_Key, _Flow]:
    """Return both together, the older first."""
    for key, flow in newer.items():
        if key in older:
            older[key].add(flow)
        else:
            older[key] = flow
    return older


def _make_room(flows: dict[_Key, _Flow], capacity: int) -> None:
    while len(flows) > capacity:
        del flows[next(iter(flows))]


def _latencies(taken: dict[_Key, _Flow]) -> list[LatencySample]:
    """Return the durations of all kinds of a queue together."""
    of_queue: defaultdict[tuple[str, int], _Flow] = defaultdict(_Flow)
    for (queue, _, minute), flow in taken.items():
        of_queue[queue, minute].add(flow)
    return [
        LatencySample(
            queue=queue,
            minute=minute_start(minute * _MINUTE_US),
            processing=Histogram(flow.processing),
            total=Histogram(flow.total),
        )
        for (queue, minute), flow in of_queue.items()
    ]


def _flow_sample(key: _Key, flow: _Flow) -> FlowSample:
    queue, kind, minute = key
    return FlowSample(
        queue=queue,
        kind=kind,
        minute=minute_start(minute * _MINUTE_US),
        counts={name: count for name, count in flow.ends.items() if name},
        delay=Histogram(flow.delay),
        processing=Histogram(flow.processing),
        total=Histogram(flow.total),
    )


def minute_start(time_us: int) -> datetime:
    """Return the start of the minute in which ``time_us`` lies."""
    return from_us(time_us // _MINUTE_US * _MINUTE_US)
