"""Where the jobs of a queue begin, while many dead rows stand before them.

A claimed job leaves an entry behind in the index that claims follow. As long as somebody's old
snapshot might see the row, no vacuum and no scan may take the entry away, and each claim passes
them all. So whoever has just passed many begins there for a while, and not at the beginning.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

MANY = 1_000
"""So many entries more than a claim asks for are worth it."""

FOR_S = 1.0
"""After this long a claim looks at everything again."""


class Place(NamedTuple):
    """Where a job stands in its queue, but for others of the same microsecond."""

    level: int
    time: int


EVERYTHING = Place(-(2**31), -(2**63))


class _Front(NamedTuple):
    place: Place
    until: float


class Fronts:
    """One process's, by queue.

    A job that comes to stand before the front (because it is of a higher priority, was given back,
    or became visible late) is claimed after at most :data:`FOR_S`, and sooner when the queue gives
    less than was asked for. Where nothing but live jobs stands in front there is no front, and
    jobs are claimed strictly in order.
    """

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._fronts: dict[str, _Front] = {}

    def of(self, queue: str) -> Place:
        """From where to look for jobs."""
        front = self._fronts.get(queue)
        if front is None or self._elapsed() >= front.until:
            return EVERYTHING
        return front.place

    def note(
        self, queue: str, start: Place, first: Place | None, *, walked: int, asked: int, got: int
    ) -> bool:
        """Learn from a claim; False when jobs before its ``start`` may have been left out.

        :param first: where the first claimed job stood
        :param walked: entries that were passed
        """
        if not asked:
            return True
        front = self._fronts.pop(queue, None)
        if got < asked or first is None:
            return start == EVERYTHING
        if start == EVERYTHING:
            if walked - asked > MANY:
                self._fronts[queue] = _Front(first, self._elapsed() + FOR_S)
        elif front is not None:
            self._fronts[queue] = _Front(first, front.until)
        return True
