"""Pauses between tries, and which failures of an outage are logged."""

import random

import pytest

from forge_jobs.outages import Outage, Pauses


class Greatest(random.Random):
    """Draws the greatest number."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Least(random.Random):
    """Draws the least number."""

    def uniform(self, a: float, b: float) -> float:
        return a


def test_pauses_double_from_the_first_to_the_longest() -> None:
    pauses = Pauses(0.05, 1.0)
    assert [pauses.at_most(failures) for failures in range(1, 8)] == pytest.approx(
        [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    )
    assert pauses.at_most(10**6) == 1.0


@pytest.mark.parametrize(("jitter", "least"), [(0.5, 0.1), (1, 0.0), (0, 0.2)])
def test_jitter_is_the_part_of_a_pause_that_is_drawn(jitter: float, least: float) -> None:
    pauses = Pauses(0.05, 1.0, jitter=jitter)
    assert pauses.after(3, Least()) == pytest.approx(least)
    assert pauses.after(3, Greatest()) == pytest.approx(0.2)


def test_each_cause_is_logged_once_until_the_outage_is_over() -> None:
    outage = Outage()
    assert [outage.is_new(cause) for cause in "abab"] == [True, True, False, False]
    assert outage.is_over()
    assert not outage.is_over()
    assert outage.is_new("a")


def test_an_outage_of_very_many_causes_is_still_one() -> None:
    outage = Outage()
    assert all(outage.is_new(cause) for cause in range(1000))
    assert not outage.is_new(999)
    assert len(outage._causes) <= 100
    assert outage.is_over()
