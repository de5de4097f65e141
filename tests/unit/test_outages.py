"""Pauses between tries, and which failures of an outage are logged."""

import random
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.outages import Line, Outage, Outages, Pauses


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


OWN, OF_OTHERS, NONE = Line.OWN, Line.OF_OTHERS, Line.NONE
NAMES = "abcdefgh"


def test_of_many_that_fail_alike_the_first_are_named_and_the_rest_together() -> None:
    outages = Outages(ManualClock().elapsed)
    assert [outages.begins(each, "gone") for each in NAMES] == [*[OWN] * 5, OF_OTHERS, NONE, NONE]
    assert [outages.begins(each, "refused") for each in "ab"] == [OWN, OWN]
    assert [outages.ends(each) for each in NAMES] == [*[OWN] * 5, NONE, NONE, OF_OTHERS]
    assert [outages.ends(each) for each in NAMES] == [NONE] * 8


def test_one_that_fails_again_and_again_is_named_each_time() -> None:
    outages = Outages(ManualClock().elapsed)
    for _ in range(10):
        assert outages.begins("a", "gone") is OWN
        assert outages.ends("a") is OWN


def test_a_minute_later_others_are_named() -> None:
    clock = ManualClock()
    outages = Outages(clock.elapsed)
    for name in NAMES:
        outages.begins(name, "gone")
    clock.advance(timedelta(seconds=59))
    assert outages.begins("later", "gone") is NONE
    clock.advance(timedelta(seconds=1))
    assert outages.begins("later", "gone") is OWN


def test_the_last_of_the_others_may_have_been_named_since() -> None:
    outages = Outages(ManualClock().elapsed)
    for name in NAMES[:6]:
        outages.begins(name, "gone")
    assert outages.begins("f", "refused") is OWN
    assert [outages.ends(each) for each in "fabcde"] == [OWN] * 6


def test_causes_without_end_are_not_kept() -> None:
    outages = Outages(ManualClock().elapsed)
    assert {outages.begins("a", cause) for cause in range(1000)} == {OWN}
    assert len(outages._told) <= 100
