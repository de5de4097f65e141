"""Schedules: recurring jobs."""

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from forge_jobs.model.jobs import Line, NewJob

CatchUp = Literal["skip", "latest", "all"]
Overlap = Literal["allow", "skip"]


class ScheduleSpec(Struct, frozen=True, kw_only=True):
    """The definition of a schedule. Already checked.

    :param name: unique in the store
    :param expression: five or six cron fields, ``@daily`` and friends, or ``@every 90s``
    :param timezone: IANA name
    :param jitter: each occurrence is delayed by a random part of this
    :param catch_up: occurrences missed while no coordinator ran: ``skip`` them, fire the
        ``latest`` alone, or ``all`` of those within ``window``
    :param overlap: ``skip`` an occurrence while a job of the schedule is active
    :param payload: JSON text
    :param metadata: JSON text
    :param keep_result: as of a request. ``result_ttl`` too
    :param limit_name: the limit that the jobs count toward, "" for none
    :param limit_key: the key under which they are counted
    :param sequence: of the jobs. None for none
    """

    name: str
    queue: str
    kind: str
    expression: str
    payload: str = "{}"
    timezone: str = "UTC"
    jitter: timedelta = timedelta(0)
    catch_up: CatchUp = "latest"
    window: timedelta = timedelta(days=1)
    overlap: Overlap = "allow"
    priority: int = 0
    max_attempts: int | None = 5
    timeout: timedelta | None = None
    tags: tuple[str, ...] = ()
    metadata: str = "{}"
    keep_result: bool = True
    result_ttl: timedelta | None = None
    limit_name: str = ""
    limit_key: str = ""
    sequence: Line | None = None

    def has_times_of(self, other: "ScheduleSpec") -> bool:
        """True when both mean the same occurrences, even with different jobs."""
        return (self.expression, self.timezone) == (other.expression, other.timezone)


class Schedule(Struct, frozen=True, kw_only=True):
    """A stored schedule.

    :param version: changes with every write, for compare-and-set
    :param edited: an operator changed the schedule, so deploys leave it alone
    :param next_at: the next occurrence. None when paused, or when there is none
    :param last_fired_at: the occurrence that last enqueued a job
    :param fired: how many jobs the schedule has enqueued
    :param skipped: how many occurrences the overlap or catch-up policy dropped
    :param error: why the schedule is disabled, "" otherwise. Cleared by the next edit
    :param deleted: an operator removed the schedule: no occurrence fires, and no deploy restores
        the schedule
    :param unreadable: which stored fields cannot be read, and why. No occurrence fires meanwhile
    """

    spec: ScheduleSpec
    version: int
    paused: bool
    edited: bool
    next_at: datetime | None
    last_fired_at: datetime | None
    fired: int
    skipped: int
    error: str
    deleted: bool = False
    unreadable: str = ""


class DueSchedules(Struct, frozen=True):
    """Schedules whose next occurrence has come, earliest first.

    :param now: the store's time of this reading. Base for the next times
    :param next_in: until the next occurrence after these. None when there is none
    """

    now: datetime
    schedules: tuple[Schedule, ...]
    next_in: timedelta | None


class Firing(Struct, frozen=True, kw_only=True):
    """Advance one schedule and enqueue its jobs, in one step.

    :param version: of the schedule that was read
    :param jobs: one per occurrence that fires, oldest first. Ids derive from the occurrence
    :param next_at: None: there is no further occurrence
    :param skipped: occurrences the catch-up policy dropped
    :param fired_at: the newest occurrence among ``jobs``, None when ``jobs`` is empty
    :param error: disables the schedule with this text. "" otherwise
    """

    name: str
    version: int
    jobs: tuple[NewJob, ...]
    next_at: datetime | None
    skipped: int = 0
    fired_at: datetime | None = None
    error: str = ""
