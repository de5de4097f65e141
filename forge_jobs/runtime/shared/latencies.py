"""Durations of jobs, counted per queue and minute until the store has taken the counts."""

from datetime import datetime

from forge_jobs.clock import Clock, SystemClock, from_us, to_us
from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import HostId
from forge_jobs.model.metrics import Histogram, LatencySample
from forge_jobs.policy.percentiles import bucket_of
from forge_jobs.storage.protocols import JobStore

LATENCY_CAPACITY = 10_000
"""Pairs of queue and minute kept while the store is down: a hundred queues for over an hour."""

FLUSH_BATCH = 500

_MINUTE_US = 60_000_000
_Counts = dict[int, int]


class LatencyRecorder:
    """Counts durations in logarithmic buckets. Cheap enough for every job.

    Not exact, unlike the counters: a killed process loses the counts of its buffer, and a flush
    whose reply was lost counts twice. For use on one event loop.

    :param clock: shows the store's time, whose minutes count
    :param capacity: pairs of queue and minute kept at most. The oldest are dropped
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
        self._counts: dict[tuple[str, int], tuple[_Counts, _Counts]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def record(self, queue: str, processing: float, due_at: float) -> None:
        """Count a run that ends now.

        :param processing: seconds from the handler's start to its end
        :param due_at: the store's time when the job was due, in seconds since the epoch
        """
        time_us = self._clock.time_us()
        total = max(time_us / 1_000_000 - due_at, processing)
        key = (queue, time_us // _MINUTE_US)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = ({}, {})
            self._make_room()
        of_processing, of_total = counts
        bucket = bucket_of(processing)
        of_processing[bucket] = of_processing.get(bucket, 0) + 1
        bucket = bucket_of(total)
        of_total[bucket] = of_total.get(bucket, 0) + 1

    async def flush_once(self) -> int:
        """Write all counts so far, and return how many pairs of queue and minute were written.

        Counts are kept for the next flush when the store, or the part with the queue, is
        unreachable.

        :raises StorageError: the store did not take the counts
        """
        written = 0
        left: dict[tuple[str, int], tuple[_Counts, _Counts]] = {}
        try:
            while keys := list(self._counts)[:FLUSH_BATCH]:
                taken = {key: self._counts.pop(key) for key in keys}
                samples = [_sample(key, counts) for key, counts in taken.items()]
                try:
                    silent = await self._jobs.add_latencies(self._host_id, samples)
                except Unavailable:
                    left |= taken
                    raise
                kept = {(each.queue, to_us(each.minute) // _MINUTE_US) for each in silent}
                left |= {key: taken[key] for key in kept}
                written += len(taken) - len(kept)
        finally:
            if left:
                self._put_back(left)
        return written

    def _put_back(self, taken: dict[tuple[str, int], tuple[_Counts, _Counts]]) -> None:
        newer = self._counts
        self._counts = taken
        for key, counts in newer.items():
            older = self._counts.setdefault(key, counts)
            if older is not counts:
                for into, added in zip(older, counts, strict=True):
                    for bucket, count in added.items():
                        into[bucket] = into.get(bucket, 0) + count
        self._make_room()

    def _make_room(self) -> None:
        while len(self._counts) > self._capacity:
            del self._counts[next(iter(self._counts))]


def _sample(key: tuple[str, int], counts: tuple[_Counts, _Counts]) -> LatencySample:
    queue, minute = key
    processing, total = counts
    return LatencySample(
        queue=queue,
        minute=minute_start(minute * _MINUTE_US),
        processing=Histogram(processing),
        total=Histogram(total),
    )


def minute_start(time_us: int) -> datetime:
    """Return the start of the minute in which ``time_us`` lies."""
    return from_us(time_us // _MINUTE_US * _MINUTE_US)
