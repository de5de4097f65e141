"""A clock that runs on, ahead of the machine's by what tests have advanced."""

from datetime import datetime, timedelta

from forge_jobs.clock import SystemClock, duration_us, from_us
from forge_jobs.handlers.durations import check_duration


class TravelClock:
    """The machine's clock and what was added. See :class:`~forge_jobs.clock.Clock`.

    The clock never stands still, so whatever waits for time to pass goes on. May be read from any
    thread.
    """

    def __init__(self) -> None:
        self._system = SystemClock()
        self._ahead_us = 0

    def time_us(self) -> int:
        return self._system.time_us() + self._ahead_us

    def elapsed(self) -> float:
        return self._system.elapsed() + self._ahead_us / 1_000_000

    def now(self) -> datetime:
        """Return the time as an aware instant."""
        return from_us(self.time_us())

    def advance(self, by: timedelta | float) -> None:
        """Let time pass, a timedelta or seconds.

        :raises InvalidInput: ``by`` is negative, or longer than a century
        """
        self._ahead_us += duration_us(check_duration("advance", by))

    def reset(self) -> None:
        """Show the machine's time again, for the next test."""
        self._ahead_us = 0
