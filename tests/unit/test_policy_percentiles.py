"""Percentiles from logarithmic buckets: how exact, and that merging loses nothing."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.model.metrics import Histogram
from forge_jobs.policy.percentiles import (
    add,
    bucket_of,
    percentile,
)

SECONDS = st.floats(1e-6, 8e8)
SAMPLES = st.lists(SECONDS, max_size=60)
QUANTILES = st.floats(0, 1)


def histogram(samples: list[float]) -> Histogram:
    return Histogram(counts=Counter(bucket_of(each) for each in samples))


@pytest.mark.parametrize("nothing", [0.0, -1.0, -math.inf, math.nan, 9e-7])
def test_what_is_no_duration_counts_as_zero(nothing: float) -> None:
    assert bucket_of(nothing) == 0
    assert percentile(histogram([nothing]), 0.5) == 0.0


def test_the_longest_duration_has_a_bucket() -> None:
    assert (percentile(histogram([math.inf]), 1) or 0) > 9e8


@given(SAMPLES.filter(bool), QUANTILES)
def test_a_percentile_is_within_five_percent_of_the_nearest_rank(
    samples: list[float], q: float
) -> None:
    exact = sorted(samples)[max(math.ceil(q * len(samples)), 1) - 1]

    estimate = percentile(histogram(samples), q)

    assert estimate == pytest.approx(exact, rel=0.05)


@given(SAMPLES.filter(bool), QUANTILES, QUANTILES)
def test_a_higher_percentile_is_never_lower(samples: list[float], one: float, two: float) -> None:
    low, high = (percentile(histogram(samples), q) for q in sorted((one, two)))

    assert low is not None
    assert high is not None
    assert low <= high


@given(SAMPLES, SAMPLES, SAMPLES)
def test_adding_gives_the_same_in_any_order_and_grouping(
    one: list[float], two: list[float], three: list[float]
) -> None:
    together = histogram(one + two + three)
    a, b, c = histogram(one), histogram(two), histogram(three)

    assert add(add(a, b), c) == together
    assert add(a, add(c, b)) == together
    assert add(histogram([]), together) == together
    assert sum(together.counts.values()) == len(one + two + three)


def test_adding_leaves_its_inputs_alone() -> None:
    one, two = histogram([1.0]), histogram([1.0, 2.0])

    add(one, two)

    assert (one, two) == (histogram([1.0]), histogram([1.0, 2.0]))


def test_without_samples_there_is_no_percentile() -> None:
    assert percentile(Histogram({}), 0.5) is None
    assert percentile(Histogram({4: 0}), 0.5) is None


@pytest.mark.parametrize("q", [-0.1, 1.1, 50, math.nan])
def test_a_quantile_is_from_zero_to_one(q: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        percentile(histogram([1.0]), q)


def test_a_bucket_of_a_later_version_is_read_as_the_last() -> None:
    assert percentile(Histogram({10_000: 1}), 0.5) == percentile(Histogram({362: 1}), 0.5)
