"""How long a batch of retention may hold others up.

On SQLite a batch holds the one write lock from its first statement to the end of its commit. A
commit takes as long as the disk does for what was written, so nobody can tell before.
"""

from collections import deque
from collections.abc import Callable

from forge_jobs.clock import SystemClock

_FIRST, _MOST = 32, 1000
"""Rows of the first portion of a batch, and of any."""

_SHORTEST_S = 0.001
"""Time for the statements of a batch, at least."""

_AIM = 0.6
"""The share of the longest hold to aim at: from one batch to the next the disk may become slower,
by half."""

_REMEMBERED = 20
"""Batches of which the slowest commit is expected again."""

_GROWTH = 1.25
"""A batch may be longer than the one before by this factor."""

_elapsed = SystemClock().elapsed


class Holds:
    """How long the statements of the next batch may take, by what batches have taken so far.

    :param script_s: for the statements of a batch, at most
    :param most_s: for a batch with its commit
    """

    def __init__(self, script_s: float, most_s: float) -> None:
        self._longest_s = script_s
        self._aim_s = _AIM * most_s
        # Nobody knows yet how long a commit takes.
        self.script_s = script_s / 3
        self._batches = deque[tuple[float, float]](maxlen=_REMEMBERED)
        self._began = self._written = 0.0

    def begin(self) -> float:
        """The batch has the lock from here on; when that is."""
        self._began = self._written = _elapsed()
        return self._began

    def written(self) -> None:
        """The statements are through, the commit comes."""
        self._written = _elapsed()

    def end(self) -> None:
        """The batch is committed, and nothing is locked any more."""
        now = _elapsed()
        self._batches.append((max(self._written - self._began, 1e-6), now - self._written))
        room = min(self._room_beside(*batch) for batch in self._batches)
        # Down at once, and up bit by bit.
        longer = max(self.script_s * _GROWTH, _SHORTEST_S)
        self.script_s = max(min(longer, room, self._longest_s), _SHORTEST_S)

    def _room_beside(self, script_s: float, commit_s: float) -> float:
        """Time for statements where a commit behaves like this one.

        A commit of more rows takes longer in proportion. Of fewer rows, half of it goes down in
        proportion, since a part is the same for any number.
        """
        half_s = commit_s / 2
        if script_s + commit_s > self._aim_s:
            return (self._aim_s - half_s) / (1 + half_s / script_s)
        return self._aim_s / (1 + commit_s / script_s)


def in_portions(limit: int, holds: Holds, step: Callable[[int], int]) -> tuple[int, bool]:
    """Repeat ``step(size)`` as long as others may be held up; rows, and whether there are more.

    :param limit: of rows
    :param step: deals with at most so many rows; with fewer when there are no more
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
        # As many as go in the time that is left, at the pace so far.
        fitting = int(done * (holds.script_s - spent) / max(spent, 1e-6))
        if fitting < _FIRST:
            break
        size = min(2 * size, fitting, _MOST)
    holds.written()
    return done, is_more
