"""The growth of a backlog, and which minutes are not rolled up, from series."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from forge_jobs.model.metrics import MINUTE, Histogram
from forge_jobs.model.series import Depth, SeriesStep
from forge_jobs.policy.judgement.growth import growth, rolled_up_to

NOW = datetime(2026, 11, 23, 14, 30, tzinfo=UTC)


def minutes(*depths: int | None, ended: int = 0, counts: Sequence[int] = ()) -> list[SeriesStep]:
    """Minutes up to the one before now."""
    first = NOW - len(depths) * MINUTE
    return [
        SeriesStep(
            at=first + number * MINUTE,
            length=MINUTE,
            processing=Histogram({3: ended} if ended else {}),
            counts={"enqueued": 1} if number in counts else {},
            depth=None if due is None else Depth(due=due),
        )
        for number, due in enumerate(depths)
    ]


def test_a_backlog_grows_since_the_first_minute_that_is_deeper_than_the_one_before() -> None:
    found = growth(minutes(9, 1, 2, 4, 7, ended=3), NOW)
    assert found is not None
    assert found.since == NOW - 3 * MINUTE
    assert (found.a_minute, found.ends, found.arrivals) == (2.0, 3.0, 5.0)


@pytest.mark.parametrize("depths", [(), (5,), (5, 5), (1, 2, 3, 3), (3, 2), (None, None)])
def test_what_is_no_growth(depths: tuple[int | None, ...]) -> None:
    assert growth(minutes(*depths), NOW) is None


def test_a_minute_or_two_without_a_depth_do_not_end_growth_and_more_do() -> None:
    for gap, since in ((1, 5), (2, 6), (3, 2)):
        found = growth(minutes(1, 2, 3, *[None] * gap, 4, 5), NOW)
        assert found is not None
        assert (NOW - found.since) // MINUTE == (since - 1 if gap == 3 else since), gap
    assert growth(minutes(1, 2, 3), NOW + timedelta(minutes=3)) is None


def test_minutes_are_behind_from_the_first_without_counts_after_the_newest_with() -> None:
    def behind(*counted: int, ended: int = 1) -> datetime | None:
        return rolled_up_to(minutes(0, 0, 0, 0, ended=ended, counts=counted))

    assert behind(0, 1) == NOW - 2 * MINUTE
    assert behind(0, 3) is None
    assert behind() == NOW - 4 * MINUTE
    assert behind(ended=0) is None
