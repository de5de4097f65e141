"""How long jobs took of late: percentiles from the histograms that pods have stored."""

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

from msgspec import Struct

from forge_jobs.model.metrics import Histogram, MetricBucket
from forge_jobs.operating.words import duration
from forge_jobs.policy.percentiles import add, percentile
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
    until = now + timedelta(minutes=1)
    return [_stats(queue, await store.jobs.metrics(queue, now - over, until)) for queue in queues]


def _stats(queue: str, minutes: Iterable[MetricBucket]) -> QueueStats:
    counts: Counter[str] = Counter()
    run = total = _NONE
    for each in minutes:
        counts.update(each.counts)
        run, total = add(run, each.processing), add(total, each.total)
    return QueueStats(
        queue=queue, counts=dict(counts), run=_percentiles(run), total=_percentiles(total)
    )


def _percentiles(histogram: Histogram) -> Percentiles:
    return Percentiles(*(percentile(histogram, q) for q in (0.5, 0.95, 0.99)))


def shown(seconds: float | None) -> str:
    """A percentile for people. "-" for none."""
    return duration(None if seconds is None else timedelta(seconds=seconds))
