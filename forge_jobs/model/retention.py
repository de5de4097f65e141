"""How long the history stays, and what a pass of retention has done, batch by batch."""

from collections.abc import Mapping
from datetime import timedelta

from msgspec import Struct, structs

from forge_jobs.durations import check_span
from forge_jobs.model.ids import JobId

FOR_EVER = timedelta(days=36_500_000)
"""No age is longer, also when a caller asks for more: each store can take it off its time."""

EVENTS_KEPT = timedelta(days=7)
"""How long timeline events stay where nothing else is said."""

HISTORY_KEPT = timedelta(days=30)
"""How long counts, latencies and gauges stay where nothing else is said."""

SERIES_KEPT = timedelta(days=400)
"""How long the hours of series stay where nothing else is said."""


class Kept(Struct, frozen=True, kw_only=True):
    """How long the history of a store stays.

    :param events: of timeline events
    :param minutes: after this the minutes of queues and pods are folded into their hours, once the
        whole hour is that old. None: what suits the store
    :param hours: after this minutes and hours go
    :param series: of the hours of series. Their minutes go after ``minutes``
    :param errors: of groups of failures, after the last failure, and of their counts
    """

    events: timedelta = EVENTS_KEPT
    minutes: timedelta | None = None
    hours: timedelta = HISTORY_KEPT
    errors: timedelta = HISTORY_KEPT
    series: timedelta = SERIES_KEPT

    def __post_init__(self) -> None:
        for name in ("events", "hours", "errors", "series"):
            structs.force_setattr(self, name, check_span(name, getattr(self, name), FOR_EVER))

    def minutes_or(self, usual: timedelta) -> timedelta:
        """How long minutes stay in a store that keeps them for ``usual``."""
        return min(usual if self.minutes is None else self.minutes, self.hours)


KEPT = Kept()
"""How long the history stays where nothing else is said."""


class Cleaned(Struct, frozen=True, kw_only=True):
    """The result of one batch of a pass.

    :param removed: rows that went. Minutes that became hours are not among them
    :param rest: what remains of the pass, for the next call. None: the pass has ended
    :param held: jobs that the database refuses to remove, for a foreign key of the user's for
        example, and what refuses it
    """

    removed: int
    rest: object | None = None
    held: Mapping[JobId, str] = {}
