"""Kinds that only other pods know, remembered for a moment."""

import time
from collections.abc import Callable, Iterable

_FOR_S = 1.0


class KnownElsewhere:
    """Kinds of due jobs that other pods know and this process does not, by queue.

    For :data:`_FOR_S` claims skip these kinds without asking which pods know them. So a long
    backlog of other pods' jobs, as each rolling deploy makes one, costs a claim nothing.
    """

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._found: dict[str, tuple[float, frozenset[str]]] = {}

    def of(self, queue: str) -> list[str]:
        """Return the kinds to skip."""
        until, kinds = self._found.get(queue, (0.0, frozenset()))
        return sorted(kinds) if self._elapsed() < until else []

    def note(self, queue: str, kinds: Iterable[str]) -> None:
        """Remember kinds that other pods know, beside those found before."""
        now = self._elapsed()
        until, before = self._found.get(queue, (0.0, frozenset()))
        if now < until:
            self._found[queue] = until, before | frozenset(kinds)
        else:
            self._found[queue] = now + _FOR_S, frozenset(kinds)
