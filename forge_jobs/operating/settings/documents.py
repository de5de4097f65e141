"""Documents of queues, schedules and rate limits."""

import hashlib
from datetime import datetime
from typing import ClassVar

import msgspec
from msgspec import Struct

from forge_jobs.model.queues import QueueCounts, QueueState, RateLimitState
from forge_jobs.model.schedules import Schedule, ScheduleSpec
from forge_jobs.operating.documents import plain
from forge_jobs.operating.metrics.latencies import Percentiles


def tag_of(record: Struct) -> str:
    """Return the tag of settings, the same for the same values in any process."""
    text = msgspec.json.encode(plain(record), order="sorted")
    return hashlib.blake2b(text, digest_size=12).hexdigest()


class QueueView(QueueState, frozen=True, kw_only=True):
    """A queue with jobs, slots, and how long jobs took in the last hour.

    :param granted: slots of all pods
    :param pods: how many live pods serve the queue
    :param unserved: jobs wait and no live pod serves the queue
    :param standing: how the queue stands, in words
    :param etag: of the settings. Over HTTP a change with ``If-Match: "ETAG"`` is refused when the
        settings have changed since
    """

    counts: QueueCounts
    granted: int
    pods: int
    unserved: bool
    standing: str
    etag: str
    run: Percentiles
    total: Percentiles


class SpecView(ScheduleSpec, frozen=True, kw_only=True):
    """The definition of a schedule. In the document payload and metadata are values."""

    JSON_TEXTS: ClassVar[tuple[str, ...]] = ("payload", "metadata")


class ScheduleView(Schedule, frozen=True, kw_only=True):
    """A schedule, and how the schedule stands, in words.

    :param etag: of the definition as the actor sees the definition, see :class:`QueueView`
    """

    spec: SpecView
    standing: str
    etag: str


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


class RateLimitView(RateLimitState, frozen=True, kw_only=True):
    """A rate limit with what was asked of it lately, as live pods tell once a minute.

    All keys of the limit are counted together. None: not known, because a pod has asked more than
    50 limits in a minute and tells of the busiest. Then other limits may have had more than said.

    :param taken_a_minute: tokens that jobs and callers got in the last minute, reserved ones too
    :param refused_a_minute: tokens that they asked for and did not get
    """

    taken_a_minute: int | None
    refused_a_minute: int | None


class Limits(Struct, frozen=True):
    """All rate limits, by name."""

    rate_limits: tuple[RateLimitView, ...]
