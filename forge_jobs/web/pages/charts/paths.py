"""Paths for SVG: lines from step to step, in whole numbers, and sparklines.

A page has up to 50 of them with up to 100 points each. So the box of a drawing is as wide as there
are steps, each point is said by the way from the point before, and what goes straight on is one
piece.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

_LOW, _HIGH, _BELOW = 46, 4, 60
"""Of a sparkline in a box of 48: where 0 is, where the greatest value is, and a place outside."""


class Curve(Struct, frozen=True):
    """A sparkline in a box that is 48 high.

    :param width: of the box
    :param path: of the line. The sides and the ground are outside of the box
    """

    width: int
    path: str


def curve(values: Iterable[float]) -> Curve | None:
    """Return a sparkline. None without two values."""
    points = list(values)
    if len(points) < 2:
        return None
    top = max(*points, 1)
    places = [round(_LOW - (_LOW - _HIGH) * value / top) for value in points]
    path = f"M-1 {_BELOW}V{places[0]}h1{line_of(places)}h1V{_BELOW}"
    return Curve(len(points) - 1, path)


def path_of(places: Sequence[int | None]) -> str:
    """Return the path of a line with gaps: a place by step, None where nothing is known."""
    parts: list[str] = []
    begin = 0
    for index, place in enumerate([*places, None]):
        if place is not None:
            continue
        known = [each for each in places[begin:index] if each is not None]
        if known:
            # A point alone would have no length, and not be seen.
            parts.append(f"M{begin} {known[0]}{line_of(known) or 'h.2'}")
        begin = index + 1
    return "".join(parts)


def line_of(places: Sequence[int]) -> str:
    """Return the way over places that are a step apart, from the first. "" for one place."""
    parts: list[str] = []
    steps = 0
    for index, (before, after) in enumerate(pairwise(places), start=2):
        steps += 1
        goes_on = before == after and index < len(places) and places[index] == after
        if goes_on:
            continue
        down = after - before
        parts.append(f"{steps}{'' if down < 0 else ' '}{down}")
        steps = 0
    return f"l{' '.join(parts)}" if parts else ""
