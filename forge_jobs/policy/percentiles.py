"""Percentiles of durations from logarithmic buckets.

Bucket 0 holds what is below a microsecond. From there each bucket is 10 % wider than the one
before. The answer for a duration is its bucket's geometric middle, so at most 4.9 % off, for
any duration from a microsecond to 30 years. Adding two histograms adds their counts: the
order of adding, and how the samples were spread over pods, change nothing.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from forge_jobs.model.metrics import Histogram

_SMALLEST = 1e-6
_RATIO = 1.1
_BUCKETS = 362
# A table rather than a logarithm at each sample: the bounds of two neighbours are the same
# float, and a duration that equals one falls on the same side everywhere.
_BOUNDS = tuple(_SMALLEST * _RATIO**index for index in range(_BUCKETS))


def bucket_of(seconds: float) -> int:
    """The bucket of a duration. Negative ones and NaN count as zero, huge ones as the last."""
    return bisect_right(_BOUNDS, seconds) if seconds >= _SMALLEST else 0


def add(histogram: Histogram, other: Histogram) -> Histogram:
    """Both together."""
    counts = dict(histogram.counts)
    for index, count in other.counts.items():
        counts[index] = counts.get(index, 0) + count
    return Histogram(counts=counts)


def percentile(histogram: Histogram, q: float) -> float | None:
    """The nearest-rank ``q``-quantile in seconds, within 5 %. None when there is no sample.

    :param q: from 0 (the smallest) to 1 (the largest): 0.95 for p95
    :raises ValueError: ``q`` is outside
    """
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"q must be from 0 to 1, not {q}")
    total = sum(histogram.counts.values())
    rank = max(math.ceil(q * total), 1)
    for index in sorted(histogram.counts):
        rank -= histogram.counts[index]
        if rank <= 0 and total > 0:
            return _middle(index)
    return None


def _middle(index: int) -> float:
    if index <= 0:
        return 0.0
    return _BOUNDS[min(index, _BUCKETS) - 1] * math.sqrt(_RATIO)


def cumulative(histogram: Histogram, edges: Sequence[int]) -> list[int]:
    """How many durations are below the upper bound of each bucket in ``edges``. Exact."""
    counts = histogram.counts
    return [sum(count for index, count in counts.items() if index <= edge) for edge in edges]


def upper_bound(index: int) -> float:
    """The seconds below which a duration of this bucket, or of one before, is."""
    return _BOUNDS[index]


def total_seconds(histogram: Histogram) -> float:
    """The sum of all durations, of the middles of their buckets: at most 4.9 % off."""
    return sum(count * _middle(index) for index, count in histogram.counts.items())


class Moments(NamedTuple):
    """The first two moments of durations.

    :ivar samples: how many durations
    :ivar mean: seconds
    :ivar scv: squared coefficient of variation: variance over squared mean. 0 for a constant, 1 for
        an exponential distribution, 0 where the mean is zero
    """

    samples: int
    mean: float
    scv: float


def moments(histogram: Histogram) -> Moments | None:
    """The moments of a histogram, of the middles of its buckets. None when there is no sample."""
    total = sum(histogram.counts.values())
    if total <= 0:
        return None
    mean = sum(count * _middle(index) for index, count in histogram.counts.items()) / total
    if mean <= 0:
        return Moments(total, 0.0, 0.0)
    squares = sum(count * _middle(index) ** 2 for index, count in histogram.counts.items()) / total
    return Moments(total, mean, max(squares / mean**2 - 1, 0.0))


def count_within(histogram: Histogram, seconds: float) -> float:
    """How many durations are at most ``seconds`` long.

    Of the bucket that ``seconds`` cuts, the part below counts, as if the durations in there were
    spread evenly.
    """
    cut = bucket_of(seconds)
    within = float(sum(count for index, count in histogram.counts.items() if index < cut))
    in_cut = histogram.counts.get(cut, 0)
    if cut == 0 or cut >= _BUCKETS:
        return within + in_cut
    low = _BOUNDS[cut - 1]
    return within + in_cut * (seconds - low) / (_BOUNDS[cut] - low)
