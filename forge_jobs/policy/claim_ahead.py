"""The number of claims to ask for and to hold beyond the free workers, and the measured pace."""

import math
from collections import deque
from collections.abc import Sequence
from datetime import timedelta

from forge_jobs.model.jobs import ClaimedJob
from forge_jobs.model.transitions import CLAIM_BYTES, Demand

MAX_CLAIMS_PER_CALL = 1_000

_MOST_HALVINGS = 10
_CAREFUL_ANSWERS = 8

_HALF_LIFE, _STEP = 0.1, 0.01

_CALLS = 8
_LONGEST_TRIP = 1.0
_ZERO = timedelta(0)


class Pace:
    """How long runs take of late. One that ended 0.1 s before another counts half as much.

    Weighed by time and not by number: while the event loop is busy with a large reply, the few
    runs of that moment look slow, and must not outweigh the hundreds beside them.
    """

    def __init__(self) -> None:
        self._runs = self._seconds = self._weighed_at = 0.0

    def record(self, seconds: float, now: float) -> None:
        """Count a run that took ``seconds``.

        :param now: ``Clock.elapsed``
        """
        passed = now - self._weighed_at
        if passed >= _STEP:
            weight = 0.5 ** (passed / _HALF_LIFE)
            self._runs *= weight
            self._seconds *= weight
            self._weighed_at = now
        self._runs += 1
        self._seconds += seconds

    @property
    def mean(self) -> float | None:
        """Seconds of a run. None while nothing was measured."""
        return self._seconds / self._runs if self._runs else None


class Trip:
    """How long the way to the store and back takes: the shortest of the last calls.

    The shortest, because a call that waits for a lock or brings a thousand jobs takes longer, and
    claims held ahead make neither quicker.
    """

    def __init__(self) -> None:
        self._calls: deque[float] = deque(maxlen=_CALLS)
        self._two = _ZERO

    def record(self, seconds: float) -> None:
        """Count a call that was answered after ``seconds``."""
        self._calls.append(seconds)
        self._two = timedelta(seconds=2 * min(*self._calls, _LONGEST_TRIP))

    def horizon(self, claim_ahead: timedelta) -> timedelta:
        """How much work to hold ahead where the queue has enough: ``claim_ahead``, or two trips.

        One call is under way at a time. Its jobs must last until the next call is back, which
        starts when the first is back, and asks for the jobs that were missing then.
        """
        return self._two if self._two > claim_ahead > _ZERO else claim_ahead


class Appetite:
    """The part of the possible demand that a queue asks for in one call.

    A reply that is too large for the line to the store never arrives. So a call without an
    answer halves the next request, in jobs and in bytes. An answer that was as large as possible
    doubles the request. A smaller answer says nothing of what the line lets pass: all jobs of a
    queue may be claimed by replies that were lost. From the size of the lost reply on, doubling
    takes several full answers, as TCP feels its way after a loss (RFC 5681, 3.1).
    """

    def __init__(self) -> None:
        self.max_bytes = CLAIM_BYTES
        """How many bytes the payloads of the jobs may have."""
        self._halvings = self._careful_from = self._full_answers = 0
        self._is_failing = False

    def jobs(self, wanted: int) -> int:
        """How many of the ``wanted`` jobs to ask for, at least one."""
        return max(1, wanted >> self._halvings)

    def unanswered(self) -> None:
        """Count a call that got no answer."""
        if not self._is_failing:
            self._careful_from = self._halvings + 1
        self._is_failing, self._full_answers = True, 0
        self._halvings = min(self._halvings + 1, _MOST_HALVINGS)
        self.max_bytes = CLAIM_BYTES >> self._halvings

    def answered(self, claimed: Sequence[ClaimedJob], demand: Demand) -> None:
        """Count an answer to ``demand``."""
        if not self._halvings or not _fills(claimed, demand):
            return
        self._is_failing = False
        self._full_answers += 1
        if self._halvings > self._careful_from or self._full_answers >= _CAREFUL_ANSWERS:
            self._halvings -= 1
            self.max_bytes = CLAIM_BYTES >> self._halvings
            self._full_answers = 0


def _fills(claimed: Sequence[ClaimedJob], demand: Demand) -> bool:
    """True when there are as many jobs as asked for, or half of the bytes."""
    if len(claimed) >= demand.limit:
        return True
    return 2 * sum(len(job.payload.encode()) for job in claimed) >= demand.max_bytes


def ahead_limit(free: int, workers: int, mean_seconds: float | None, horizon: timedelta) -> int:
    """How many claims to hold ahead of ``workers``: what they finish within ``horizon``.

    Zero while the pace is unknown, when jobs take longer than the horizon lasts for all the
    workers together, and when the horizon is zero. With the free workers' own claims it
    stays within what one claim call may ask for.

    :param free: workers without a job, whose claims come first
    :param workers: all workers of the queue on this pod
    :param mean_seconds: measured duration of a run, None when nothing was measured yet
    """
    if mean_seconds is None or math.isnan(mean_seconds) or workers < 1:
        return 0
    room = max(MAX_CLAIMS_PER_CALL - max(free, 0), 0)
    finished = workers * max(horizon.total_seconds(), 0.0)
    # Compared as products, so that a mean of zero divides nothing.
    if finished >= room * mean_seconds:
        return room if finished > 0 else 0
    return int(finished / mean_seconds)
