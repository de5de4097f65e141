"""Documents of queues, schedules and rate limits."""

from datetime import datetime
from typing import ClassVar

from msgspec import Struct

from forge_jobs.model.queues import QueueCounts, QueueState, RateLimitState
from forge_jobs.model.schedules import Schedule, ScheduleSpec
from forge_jobs.operating.metrics.latencies import Percentiles


class QueueView(QueueState, frozen=True, kw_only=True):
    """A queue with jobs, slots, and how long jobs took in the last hour.

    :param granted: slots of all pods
    :param pods: how many live pods serve the queue
    :param unserved: jobs wait and no live pod serves the queue
    :param standing: how the queue stands, in words
    """

    counts: QueueCounts
    granted: int
    pods: int
    unserved: bool
    standing: str
    run: Percentiles
    total: Percentiles


class ObjectiveView(Struct, frozen=True, kw_only=True):
    """How a queue stands to its objective.

    :param objective: as ``95% within 30s``
    :param by_operator: an operator has set the objective
    :param met_1h: share of the jobs of the last hour that started in time, 0 to 1. Jobs that wait
        for longer than allowed count as late. None when none was due
    :param met_24h: of the last day
    :param met_30d: of the last 30 days
    :param budget_left: of the 30 days: 1 when no job was late, 0 when as many were late as may be,
        below 0 beyond that
    :param burn_5m: the share that was late in 5 minutes over the share that may be
    :param burn_1h: the same of an hour
    :param is_burning: both are at least 14.4
    """

    queue: str
    objective: str
    by_operator: bool
    met_1h: float | None
    met_24h: float | None
    met_30d: float | None
    budget_left: float
    burn_5m: float
    burn_1h: float
    is_burning: bool


class Objectives(Struct, frozen=True):
    """The queues that have an objective, by name."""

    objectives: tuple[ObjectiveView, ...]


class SpecView(ScheduleSpec, frozen=True, kw_only=True):
    """The definition of a schedule. In the document payload and metadata are values."""

    JSON_TEXTS: ClassVar[tuple[str, ...]] = ("payload", "metadata")


class ScheduleView(Schedule, frozen=True, kw_only=True):
    """A schedule, and how the schedule stands, in words."""

    spec: SpecView
    standing: str


class Queues(Struct, frozen=True):
    """All queues, by name."""

    queues: tuple[QueueView, ...]


class Schedules(Struct, frozen=True):
    """All schedules by name, deleted ones too."""

    schedules: tuple[ScheduleView, ...]


class Fires(Struct, frozen=True, kw_only=True):
    """The next occurrences of a schedule, soonest first. None when the schedule stands still."""

    name: str
    timezone: str
    fires: tuple[datetime, ...]


class Limits(Struct, frozen=True):
    """All rate limits, by name."""

    rate_limits: tuple[RateLimitState, ...]
