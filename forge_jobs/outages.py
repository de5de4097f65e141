"""Calls that fail and are made again: the pauses between them, and what the log says."""

import random
from collections.abc import Callable, Hashable
from enum import Enum

_MOST_DOUBLINGS = 20
_MOST_CAUSES = 100
"""Causes kept apart while an outage lasts. Texts with numbers in them have no end."""

# Not the generator that all modules of a program share, which a program may have seeded.
_random = random.SystemRandom()


class Pauses:
    """Pauses between the tries of a call, each twice as long as the one before.

    Jitter keeps the processes of a fleet from knocking at the store in step.

    :param first: seconds, the longest first pause
    :param longest: no pause is longer
    :param jitter: the part of a pause that is drawn. 0, where the log names the pause beforehand
    """

    __slots__ = ("_first", "_jitter", "_longest")

    def __init__(self, first: float, longest: float, *, jitter: float = 0.5) -> None:
        self._first = first
        self._longest = longest
        self._jitter = jitter

    def at_most(self, failures: int) -> float:
        """Return the longest pause after so many failures in a row, in seconds."""
        doublings = min(max(failures - 1, 0), _MOST_DOUBLINGS)
        return min(self._first * 2.0**doublings, self._longest)

    def after(self, failures: int, rng: random.Random = _random) -> float:
        """Draw the pause after so many failures in a row, in seconds."""
        most = self.at_most(failures)
        return rng.uniform((1 - self._jitter) * most, most) if self._jitter else most


class Outage:
    """Keeps the log short in an outage: names each cause once, and the end."""

    __slots__ = ("_causes",)

    def __init__(self) -> None:
        self._causes: set[Hashable] = set()

    def is_new(self, cause: Hashable = "") -> bool:
        """Take note of a failure. True: log it, because nothing was logged of this cause yet."""
        if cause in self._causes:
            return False
        if len(self._causes) >= _MOST_CAUSES:
            self._causes.clear()
        self._causes.add(cause)
        return True

    def is_over(self) -> bool:
        """Take note of a success. True: log the end of the outage, whose start was logged."""
        was_logged = bool(self._causes)
        self._causes.clear()
        return was_logged


_NAMED = 5
"""So many of one cause are named in a minute, each as often as there is cause."""
_MINUTE = 60.0


class Line(Enum):
    """A line of the log, when the same happens to many."""

    OWN = "own"
    """A line with the name."""
    OF_OTHERS = "of others"
    """A line for all that are not named."""
    NONE = "none"


class Outages:
    """Keeps the log short where the same happens to many at once: names the first few.

    For one thread.

    :param elapsed: see ``Clock.elapsed``
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._told: dict[Hashable, tuple[float, set[str]]] = {}
        self._named: set[str] = set()
        self._others: set[str] = set()

    def begins(self, name: str, cause: Hashable) -> Line:
        """Take note of a failure that is new for the name. Returns the line to log."""
        now = self._elapsed()
        since, names = self._told.get(cause, (now, set()))
        if now - since >= _MINUTE:
            since, names = now, set()
        elif len(self._told) >= _MOST_CAUSES:
            self._told.clear()
        self._told[cause] = since, names
        is_first_of_others = len(names) == _NAMED
        if name in names or len(names) < _NAMED:
            names.add(name)
            self._named.add(name)
            return Line.OWN
        # The others have their line now.
        names.add("")
        self._others.add(name)
        return Line.OF_OTHERS if is_first_of_others else Line.NONE

    def ends(self, name: str) -> Line:
        """Take note of a success of one that had failed. Returns the line to log: of others only
        when the last of them succeeds."""
        is_last = self._others == {name}
        self._others.discard(name)
        if name in self._named:
            self._named.remove(name)
            return Line.OWN
        return Line.OF_OTHERS if is_last else Line.NONE
