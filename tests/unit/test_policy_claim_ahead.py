"""The number of claims held beyond the free workers of a pod, and the pace of the pod."""

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.policy.claim_ahead import MAX_CLAIMS_PER_CALL, Pace, Trip, ahead_limit

HORIZON = timedelta(milliseconds=50)


def test_it_is_what_the_workers_finish_within_the_horizon() -> None:
    assert ahead_limit(0, 10, 0.005, HORIZON) == 100
    assert ahead_limit(0, 1, 0.010, HORIZON) == 5


def test_long_jobs_are_not_held_ahead() -> None:
    assert ahead_limit(0, 10, 0.501, HORIZON) == 0
    assert ahead_limit(0, 10, 3600.0, HORIZON) == 0
    assert ahead_limit(0, 10, math.inf, HORIZON) == 0


@pytest.mark.parametrize("mean", [None, math.nan])
def test_nothing_is_held_while_the_pace_is_unknown(mean: float | None) -> None:
    assert ahead_limit(3, 10, mean, HORIZON) == 0


@pytest.mark.parametrize("mean", [0.0, 1e-300, 0.001])
def test_a_horizon_of_zero_turns_it_off(mean: float) -> None:
    assert ahead_limit(0, 10, mean, timedelta(0)) == 0
    assert ahead_limit(0, 10, mean, timedelta(seconds=-1)) == 0


def test_jobs_that_take_no_time_are_held_up_to_one_call() -> None:
    assert ahead_limit(0, 10, 0.0, HORIZON) == MAX_CLAIMS_PER_CALL
    assert ahead_limit(4, 10, 0.0, HORIZON) == MAX_CLAIMS_PER_CALL - 4


def test_no_workers_hold_nothing() -> None:
    assert ahead_limit(0, 0, 0.0, HORIZON) == 0


@given(
    st.integers(0, 2000),
    st.integers(0, 2000),
    st.floats(0, 1e6),
    st.timedeltas(timedelta(0), timedelta(hours=1)),
)
def test_with_the_free_workers_it_stays_within_one_call(
    free: int, workers: int, mean: float, horizon: timedelta
) -> None:
    ahead = ahead_limit(free, workers, mean, horizon)

    assert ahead >= 0
    assert ahead == 0 or ahead + free <= MAX_CLAIMS_PER_CALL
    assert ahead * mean <= workers * horizon.total_seconds() * (1 + 1e-9)


def test_the_pace_is_unknown_before_the_first_run() -> None:
    assert Pace().mean is None


def test_the_pace_is_the_mean_of_runs_that_end_together() -> None:
    pace = Pace()
    pace.record(0.002, 5.0)
    pace.record(0.004, 5.0)
    assert pace.mean == pytest.approx(0.003)


def test_a_pause_does_not_make_the_pace_unknown() -> None:
    pace = Pace()
    pace.record(0.002, 5.0)
    assert pace.mean == pytest.approx(0.002)
    pace.record(0.5, 1e9)
    assert pace.mean == pytest.approx(0.5)


def test_a_moment_in_which_all_workers_look_slow_weighs_as_long_as_it_lasts() -> None:
    pace = Pace()
    for millisecond in range(100):
        for _ in range(10):
            pace.record(0.001, millisecond / 1000)
    for _ in range(10):
        pace.record(0.020, 0.120)
    assert pace.mean is not None
    assert pace.mean < 0.0015


def test_jobs_that_take_longer_now_are_soon_what_counts() -> None:
    pace = Pace()
    for millisecond in range(100):
        for _ in range(10):
            pace.record(0.001, millisecond / 1000)
    for _ in range(10):
        pace.record(1.0, 1.1)
    assert pace.mean is not None
    assert pace.mean > 0.8


def trip(*seconds: float) -> Trip:
    measured = Trip()
    for each in seconds:
        measured.record(each)
    return measured


def test_the_horizon_is_the_setting_until_two_trips_are_longer() -> None:
    assert Trip().horizon(HORIZON) == HORIZON
    assert trip(0.025).horizon(HORIZON) == HORIZON
    assert trip(0.2).horizon(HORIZON) == timedelta(seconds=0.4)


def test_a_horizon_of_zero_stays_zero_however_far_the_store_is() -> None:
    assert trip(0.2).horizon(timedelta(0)) == timedelta(0)


def test_calls_that_waited_or_brought_much_make_no_store_far() -> None:
    assert trip(5.0, 0.002, 3.0, 0.4).horizon(HORIZON) == HORIZON


def test_a_store_that_has_become_far_is_far_after_eight_calls() -> None:
    assert trip(0.002, *[0.2] * 7).horizon(HORIZON) == HORIZON
    assert trip(0.002, *[0.2] * 8).horizon(HORIZON) == timedelta(seconds=0.4)


def test_a_trip_counts_for_a_second_at_most() -> None:
    assert trip(30.0).horizon(HORIZON) == timedelta(seconds=2)
