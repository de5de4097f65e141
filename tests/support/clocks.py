"""Clocks that are wrong."""

from datetime import timedelta

from forge_jobs.clock import SystemClock, duration_us


class WrongClock(SystemClock):
    """The machine's clock, some time off."""

    def __init__(self, off: timedelta) -> None:
        self.off = off

    def time_us(self) -> int:
        return super().time_us() + duration_us(self.off)
