"""Counters, latency histograms and minute buckets. Arithmetic on them is in ``policy``."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import PodGauges

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Histogram(Struct, frozen=True):
    """Durations counted in logarithmic buckets; adding two adds their counts.

    :param counts: bucket index -> count; see ``policy.percentiles`` for the bounds
    """

    counts: Mapping[int, int]


class LatencySample(Struct, frozen=True, kw_only=True):
    """What one pod measured on one queue in one minute.

    :param minute: start of the minute
    :param processing: from the handler's start to its end
    :param total: from due to the end of the run
    """

    queue: str
    minute: datetime
    processing: Histogram
    total: Histogram


class MetricBucket(Struct, frozen=True, kw_only=True):
    """One minute of one queue over all pods, or one hour that is past its minutes.

    :param minute: when it begins
    :param length: a minute, or an hour
    :param counts: exact; the keys are ``Cause`` values, ``deduplicated`` and ``claimed``
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
    """What a pod measured in one minute, or last in an hour that is past its minutes.

    :param minute: when that begins
    :param length: a minute, or an hour
    """

    host_id: HostId
    minute: datetime
    gauges: PodGauges
    length: timedelta = MINUTE
