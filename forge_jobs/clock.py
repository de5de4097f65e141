"""The sources of time.

Two readings, never mixed: wall time says *when* (it may step), elapsed time says *how long*
(never steps, goes on while the machine sleeps). Everything outside this module asks a
:class:`Clock`. Lint forbids the other sources.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(instant: datetime) -> int:
    """Return microseconds since the epoch, exact. ``instant`` must be aware."""
    return (instant - EPOCH) // _MICROSECOND


def from_us(microseconds: int) -> datetime:
    """Return the aware UTC instant, exact. The inverse of :func:`to_us`."""
    return EPOCH + timedelta(microseconds=microseconds)


def duration_us(duration: timedelta) -> int:
    """Return a duration in microseconds, exact."""
    return duration // _MICROSECOND


class Clock(Protocol):
    """A source of both readings."""

    def time_us(self) -> int:
        """Wall time in microseconds since the epoch. May step either way."""
        ...

    def elapsed(self) -> float:
        """Seconds since an arbitrary start. Never steps, includes time spent suspended."""
        ...


def _elapsed() -> Callable[[], float]:
    # CLOCK_MONOTONIC stops while Linux sleeps, and a lease does not. CLOCK_BOOTTIME goes on.
    # Elsewhere (macOS) the monotonic clock already includes suspend or nothing better exists.
    if hasattr(time, "CLOCK_BOOTTIME"):
        return partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    return time.monotonic  # pragma: no cover - not reached on Linux, where CI runs


class SystemClock:
    """The machine's own clocks."""

    def time_us(self) -> int:
        return time.time_ns() // 1000

    elapsed = staticmethod(_elapsed())
    """Without a Python function, because each job reads the clock a dozen times."""


class StoreTime:
    """A clock that shows the store's time by the readings of beats. See :class:`Clock`.

    Before the first reading the time of this process is shown. The store read the clock at some
    instant between question and answer, which bounds the difference to the steady clock of this
    process. Readings that agree narrow the bounds. A reading that disagrees replaces the bounds,
    because a clock has been set or has drifted. May be read from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bounds: tuple[float, float] | None = None

    def learn(self, now: datetime, asked_at: float, answered_at: float) -> None:
        """Take note of a reading.

        :param asked_at: ``Clock.elapsed`` before the question, as ``answered_at`` after the answer
        """
        shown = to_us(now) / 1_000_000
        least, greatest = shown - answered_at, shown - asked_at
        if self._bounds is not None:
            narrowed = max(least, self._bounds[0]), min(greatest, self._bounds[1])
            if narrowed[0] <= narrowed[1]:
                least, greatest = narrowed
        self._bounds = least, greatest

    def time_us(self) -> int:
        """Return the store's time in microseconds since the epoch."""
        bounds = self._bounds
        if bounds is None:
            return self._clock.time_us()
        return round((self._clock.elapsed() + (bounds[0] + bounds[1]) / 2) * 1_000_000)

    def elapsed(self) -> float:
        """Return the steady clock of this process."""
        return self._clock.elapsed()


class ManualClock:
    """A clock that moves on request only, for tests.

    :param start: the first wall time. 2026-01-01 00:00 UTC when left out
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._time_us = to_us(start or datetime(2026, 1, 1, tzinfo=UTC))
        self._elapsed = 0.0

    def time_us(self) -> int:
        return self._time_us

    def elapsed(self) -> float:
        return self._elapsed

    def now(self) -> datetime:
        """The wall time as an aware instant."""
        return from_us(self._time_us)

    def advance(self, duration: timedelta | float) -> None:
        """Let time pass on both readings. A number is seconds."""
        step = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
        self._time_us += duration_us(step)
        self._elapsed += step.total_seconds()

    def step_wall(self, duration: timedelta | float) -> None:
        """Set the wall clock by ``duration``, as an administrator or NTP would. No time passes."""
        step = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
        self._time_us += duration_us(step)
