"""Cron expressions, and which occurrences of a schedule fire.

An expression has five fields (minute, hour, day of month, month, day of week) or six, with the
**seconds last**. ``@hourly``, ``@daily`` (``@midnight``), ``@weekly``, ``@monthly`` and ``@yearly``
(``@annually``) stand for the usual ones. ``@every 90s`` or ``@every 1h30m`` is an interval, aligned
to the epoch, so a restart does not shift the interval.

When clocks change: a time that is skipped in spring fires once, at the end of the gap. A time
that comes twice in autumn fires the first time only, unless minute or hour start with ``*``: such
expressions mean "all the time" rather than a time of day, and fire in both hours.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, CroniterError, croniter
from msgspec import Struct

from forge_jobs.clock import EPOCH
from forge_jobs.errors import InvalidInput
from forge_jobs.model.schedules import Schedule, ScheduleSpec
from forge_jobs.policy.randomness import Randomness, draw

MAX_PER_PLAN = 200
"""Occurrences that one plan fires, or counts as skipped, one by one."""

ON_TIME = timedelta(seconds=30)
"""An occurrence this late was not missed: a change of coordinators takes as long."""

_ONE_SECOND = timedelta(seconds=1)
_LONGEST_EXPRESSION = 1_000
_LONGEST_INTERVAL = timedelta(days=366)
_FIX = "give five cron fields, six with seconds last, @daily or the like, or @every 90s"
_EVERY = re.compile(r"@every\s+((?:\d+[dhms])+)", re.IGNORECASE)
_EVERY_PART = re.compile(r"(\d+)([dhms])", re.IGNORECASE)
_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_NICKNAMES = frozenset(
    {"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}
)
_FIELDS = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of month", 1, 31),
    ("month", 1, 12),
    ("day of week", 0, 7),
    ("second", 0, 59),
)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_NUMBERS = {name: number for number, name in enumerate(_MONTHS, 1)} | {
    name: number for number, name in enumerate(_DAYS)
}
_RANGE = re.compile(r"(\w+)-(\w+)(?:/.*)?")


class CronExpression(Protocol):
    """A cron expression in its time zone. Immutable and shared."""

    def next_after(self, instant: datetime) -> datetime | None:
        """The first occurrence later than ``instant``, in UTC.

        None when there is none within 50 years.
        """
        ...


class FiringPlan(Struct, frozen=True):
    """The next step of one due schedule.

    :param occurrences: those that fire, oldest first. Their jobs' ids derive from them
    :param skipped: occurrences dropped by the catch-up policy, counted up to ``MAX_PER_PLAN``
    :param next_at: the next occurrence. In the past when a backlog goes on with the next plan,
        None when there is none
    :param run_at: when the job of each occurrence is due: the occurrence and the jitter
    """

    occurrences: tuple[datetime, ...]
    skipped: int
    next_at: datetime | None
    run_at: tuple[datetime, ...] = ()


@lru_cache(maxsize=4096)
def parse_cron(expression: str, timezone: str = "UTC") -> CronExpression:
    """The expression in an IANA time zone.

    :raises InvalidInput: field ``expression`` or ``timezone``. Refused beside what cron refuses:
        ranges of one value or that run backwards, steps wider than the field, dates that never
        come, and random or hashed fields
    """
    zone = _zone(timezone)
    if len(expression) > _LONGEST_EXPRESSION:
        raise InvalidInput("expression", f"has {len(expression)} characters", _FIX)
    text = " ".join(expression.lower().split())
    if text.startswith("@every"):
        return _every(text)
    if text.startswith("@"):
        if text not in _NICKNAMES:
            raise InvalidInput("expression", f"{text!r:.40} is not known", _FIX)
        return _Fields(text, zone, every_hour=text == "@hourly")
    fields = text.split(" ")
    if len(fields) not in {5, 6}:
        raise InvalidInput("expression", f"has {len(fields)} fields", _FIX)
    for field, (name, low, high) in zip(fields, _FIELDS, strict=False):
        _check_field(field, name, high - low)
    return _Fields(text, zone, every_hour=fields[0][0] == "*" or fields[1][0] == "*")


def first_occurrence(spec: ScheduleSpec, now: datetime) -> datetime | None:
    """When a schedule that is new, edited or resumed fires first: never at once.

    :raises InvalidInput: as :func:`parse_cron`
    """
    return parse_cron(spec.expression, spec.timezone).next_after(now)


def plan_firing(schedule: Schedule, now: datetime, rng: Randomness) -> FiringPlan:
    """Choose the occurrences up to ``now`` that fire, and when the schedule comes up next.

    ``skip`` fires the newest occurrence if at most ``ON_TIME`` late. ``latest`` fires the
    newest, however late. ``all`` fires those not older than the window, at most ``MAX_PER_PLAN``
    per plan, the oldest first. Then ``next_at`` has come already, and the next plan goes on.

    The cost does not grow with the length of the downtime. A schedule that is paused, or not due
    yet, plans nothing and keeps ``next_at``.

    :raises InvalidInput: as :func:`parse_cron`
    """
    spec = schedule.spec
    cron = parse_cron(spec.expression, spec.timezone)
    first = schedule.next_at
    if schedule.paused or first is None or first > now:
        return FiringPlan((), 0, first)
    if spec.catch_up == "all":
        return _plan_all(spec, cron, first, now, rng)
    newest = _newest(cron, first, now)
    skipped = _count(cron, first, newest)
    fires = spec.catch_up == "latest" or now - newest <= ON_TIME
    occurrences = (newest,) if fires else ()
    return FiringPlan(
        occurrences,
        skipped if fires else min(skipped + 1, MAX_PER_PLAN),
        cron.next_after(now),
        _jittered(spec, occurrences, rng),
    )


def _plan_all(
    spec: ScheduleSpec, cron: CronExpression, first: datetime, now: datetime, rng: Randomness
) -> FiringPlan:
    begin = now - max(spec.window, ON_TIME)
    upcoming: datetime | None = first
    skipped = 0
    if first < begin:
        upcoming = cron.next_after(begin - timedelta(microseconds=1))
        skipped = _count(cron, first, upcoming)
    occurrences: list[datetime] = []
    while upcoming is not None and upcoming <= now and len(occurrences) < MAX_PER_PLAN:
        occurrences.append(upcoming)
        upcoming = cron.next_after(upcoming)
    fired = tuple(occurrences)
    return FiringPlan(fired, skipped, upcoming, _jittered(spec, fired, rng))


def _newest(cron: CronExpression, first: datetime, now: datetime) -> datetime:
    """The last occurrence up to ``now``, ``first`` being one: by halving what lies between."""
    newest, end = first, now
    while end - newest >= _ONE_SECOND:
        middle = newest + (end - newest) / 2
        found = cron.next_after(middle)
        if found is not None and found <= now:
            newest = found
        else:
            end = middle
    # A stored first occurrence need not fall on a whole second. Later ones do.
    following = cron.next_after(newest)
    return newest if following is None or following > now else following


def _count(cron: CronExpression, first: datetime, until: datetime | None) -> int:
    """Occurrences from ``first`` to before ``until``, at most ``MAX_PER_PLAN``."""
    count = 0
    upcoming: datetime | None = first
    while upcoming is not None and count < MAX_PER_PLAN and (until is None or upcoming < until):
        count += 1
        upcoming = cron.next_after(upcoming)
    return count


def _jittered(
    spec: ScheduleSpec, occurrences: tuple[datetime, ...], rng: Randomness
) -> tuple[datetime, ...]:
    return tuple(occurrence + spec.jitter * draw(rng) for occurrence in occurrences)


class _Interval:
    def __init__(self, length: timedelta) -> None:
        self._length = length

    def next_after(self, instant: datetime) -> datetime | None:
        try:
            return EPOCH + ((instant - EPOCH) // self._length + 1) * self._length
        except OverflowError:
            return None


class _Fields:
    def __init__(self, expression: str, zone: ZoneInfo, *, every_hour: bool) -> None:
        self._expression = expression
        self._zone = zone
        self._every_hour = every_hour
        try:
            # Looked for rather than asked of croniter's strict mode, which refuses the 31st of
            # April also beside a day of the week.
            self._times(EPOCH).get_next(datetime)
        except CroniterBadDateError:
            raise InvalidInput("expression", "describes a date that never comes", _FIX) from None
        except CroniterError as error:
            raise InvalidInput("expression", f"is not a cron expression ({error})", _FIX) from None

    def next_after(self, instant: datetime) -> datetime | None:
        start = instant.astimezone(self._zone).replace(microsecond=0)
        found = self._first(start)
        if self._every_hour:
            again = self._second_pass(start)
            if again is not None and (found is None or again < found):
                return again
        return found

    def _first(self, start: datetime) -> datetime | None:
        try:
            times = self._times(start)
            found: datetime = times.get_next(datetime)
            while found.fold and not self._every_hour:
                found = times.get_next(datetime)
        except (CroniterError, OverflowError):
            return None
        return found.astimezone(UTC)

    def _second_pass(self, start: datetime) -> datetime | None:
        """The next occurrence in the second pass through the doubled hour, for a start inside it.

        croniter loses that occurrence when the next matching date is months away.
        """
        overlap = _overlap(start)
        if not overlap:
            return None
        wall = start.replace(tzinfo=None, fold=0)
        end = wall + overlap
        try:
            # From the first pass, look from before the doubled hour. In the second, go on.
            times = self._times(wall if start.fold else wall - overlap - _ONE_SECOND)
            while (upcoming := times.get_next(datetime)) < end:
                again = upcoming.replace(tzinfo=self._zone, fold=1)
                if _overlap(again):
                    return again.astimezone(UTC)
        except (CroniterError, OverflowError):
            pass
        return None

    def _times(self, start: datetime) -> croniter:
        # "The cron bug" is what every cron does: days of month and week are alternatives only
        # when neither of the two fields starts with a star.
        return croniter(self._expression, start, implement_cron_bug=True)


def _overlap(local: datetime) -> timedelta:
    """How far the clock is set back at the end of the doubled hour that ``local`` is in. Zero
    outside of one."""
    first, second = local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()
    assert first is not None
    assert second is not None
    return max(first - second, timedelta(0))


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise InvalidInput(
            "timezone", f"{name!r:.60} is not known", "give an IANA name such as Europe/Berlin"
        ) from None


def _every(text: str) -> _Interval:
    match = _EVERY.fullmatch(text)
    if match is None:
        raise InvalidInput("expression", f"{text!r:.40} is no interval", "write @every 1h30m")
    parts = _EVERY_PART.findall(match[1])
    seconds = sum(int(number[:18]) * _UNITS[unit] for number, unit in parts)
    if not 1 <= seconds <= _LONGEST_INTERVAL.total_seconds():
        raise InvalidInput("expression", "has an interval out of range", "give 1s to 366d")
    return _Interval(timedelta(seconds=seconds))


def _check_field(field: str, name: str, width: int) -> None:
    """Refuse fields that croniter takes and reads in another way than they look."""
    for part in field.split(","):
        if part in {"r", "h"} or part.startswith(("r(", "h(", "r/", "h/")):
            raise InvalidInput("expression", f"{name} {part!r} is not fixed", "give a number")
        step = part.partition("/")[2]
        if step.isdecimal() and int(step) > width:
            raise InvalidInput(
                "expression", f"{name} {part!r} steps over the whole field", "give a smaller step"
            )
        match = _RANGE.fullmatch(part)
        first, last = (_number(end) for end in match.groups()) if match else (None, None)
        if first is not None and last is not None and first >= last:
            raise InvalidInput(
                "expression",
                f"{name} range {part!r} does not run upwards",
                "give a-b with a below b, or list the values with commas",
            )


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else _NUMBERS.get(text)
