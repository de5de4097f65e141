"""Objectives: their text, the share met, the budget that is left, and how fast it burns."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.errors import InvalidInput
from forge_jobs.model.metrics import Histogram
from forge_jobs.model.objectives import Objective, parse_objective
from forge_jobs.policy.judgement.objectives import (
    DAY,
    FAST_BURN,
    HOUR,
    MONTH,
    Delays,
    Standing,
    standing,
)
from forge_jobs.policy.percentiles import count_within, moments
from tests.support.simulated_queues import histogram

NOW = datetime(2026, 11, 23, 14, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
OBJECTIVE = Objective(0.95, timedelta(seconds=30))
IN_TIME, LATE = 1.0, 300.0


def minutes(ago: int, length: int, in_time: int, late: int = 0) -> Iterator[Delays]:
    """Minutes alike, the first one ``ago`` minutes before now."""
    delays = histogram([IN_TIME] * in_time + [LATE] * late)
    for at in range(ago, ago - length, -1):
        yield Delays(start=NOW - at * MINUTE, delays=delays)


def stands(*history: Delays, overdue: int = 0) -> Standing:
    return standing(OBJECTIVE, history, NOW, overdue=overdue)


def test_the_share_of_each_window_is_of_the_jobs_that_started_in_it() -> None:
    now = stands(*minutes(60, 60, 9, 1), *minutes(120, 60, 10))

    assert now.met[HOUR] == pytest.approx(0.9)
    assert now.met[DAY] == pytest.approx(0.95)
    assert now.met[MONTH] == pytest.approx(0.95)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 1.5])
def test_all_jobs_and_none_are_no_objective(share: float) -> None:
    with pytest.raises(InvalidInput, match="share"):
        Objective(share, MINUTE)


def test_without_jobs_nothing_is_met_or_missed() -> None:
    now = stands()

    assert set(now.met.values()) == {None}
    assert (now.budget_left, now.burn_short, now.burn_long) == (1.0, 0.0, 0.0)
    assert not now.is_burning


@pytest.mark.parametrize(("late", "left"), [(0, 1.0), (1, 0.8), (5, 0.0), (10, -1.0)])
def test_the_budget_is_what_may_be_late(late: int, left: float) -> None:
    assert stands(*minutes(90, 1, 100 - late, late)).budget_left == pytest.approx(left)


def test_the_burn_rate_is_the_late_share_over_the_spare_one() -> None:
    now = stands(*minutes(60, 55, 20), *minutes(5, 5, 10, 10))

    assert now.burn_short == pytest.approx(0.5 / 0.05)
    assert now.burn_long == pytest.approx((50 / 1200) / 0.05)


def test_it_burns_while_both_windows_say_so() -> None:
    spare = FAST_BURN * 0.05
    just = round(spare * 1_000)

    assert stands(*minutes(60, 60, 1_000 - just, just)).is_burning
    assert not stands(*minutes(60, 60, 1_001 - just, just - 1)).is_burning
    over = [*minutes(60, 55, 10, 90), *minutes(5, 5, 100)]
    assert not stands(*over).is_burning


def test_jobs_that_have_not_started_are_late() -> None:
    stuck = stands(*minutes(3_000, 60, 10), overdue=400)

    assert stuck.met[HOUR] == 0.0
    assert stuck.is_burning
    assert stuck.met[MONTH] == pytest.approx(0.6)


def test_a_window_cuts_an_hour_by_its_part() -> None:
    hours = [
        Delays(start=NOW - DAY - HOUR / 2, delays=histogram([LATE] * 20), length=HOUR),
        Delays(start=NOW - HOUR, delays=histogram([IN_TIME] * 10), length=HOUR),
    ]

    assert stands(*hours).met[DAY] == pytest.approx(0.5)


def test_the_minute_that_lasts_counts_whole() -> None:
    lasts = Delays(start=NOW - MINUTE / 2, delays=histogram([LATE] * 4))
    ahead = Delays(start=NOW + MINUTE / 2, delays=histogram([LATE] * 4))

    assert stands(lasts).met[HOUR] == 0.0
    assert stands(lasts, ahead, *minutes(30, 1, 8)).met[HOUR] == pytest.approx(0.5)
    assert stands(Delays(start=NOW + DAY, delays=histogram([LATE]))).met[HOUR] is None


def test_what_is_older_than_a_window_is_not_in_it() -> None:
    assert stands(*minutes(61, 1, 0, 5)).met[HOUR] is None
    assert stands(*minutes(60, 1, 0, 5)).met[HOUR] == 0.0


@given(
    st.lists(
        st.tuples(
            st.integers(-5, 60 * 24 * 40), st.integers(0, 50), st.integers(0, 50), st.booleans()
        ),
        max_size=40,
    ),
    st.integers(0, 100),
)
def test_every_share_is_a_share(parts: list[tuple[int, int, int, bool]], overdue: int) -> None:
    history = [
        Delays(
            start=NOW - ago * MINUTE,
            delays=histogram([IN_TIME] * good + [LATE] * bad),
            length=HOUR if is_hour else MINUTE,
        )
        for ago, good, bad, is_hour in parts
    ]

    now = stands(*history, overdue=overdue)

    assert all(share is None or 0 <= share <= 1 + 1e-9 for share in now.met.values())
    assert now.budget_left <= 1 + 1e-9
    assert now.burn_short >= -1e-9


@given(st.lists(st.floats(1e-6, 1e6), max_size=50), st.floats(1e-6, 1e6))
def test_counts_within_are_off_by_the_bucket_that_is_cut_at_most(
    samples: list[float], seconds: float
) -> None:
    counted = count_within(histogram(samples), seconds)

    assert sum(each <= seconds / 1.11 for each in samples) <= counted + 1e-9
    assert counted - 1e-9 <= sum(each <= seconds * 1.11 for each in samples)


def test_a_cut_bucket_counts_by_its_part() -> None:
    one = histogram([1.0] * 10)

    assert count_within(one, 0.5) == 0
    assert count_within(one, 2.0) == 10
    assert 0 < count_within(one, 1.0) < 10
    assert count_within(histogram([0.0, 0.0]), 0.0) == 2
    assert count_within(histogram([1e12]), 1e12) == 1


def test_moments_are_those_of_the_samples_within_a_bucket() -> None:
    found = moments(histogram([1.0] * 50 + [3.0] * 50))

    assert found is not None
    assert found.samples == 100
    assert found.mean == pytest.approx(2.0, rel=0.05)
    assert found.scv == pytest.approx(0.25, rel=0.1)
    assert moments(Histogram({})) is None
    assert moments(Histogram({0: 4})) == (4, 0.0, 0.0)


@given(
    st.builds(
        Objective,
        st.integers(1, 9_999).map(lambda n: n / 10_000),
        st.timedeltas(timedelta(microseconds=1), timedelta(days=400)),
    )
)
def test_an_objective_reads_as_itself(objective: Objective) -> None:
    assert parse_objective(str(objective)) == objective


@pytest.mark.parametrize(
    "text", ["95% within 30s", "95 % start within 30 s", " 95.0%  within 0.5m", "95 % within 30"]
)
def test_an_objective_is_read(text: str) -> None:
    assert parse_objective(text) == OBJECTIVE


@pytest.mark.parametrize(
    "text", ["", "30s", "95 within 30s", "100% within 30s", "0% within 30s", "95% within 0s",
             "95% within soon", "-5% within 30s", "95% in 30s", None]
)  # fmt: skip
def test_what_is_no_objective_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="give"):
        parse_objective(text)
