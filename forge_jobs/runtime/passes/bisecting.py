"""Batches of the reaper and the hand-over in which the store refuses single items."""

import random
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.errors import CONCERNS_ALL, StorageRefused
from forge_jobs.outages import Pauses
from forge_jobs.reports import reporter
from forge_jobs.runtime.shared.failure_texts import by_reason

logger = reporter(__name__)

T = TypeVar("T")
R = TypeVar("R")

LONGEST_PAUSE_S = 30.0
_PAUSES = Pauses(1.0, LONGEST_PAUSE_S, jitter=0)
"""Pauses before an item that was refused is sent again, alone."""

_FORGOTTEN_AFTER_S = 10 * LONGEST_PAUSE_S
"""An item that has not come again by then is gone: deleted, or dealt with by another pod."""

_REFUSED_ALONE = 2
"""After so many refusals without any success, the store counts as refusing everything."""


class _Aside(NamedTuple):
    due_at: float
    refusals: int
    reason: str


class BisectingSender:
    """Sends batches. An item at fault is found by halves, logged, and sent again alone.

    :param what: what an item is, for the log
    """

    def __init__(self, what: str, *, clock: Clock | None = None) -> None:
        self._what = what
        self._clock = clock or SystemClock()
        self._aside: dict[Hashable, _Aside] = {}

    @property
    def waiting(self) -> frozenset[Hashable]:
        """Items that are not to be sent yet."""
        now = self._clock.elapsed()
        return frozenset(key for key, each in self._aside.items() if each.due_at > now)

    @property
    def refusals(self) -> tuple[str, ...]:
        """Items set aside: a line for each reason, with the first item."""
        kept = self._remembered(self._clock.elapsed())
        return by_reason((f"{self._what} {key}", each.reason) for key, each in kept.items())

    def _remembered(self, now: float) -> dict[Hashable, _Aside]:
        return {
            key: each for key, each in self._aside.items() if now - each.due_at < _FORGOTTEN_AFTER_S
        }

    async def send(
        self,
        items: Sequence[T],
        call: Callable[[Sequence[T]], Awaitable[R]],
        key: Callable[[T], Hashable],
    ) -> list[R]:
        """Send the items, and return the answers of the calls that succeeded.

        :raises StorageError: the store is away or closed, or refuses everything
        """
        together = [each for each in items if key(each) not in self._aside]
        alone = [each for each in items if key(each) in self._aside]
        # In random order, so that items at fault do not always come first.
        parts = [[each] for each in random.sample(alone, len(alone))]
        if together:
            parts.append(together)
        answers: list[R] = []
        refused = 0
        while parts:
            part = parts.pop()
            try:
                answers.append(await call(part))
            except Exception as error:
                if isinstance(error, CONCERNS_ALL) and not isinstance(error, StorageRefused):
                    raise
                if len(part) > 1:
                    mixed = random.sample(part, len(part))
                    half = len(part) // 2
                    parts += [mixed[half:], mixed[:half]]
                    continue
                refused += 1
                if not answers and refused >= _REFUSED_ALONE:
                    raise
                self._set_aside(key(part[0]), error)
            else:
                self._forget(map(key, part))
        return answers

    def _set_aside(self, key: Hashable, error: Exception) -> None:
        now = self._clock.elapsed()
        self._aside = self._remembered(now)
        before = self._aside.get(key)
        refusals = 1 if before is None else before.refusals + 1
        reason = f"{type(error).__name__}: {error}"
        self._aside[key] = _Aside(now + _PAUSES.after(refusals), refusals, reason)
        if before is None or before.reason != reason:
            logger.error(
                "the store refuses %s %s, and takes others. The call is repeated with growing "
                "pauses: %s",
                self._what,
                key,
                reason,
            )

    def _forget(self, keys: "map[Hashable]") -> None:
        for key in keys:
            if self._aside.pop(key, None) is not None:
                logger.info("%s %s is stored now", self._what, key)
