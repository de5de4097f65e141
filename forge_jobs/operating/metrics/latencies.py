"""How long jobs took of late: percentiles from the histograms that pods have stored."""

from collections.abc import Iterable
from datetime import timedelta

from msgspec import Struct

from forge_jobs.model.metrics import Histogram, MetricBucket
from forge_jobs.operating.words import duration
from forge_jobs.policy.percentiles import percentile
from forge_jobs.storage.protocols import Storage

LAST_HOUR = timedelta(hours=1)

_NONE = Histogram({})


class Percentiles(Struct, frozen=True):
    """Seconds, each at most 5 % off. None without a sample."""

    p50: float | None
    p95: float | None
    p99: float | None


class QueueStats(Struct, frozen=True, kw_only=True):
    """The attempts of one queue in a span of time.

    :param counts: by the names of the counters
    :param run: from the start of the handler to its end
    :param total: from due to the end of the run
    """

    queue: str
    counts: dict[str, int]
    run: Percentiles
    total: Percentiles


class Stats(Struct, frozen=True):
    """How recent attempts ended and how long they took, per queue."""

    queues: tuple[QueueStats, ...]


async def read_stats(store: Storage, queues: Iterable[str], over: timedelta) -> list[QueueStats]:
    """The queues' statistics of the last ``over``, by the store's time and whole minutes."""
    now = await store.cron.now()
    names = list(queues)
    found = await store.jobs.summaries(names, now - over, now + timedelta(minutes=1))
    return [_stats(name, found.get(name)) for name in names]


def _stats(queue: str, span: MetricBucket | None) -> QueueStats:
    if span is None:
        return QueueStats(
            queue=queue, counts={}, run=percentiles_of(_NONE), total=percentiles_of(_NONE)
        )
    return QueueStats(
        queue=queue,
        counts=dict(span.counts),
        run=percentiles_of(span.processing),
        total=percentiles_of(span.total),
    )


def percentiles_of(histogram: Histogram) -> Percentiles:
    """Return the percentiles of a histogram."""
    return Percentiles(*(percentile(histogram, q) for q in (0.5, 0.95, 0.99)))


def shown(seconds: float | None) -> str:
    """A percentile for people. "-" for none."""
    return duration(None if seconds is None else timedelta(seconds=seconds))
