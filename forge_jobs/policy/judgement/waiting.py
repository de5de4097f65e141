"""How long jobs wait at a steady load: the queue M/G/c in closed form.

Sources: the probability to wait is Erlang's C formula, computed by the recursion of his B formula
(A. K. Erlang, 1917, and R. B. Cooper, Introduction to Queueing Theory, 1981, section 3.4). The mean
wait is that of M/M/c times (1 + scv) / 2 (A. M. Lee and P. A. Longton, 1959, and as Allen and
Cunneen's form in A. O. Allen, Probability, Statistics and Queueing Theory, 1990, section 5.3). The
wait of those who wait is taken as exponential, which is exact for M/M/c and for heavy traffic
(J. F. C. Kingman, 1962). With a long tail of run times the wait differs from this by up to a half
in the simulations of the tests: two moments do not say all of such a tail.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from forge_jobs.policy.percentiles import Moments


class SteadyWait(NamedTuple):
    """The wait of a job from due to its start.

    :ivar probability: that a job waits at all
    :ivar mean: seconds, over all jobs
    """

    probability: float
    mean: float

    def quantile(self, q: float) -> float:
        """The ``q``-quantile in seconds, ``q`` below 1."""
        if self.probability <= 1 - q or self.mean <= 0:
            return 0.0
        return math.log(self.probability / (1 - q)) * self.mean / self.probability

    def share_within(self, seconds: float) -> float:
        """The share of jobs that start within ``seconds``."""
        if self.probability <= 0 or self.mean <= 0:
            return 1.0
        return 1 - self.probability * math.exp(-seconds * self.probability / self.mean)


def steady_wait(rate: float, runs: Moments, workers: int) -> SteadyWait | None:
    """The wait at a steady load. None when the workers do not keep up.

    :param rate: runs that fall due in a second
    """
    load = rate * runs.mean
    if workers <= load:
        return None
    blocked = 1.0
    for count in range(1, workers + 1):
        blocked = _next_blocked(blocked, load, count)
    return _wait(blocked, load, workers, runs)


def growing_crews(rate: float, runs: Moments) -> Iterator[tuple[int, SteadyWait]]:
    """Return the numbers of workers that keep up, from the least on, each with the wait."""
    load = rate * runs.mean
    blocked, count = 1.0, 0
    while True:
        count += 1
        blocked = _next_blocked(blocked, load, count)
        if count > load:
            yield count, _wait(blocked, load, count, runs)


def _next_blocked(blocked: float, load: float, count: int) -> float:
    """Erlang's B for one more worker."""
    return load * blocked / (count + load * blocked)


def _wait(blocked: float, load: float, workers: int, runs: Moments) -> SteadyWait:
    probability = blocked / (1 - load / workers * (1 - blocked))
    mean = probability * runs.mean / (workers - load) * (1 + runs.scv) / 2
    return SteadyWait(probability, mean)
