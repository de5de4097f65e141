"""Paths of charts: short, and through each value at its step."""

import re

from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.web.pages.charts.paths import curve, line_of, path_of

PLACES = st.lists(st.none() | st.integers(0, 240), max_size=60)


def drawn(path: str) -> dict[int, float]:
    """Return the places that a path goes through, by step, as a browser draws the path."""
    found: dict[int, float] = {}
    for begin, place, moves in re.findall(r"M(-?\d+) (\d+)(?:l([^Mh]*)|h\.2)", path):
        at, now = int(begin), float(place)
        found[at] = now
        numbers = [int(each) for each in re.findall(r"-?\d+", moves)]
        for steps, down in zip(numbers[::2], numbers[1::2], strict=True):
            assert steps == 1 or down == 0
            now += down
            found |= dict.fromkeys(range(at + 1, at + steps + 1), now)
            at += steps
    return found


@given(PLACES)
def test_a_path_goes_through_each_place_and_has_the_gaps(places: list[int | None]) -> None:
    known = {step: place for step, place in enumerate(places) if place is not None}
    assert drawn(path_of(places)) == known


def test_what_goes_straight_on_is_one_piece() -> None:
    assert line_of([5] * 90) == "l89 0"
    assert line_of([5, 5, 5, 3, 3, 9]) == "l2 0 1-2 1 0 1 6"
    assert line_of([5]) == ""
    assert path_of([None, 7, None, 1, 2]) == "M1 7h.2M3 1l1 1"


def test_a_sparkline_has_its_ground_outside_of_the_box() -> None:
    assert curve([1]) is None
    found = curve([0, 2, 4])
    assert found is not None
    assert (found.width, found.path) == (2, "M-1 60V46h1l1-21 1-21h1V60")
