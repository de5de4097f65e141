"""When a job that waits for a slot starts, by its place and by what was measured."""

import math
from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.model.queues import LinePlace
from forge_jobs.policy.judgement.load import Load
from forge_jobs.policy.judgement.what_if import in_words

_BAND = 1.645
"""Standard deviations on each side that hold nine of ten."""

_BUCKETS = 0.05
"""How far the buckets of a histogram can be off in a mean, evenly in both directions."""

_WIDEST = 10.0


class Forecast(Struct, frozen=True, kw_only=True):
    """When a waiting job starts. Nine of ten such jobs start between the two instants.

    :param latest: None where more jobs come before than are counted
    :param rests_on: the place and the measurement, for people
    """

    place: LinePlace
    earliest: datetime
    latest: datetime | None
    rests_on: str

    def text(self, now: datetime) -> str:
        """Say in a line when, for people."""
        first = in_words(max(self.earliest - now, timedelta(0)))
        if self.latest is None:
            return f"starts in {first} or later"
        return f"starts in {first} to {in_words(max(self.latest - now, timedelta(0)))}"


def forecast(place: LinePlace, load: Load, *, slots: int, now: datetime) -> Forecast | None:
    """Say when a due job starts that waits for a slot. None where no run ended lately, or no slot
    is there.

    The job starts with the end of so many runs as jobs come before it, and one more unless a slot
    is free. Ends of ``slots`` runs side by side are a sum of renewal processes, so n of them take n
    x mean / slots, with a variance of n x scv x (mean / slots) squared (D. R. Cox, Renewal Theory,
    1962, section 6.2). The first end of all comes after a part of a run.

    Jobs that come later with a higher priority, limits by key or kind, pauses and failures of pods
    are not known here: then the job starts later.

    :param slots: how many jobs of the queue may run at once now
    """
    runs = load.moments
    if runs is None or slots < 1 or not 0 < runs.mean < math.inf:
        return None
    ends = max(place.ahead + 1 - max(slots - load.running, 0), 0)
    rests_on = f"{place} due before, {slots} at once, {load.rests_on()}"
    middle = ends * runs.mean / slots
    error = math.sqrt(runs.scv / max(ends, 1) + runs.scv / runs.samples + _BUCKETS**2 / 3)
    factor = math.exp(min(_BAND * error, _WIDEST))
    # Runs under way may all be about to end, or may all have just begun.
    earliest = max(ends - slots, 0) * runs.mean / slots / factor
    latest = max(middle, math.ceil(ends / slots) * runs.mean) * factor
    return Forecast(
        place=place,
        earliest=now + _seconds(earliest),
        latest=None if place.is_more else now + _seconds(latest),
        rests_on=rests_on,
    )


def _seconds(length: float) -> timedelta:
    return timedelta(seconds=min(length, 1e9))
