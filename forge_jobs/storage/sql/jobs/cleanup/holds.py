"""The time for which a batch of retention may delay other transactions.

On SQLite a batch holds the one write lock from the first statement to the end of the commit. How
long a commit takes depends on the machine and on what was written, and is unknown before. The disk
is waited for when the lock is free.
"""

from collections import deque
from collections.abc import Callable

from forge_jobs.clock import SystemClock

_FIRST, _MOST = 32, 1000
"""Rows of the first portion of a batch, and of any."""

_SHORTEST_S = 0.001
"""Seconds for the statements of a batch, at least."""

_AIM = 0.6
"""The share of the longest hold to aim at: from one batch to the next the disk may become slower,
by half."""

_REMEMBERED = 20
"""How many last batches to remember: their slowest commit is expected again."""

_GROWTH = 1.25
"""A batch may be longer than the one before by this factor."""

_elapsed = SystemClock().elapsed


class Holds:
    """How long the statements of the next batch may take, learned from the batches so far.

    :param script_s: for the statements of a batch, at most
    :param most_s: for a batch with its commit
    """

    def __init__(self, script_s: float, most_s: float) -> None:
        self._longest_s = script_s
        self._aim_s = _AIM * most_s
        # The time of a commit is not known yet.
        self.script_s = script_s / 3
        self._batches = deque[tuple[float, float]](maxlen=_REMEMBERED)
        self._began = self._written = 0.0

    def begin(self) -> float:
        """Record that the batch has the lock from here on, and return the time."""
        self._began = self._written = _elapsed()
        return self._began

    def written(self) -> None:
        """Record that the statements are through and the commit comes."""
        self._written = _elapsed()

    def end(self) -> None:
        """Record that the batch is committed, and nothing is locked any more."""
        now = _elapsed()
        self._batches.append((max(self._written - self._began, 1e-6), now - self._written))
        room = min(self._room_beside(*batch) for batch in self._batches)
        # Down at once, and up bit by bit.
        longer = max(self.script_s * _GROWTH, _SHORTEST_S)
        self.script_s = max(min(longer, room, self._longest_s), _SHORTEST_S)

    def _room_beside(self, script_s: float, commit_s: float) -> float:
        """Return the time for statements beside a commit that behaves like this one.

        A commit of more rows takes longer in proportion. Of fewer rows, half of its time shrinks in
        proportion, since a part is the same for any number.
        """
        half_s = commit_s / 2
        if script_s + commit_s > self._aim_s:
            return (self._aim_s - half_s) / (1 + half_s / script_s)
        return self._aim_s / (1 + commit_s / script_s)


def in_portions(limit: int, holds: Holds, step: Callable[[int], int]) -> tuple[int, bool]:
    """Repeat ``step(size)`` as long as others may be delayed. Return the rows, and whether more are
    left.

    :param limit: of rows
    :param step: deals with at most so many rows, and with fewer when no more are left
    """
    began = holds.begin()
    done, size, is_more = 0, _FIRST, True
    while done < limit:
        size = min(size, limit - done)
        found = step(size)
        done += found
        if found < size:
            is_more = False
            break
        spent = _elapsed() - began
        # As many as fit in the time that is left, at the pace so far.
        fitting = int(done * (holds.script_s - spent) / max(spent, 1e-6))
        if fitting < _FIRST:
            break
        size = min(2 * size, fitting, _MOST)
    holds.written()
    return done, is_more
