"""Claim cursors: where the first claimable job of a queue stands, behind many dead rows.

A claimed job leaves an entry behind in the index that claims follow. As long as an old snapshot of
another session might see the row, no vacuum and no scan may remove the entry, and each claim passes
all of them. So a claim that has passed many entries leaves a cursor, from which the next claims
begin for a while.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from forge_jobs.storage.sql.hot.claim import EARLIEST

MANY = 1_000
"""A cursor is worth keeping when a claim passed so many more entries than it asked for."""

FOR_S = 1.0
"""Seconds after which a claim begins at the front of the queue again."""


class Place(NamedTuple):
    """The place of a job in its queue, except for other jobs of the same microsecond."""

    level: int
    time: int


EVERYTHING = Place(-(2**31), EARLIEST)


class _ClaimCursor(NamedTuple):
    place: Place
    until: float


class ClaimCursors:
    """The claim cursors of one process, by queue.

    A job that comes to stand before the cursor (because it is of a higher priority, was given back,
    or became visible late) is claimed after at most :data:`FOR_S`, and sooner when the queue gives
    less than was asked for. A queue with only live jobs in front has no cursor, and its jobs are
    claimed strictly in order.
    """

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._cursors: dict[str, _ClaimCursor] = {}

    def of(self, queue: str) -> Place:
        """Return the place from which to look for jobs."""
        cursor = self._cursors.get(queue)
        if cursor is None or self._elapsed() >= cursor.until:
            return EVERYTHING
        return cursor.place

    def note(
        self, queue: str, start: Place, first: Place | None, *, walked: int, asked: int, got: int
    ) -> bool:
        """Learn from a claim. False when jobs before its ``start`` may have been left out.

        :param first: the place of the first claimed job
        :param walked: index entries that were passed
        """
        if not asked:
            return True
        now, cursor = self._elapsed(), self._cursors.pop(queue, None)
        if got < asked or first is None:
            return start == EVERYTHING
        if cursor is not None and now < cursor.until and cursor.place != start:
            # The cursor is that of a claim at the same time, which may have found earlier jobs.
            first = min(first, cursor.place)
        if start == EVERYTHING:
            if walked - asked > MANY:
                self._cursors[queue] = _ClaimCursor(first, now + FOR_S)
        elif cursor is not None:
            self._cursors[queue] = _ClaimCursor(first, cursor.until)
        return True
