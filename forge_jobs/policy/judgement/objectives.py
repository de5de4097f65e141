"""How a queue stands to the objective: the share met, the budget left, how fast that burns.

The budget is the share of jobs that may start late. The burn rate is the share that did, over the
budget: at 1 the budget of a window is used up at the window's end. Source: The Site Reliability
Workbook (O'Reilly, 2018), chapter 5, "Alerting on SLOs". The two windows of that chapter are used
here too: a rate of 14.4 over an hour uses 2 % of the budget of 30 days, and the last 5 minutes tell
whether the cause is still there.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.model.metrics import MINUTE, Histogram
from forge_jobs.model.objectives import Objective
from forge_jobs.policy.percentiles import count_within

HOUR, DAY, MONTH = timedelta(hours=1), timedelta(days=1), timedelta(days=30)
SHORT = timedelta(minutes=5)
WINDOWS = (HOUR, DAY, MONTH)
FAST_BURN = 14.4
"""The burn rate over an hour that wakes people."""


class Delays(Struct, frozen=True, kw_only=True):
    """The delays of the jobs that started in one minute or, later, in one hour.

    :param start: of the minute or hour
    :param delays: from due to the start of the handler
    """

    start: datetime
    delays: Histogram
    length: timedelta = MINUTE


class Standing(Struct, frozen=True, kw_only=True):
    """How a queue stands to its objective.

    :param met: window -> share of the jobs that started in time. None when none was due
    :param budget_left: of the 30 days: 1 when no job was late, 0 when as many were late as may be,
        below 0 beyond that. 1 without jobs
    :param burn_short: over 5 minutes
    :param burn_long: over an hour
    """

    objective: Objective
    met: Mapping[timedelta, float | None]
    budget_left: float
    burn_short: float
    burn_long: float

    @property
    def is_burning(self) -> bool:
        """True while the budget burns fast, and has for an hour: people should look."""
        return round(min(self.burn_short, self.burn_long), 9) >= FAST_BURN


def standing(
    objective: Objective, history: Sequence[Delays], now: datetime, *, overdue: int = 0
) -> Standing:
    """How a queue stands to its objective.

    :param history: of the last 30 days, in any order, hours in place of minutes where they were
        folded. A part that a window cuts counts by its share in the window
    :param overdue: jobs that wait longer than the objective allows and have not started. They are
        late in every window: a queue that stands still has no start to be measured
    """
    met = {window: _met(objective, history, now, window, overdue) for window in WINDOWS}
    spare = 1 - objective.share

    def burn(window: timedelta) -> float:
        share = _met(objective, history, now, window, overdue)
        return 0.0 if share is None else (1 - share) / spare

    return Standing(
        objective=objective,
        met=met,
        budget_left=1 - burn(MONTH),
        burn_short=burn(SHORT),
        burn_long=burn(HOUR),
    )


def overdue(due: int, oldest_for: timedelta | None, within: timedelta) -> int:
    """Return how many due jobs wait longer than that, as if they had fallen due at a steady pace.

    :param oldest_for: how long the oldest of them has waited. None without any
    """
    if oldest_for is None or oldest_for <= within or not due:
        return 0
    return max(1, round(due * (1 - within / oldest_for)))


def burning_since(
    objective: Objective,
    minutes: Sequence[Delays],
    now: datetime,
    *,
    overdue: int,
    overdue_before: Mapping[datetime, int],
) -> datetime | None:
    """Return since when the budget burns fast without a break. None while that does not.

    Exact to the minute, and no earlier than an hour ago.

    :param minutes: of two hours
    :param overdue: as in :func:`standing`
    :param overdue_before: the same at the ends of minutes, where that is known
    """
    if not _burns(objective, minutes, now, overdue):
        return None
    since, end = now, now.replace(second=0, microsecond=0)
    while end > now - HOUR:
        earlier = [each for each in minutes if each.start < end]
        if end < now and not _burns(objective, earlier, end, overdue_before.get(end, 0)):
            break
        since, end = min(since, end), end - MINUTE
    return since


def _burns(objective: Objective, minutes: Sequence[Delays], at: datetime, overdue: int) -> bool:
    for window in (SHORT, HOUR):
        met = _met(objective, minutes, at, window, overdue)
        burn = 0.0 if met is None else (1 - met) / (1 - objective.share)
        if round(burn, 9) < FAST_BURN:
            return False
    return True


def _met(
    objective: Objective, history: Sequence[Delays], now: datetime, window: timedelta, overdue: int
) -> float | None:
    within = objective.within.total_seconds()
    in_time, started = 0.0, 0.0
    for part in history:
        weight = _weight(part, now, window)
        if weight:
            in_time += weight * count_within(part.delays, within)
            started += weight * sum(part.delays.counts.values())
    total = started + overdue
    return in_time / total if total else None


def _weight(part: Delays, now: datetime, window: timedelta) -> float:
    """The share of a part that lies in the window. Of a part that lasts, what has been counts."""
    end = min(part.start + part.length, now)
    if end <= part.start:
        # The clock of this reading is behind the newest minute, by less than a moment.
        return 1.0 if part.start < now + part.length else 0.0
    return max(end - max(part.start, now - window), timedelta(0)) / (end - part.start)
