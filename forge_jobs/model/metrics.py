"""Counters, latency histograms and minute buckets. Arithmetic on them is in ``policy``."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import PodGauges

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Histogram(Struct, frozen=True):
    """Durations counted in logarithmic buckets. Adding two adds their counts.

    :param counts: bucket index -> count. See ``policy.percentiles`` for the bounds
    """

    counts: Mapping[int, int]


class LatencySample(Struct, frozen=True, kw_only=True):
    """Durations that one pod measured on one queue in one minute.

    :param minute: start of the minute
    :param processing: from the start of the handler to its end
    :param total: from due to the end of the run
    """

    queue: str
    minute: datetime
    processing: Histogram
    total: Histogram


class MetricBucket(Struct, frozen=True, kw_only=True):
    """The counts of a queue over all pods, for a minute or, later, for a whole hour.

    :param minute: start of the minute or hour
    :param length: a minute, or an hour
    :param counts: exact. The keys are ``Cause`` values, ``deduplicated`` and ``claimed``
    :param processing: not exact: buffered by the pods, lost with a killed one
    :param total: as ``processing``
    """

    queue: str
    minute: datetime
    counts: Mapping[str, int]
    processing: Histogram
    total: Histogram
    length: timedelta = MINUTE


class PodMinute(Struct, frozen=True, kw_only=True):
    """The gauges of a pod in a minute or, later, the last ones of an hour.

    :param minute: start of the minute or hour
    :param length: a minute, or an hour
    """

    host_id: HostId
    minute: datetime
    gauges: PodGauges
    length: timedelta = MINUTE
