"""Failures, counted per group and minute until the store has taken the counts."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from forge_jobs.clock import Clock, SystemClock, from_us
from forge_jobs.errors import CONCERNS_ALL
from forge_jobs.model.failures import MOST_SAMPLES, FailureSample
from forge_jobs.model.failures.fingerprints import plain_message
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim, JobStatus
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.protocols import JobStore

FAILURE_CAPACITY = 5_000
"""Groups and minutes kept while the store is down: each takes about a kilobyte."""

FLUSH_BATCH = 200

_MINUTE_US = 60_000_000
_Key = tuple[str, str, int]
"""Queue, group and minute."""


@dataclass
class _Met:
    """The failures of one group in one minute."""

    kind: str
    type: str
    message: str
    first_at: int
    last_at: int = 0
    retried: int = 0
    dead: int = 0
    jobs: deque[JobId] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))


class FailureRecorder:
    """Counts failures by the groups that their records name.

    Not exact: a killed process loses the counts of its buffer, and a flush whose reply was lost
    counts twice. For use on one event loop.

    :param version: of the pod
    :param clock: shows the store's time, whose minutes count
    :param capacity: groups and minutes kept at most. The oldest are dropped
    """

    def __init__(
        self,
        jobs: JobStore,
        *,
        version: str = "",
        clock: Clock | None = None,
        capacity: int = FAILURE_CAPACITY,
    ) -> None:
        self._jobs = jobs
        self._version = version
        self._clock = clock or SystemClock()
        self._capacity = capacity
        # Insertion order is age, as of latencies.
        self._met: dict[_Key, _Met] = {}

    def __len__(self) -> int:
        return len(self._met)

    def record(self, claim: Claim, kind: str, transition: Transition) -> None:
        """Count the end of a run, when the end is a failure."""
        error = transition.error
        if error is None or not error.error_group:
            return
        now = self._clock.time_us()
        key = (claim.queue, error.error_group, now // _MINUTE_US)
        met = self._met.get(key)
        if met is None:
            message = plain_message(error.message)
            met = self._met[key] = _Met(kind, error.type, message, first_at=now)
            while len(self._met) > self._capacity:
                del self._met[next(iter(self._met))]
        met.last_at = max(met.last_at, now)
        if transition.status is JobStatus.DEAD:
            met.dead += 1
        else:
            met.retried += 1
        met.jobs.append(claim.job_id)

    async def flush_once(self) -> int:
        """Write all counts so far, and return how many groups and minutes were written.

        Counts are kept for the next flush when the store, or the part with the queue, is
        unreachable. A batch that the store refuses for good is dropped.

        :raises StorageError: the store did not take the counts
        """
        written = 0
        left: dict[_Key, _Met] = {}
        try:
            while keys := list(self._met)[:FLUSH_BATCH]:
                taken = {key: self._met.pop(key) for key in keys}
                samples = {key: self._sample(key, met) for key, met in taken.items()}
                try:
                    silent = {*await self._jobs.add_failures([*samples.values()])}
                except CONCERNS_ALL:
                    left |= taken
                    raise
                kept = {key: taken[key] for key, sample in samples.items() if sample in silent}
                left |= kept
                written += len(taken) - len(kept)
        finally:
            self._put_back(left.items())
        return written

    def _sample(self, key: _Key, met: _Met) -> FailureSample:
        queue, group, minute = key
        return FailureSample(
            queue=queue,
            group=group,
            kind=met.kind,
            type=met.type,
            message=met.message,
            minute=from_us(minute * _MINUTE_US),
            first_at=from_us(met.first_at),
            last_at=from_us(met.last_at),
            retried=met.retried,
            dead=met.dead,
            jobs=tuple(met.jobs),
            version=self._version,
        )

    def _put_back(self, left: Iterable[tuple[_Key, _Met]]) -> None:
        newer, self._met = self._met, {}
        for older in left:
            self._met[older[0]] = older[1]
        for key, met in newer.items():
            older_met = self._met.setdefault(key, met)
            if older_met is not met:
                older_met.last_at = max(older_met.last_at, met.last_at)
                older_met.retried += met.retried
                older_met.dead += met.dead
                older_met.jobs.extend(met.jobs)
        while len(self._met) > self._capacity:
            del self._met[next(iter(self._met))]
