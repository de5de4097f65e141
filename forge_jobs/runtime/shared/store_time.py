"""The store's time, as a pod reckons it between two readings."""

from datetime import datetime

from forge_jobs.clock import Clock, to_us


class StoreTime:
    """A clock that shows the store's time by the readings of beats. See :class:`Clock`.

    Before the first reading the time of this process is shown. The store read its clock at some
    instant between question and answer, which bounds the difference to the steady clock of this
    process. Readings that agree narrow the bounds. A reading that disagrees replaces them, because
    a clock has been set or has drifted. May be read from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bounds: tuple[float, float] | None = None

    def learn(self, now: datetime, asked_at: float, answered_at: float) -> None:
        """Take note of a reading.

        :param asked_at: ``Clock.elapsed`` before the question, as ``answered_at`` after the answer
        """
        time = to_us(now) / 1_000_000
        least, greatest = time - answered_at, time - asked_at
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
