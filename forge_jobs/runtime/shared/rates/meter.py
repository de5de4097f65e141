"""Tokens of rate limits that a pod took and was refused, over the last minute."""

from collections import deque
from dataclasses import dataclass, field

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.model.processes import MOST_RATES, RateGauge

_SECONDS = 60


@dataclass
class _Second:
    """The tokens of one limit in one second."""

    at: int
    taken: int = 0
    refused: int = 0


@dataclass
class _Limit:
    """The seconds of the last minute in which a limit was asked, oldest first."""

    seconds: deque[_Second] = field(default_factory=deque[_Second])

    def at(self, second: int) -> _Second:
        """Return the counts of a second that is not before the last one."""
        if not self.seconds or self.seconds[-1].at != second:
            self.forget(second)
            self.seconds.append(_Second(second))
        return self.seconds[-1]

    def forget(self, second: int) -> None:
        """Forget what is a minute old."""
        while self.seconds and self.seconds[0].at <= second - _SECONDS:
            self.seconds.popleft()


class RateMeter:
    """Counts tokens by rate limit, keys of a limit together. For use on one event loop.

    Counted are answers that have arrived. A token that the store gave to a caller who did not wait
    for the answer is not counted.

    :param clock: by whose ``elapsed`` a minute passes
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._limits: dict[str, _Limit] = {}

    def count(self, scope: str, tokens: int, *, granted: bool) -> None:
        """Count the tokens of one answer."""
        limit = self._limits.get(scope)
        if limit is None:
            limit = self._limits[scope] = _Limit()
        second = limit.at(int(self._clock.elapsed()))
        if granted:
            second.taken += tokens
        else:
            second.refused += tokens

    def last_minute(self) -> tuple[RateGauge, ...]:
        """Return the counts of the last 60 seconds, of the limits with most tokens first."""
        now = int(self._clock.elapsed())
        for scope, limit in list(self._limits.items()):
            limit.forget(now)
            if not limit.seconds:
                del self._limits[scope]
        gauges = [
            RateGauge(
                scope,
                sum(each.taken for each in limit.seconds),
                sum(each.refused for each in limit.seconds),
            )
            for scope, limit in self._limits.items()
        ]
        gauges.sort(key=lambda each: (-each.taken - each.refused, each.scope))
        return tuple(gauges[:MOST_RATES])
