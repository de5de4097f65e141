"""The rule by which a run takes far longer than runs of its kind do."""

from datetime import timedelta

from forge_jobs.model.metrics import Histogram
from forge_jobs.policy.percentiles import percentile

LONG = 10
"""A long run takes ten times what 99 of 100 runs of the kind take."""

SHORTEST = timedelta(minutes=1)
"""No run below a minute is a long one."""

FEWEST_RUNS = 20
"""Runs of a kind in a day from which on the longest of them say what is usual."""


def usual_of(runs: Histogram) -> timedelta | None:
    """Return the time within which 99 of 100 runs end. None: too few have ended."""
    longest = percentile(runs, 0.99)
    if longest is None or sum(runs.counts.values()) < FEWEST_RUNS:
        return None
    return timedelta(seconds=longest)


def long_from(usual: timedelta) -> timedelta:
    """Return the time from which on a run is a long one."""
    return max(LONG * usual, SHORTEST)
