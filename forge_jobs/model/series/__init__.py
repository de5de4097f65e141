"""The series of queues, kinds and the store: what flowed, how long it took, what waited."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.model.metrics import MINUTE, Histogram

MOST_KINDS = 200
"""Kinds of a queue in an hour that have a series. All further kinds are ``OTHER_KINDS``."""

OTHER_KINDS = "other"

_NONE = Histogram({})


class FlowSample(Struct, frozen=True, kw_only=True):
    """Runs of one kind that one pod has seen end in one minute.

    :param minute: start of the minute, of the store's clock
    :param counts: by ``Cause`` value
    :param delay: from due to the start of the handler
    :param processing: from the start of the handler to its end
    :param total: from due to the end of the run
    """

    queue: str
    kind: str
    minute: datetime
    counts: Mapping[str, int]
    delay: Histogram
    processing: Histogram
    total: Histogram


class Depth(Struct, frozen=True, kw_only=True):
    """The work that waits for a queue, and the slots, at one moment.

    :param due: jobs that could be claimed
    :param oldest_due_for: how long the oldest of them has waited. None when nothing is due
    :param granted: slots that pods have
    :param running: jobs in progress
    """

    due: int = 0
    oldest_due_for: timedelta | None = None
    granted: int = 0
    running: int = 0
    max_workers: int = 0


class FlowTotal(Struct, frozen=True, kw_only=True):
    """All that a queue, or a kind of a queue, has counted since the queue exists. Never falls.

    :param kind: "" for the queue
    :param counts: as in :class:`SeriesStep`: exact for a queue, buffered by pods for a kind
    :param delay: as :class:`FlowSample`, as is ``processing``. Empty for a queue
    """

    queue: str
    kind: str
    counts: Mapping[str, int] = {}
    delay: Histogram = _NONE
    processing: Histogram = _NONE


class SeriesAsk(Struct, frozen=True, kw_only=True):
    """A series of several that are read in one call. As the arguments of ``JobStore.series``."""

    since: datetime
    until: datetime
    step: timedelta = MINUTE
    queue: str = ""
    kind: str = ""


class SeriesStep(Struct, frozen=True, kw_only=True):
    """A step of a series.

    :param at: start of the step
    :param length: as asked for, or an hour where minutes are no longer kept
    :param counts: of a queue and of the store the exact counters (``Cause`` values, ``enqueued``,
        ``deduplicated``, ``claimed``) of minutes that are rolled up, of a kind the ends of runs by
        ``Cause`` value, which pods buffer
    :param delay: as :class:`FlowSample`, as are ``processing`` and ``total``. Not exact: buffered
        by the pods
    :param depth: the greatest values of the step. None for a kind, and where no pod has led
    """

    at: datetime
    length: timedelta
    counts: Mapping[str, int] = {}
    delay: Histogram = _NONE
    processing: Histogram = _NONE
    total: Histogram = _NONE
    depth: Depth | None = None
