"""Sums of several queues over a span of time, in one read."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import bindparam, func, select

from forge_jobs.clock import to_us
from forge_jobs.model.metrics import MetricBucket
from forge_jobs.storage.history.summaries import Summary
from forge_jobs.storage.salvage import counts_of, names_of, tally
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import counters, hours, latencies
from forge_jobs.storage.sql.base.transaction import Tx

_COUNTED = (
    select(counters.c.queue, counters.c.name, func.sum(counters.c.count).label("total"))
    .where(
        one_of(counters.c.queue, "names"),
        counters.c.minute >= bindparam("since"),
        counters.c.minute < bindparam("until"),
    )
    .group_by(counters.c.queue, counters.c.name)
)
_MEASURED = select(latencies.c.queue, latencies.c.processing, latencies.c.total).where(
    one_of(latencies.c.queue, "names"),
    latencies.c.minute >= bindparam("since"),
    latencies.c.minute < bindparam("until"),
)
_HOURS = select(hours).where(
    one_of(hours.c.queue, "names"),
    hours.c.hour >= bindparam("since"),
    hours.c.hour < bindparam("until"),
)


def summaries(
    tx: Tx, queues: Iterable[str], since: datetime, until: datetime
) -> dict[str, MetricBucket]:
    """See ``JobStore.summaries``."""
    found: defaultdict[str, Summary] = defaultdict(Summary)
    for names in portions(queues):
        _read(tx, names, since, until, found)
    return {queue: each.bucket(queue, since, until) for queue, each in found.items()}


def _read(
    tx: Tx, names: Sequence[str], since: datetime, until: datetime, found: dict[str, Summary]
) -> None:
    asked = {"names": list(names), "since": to_us(since), "until": to_us(until)}
    for row in tx.execute(_COUNTED, asked):
        found[row.queue].counts[str(row.name)] += tally(int(row.total))
    for row in tx.execute(_MEASURED, asked):
        found[row.queue].add(
            Counter(), counts_of(row.queue, row.processing), counts_of(row.queue, row.total)
        )
    for row in tx.execute(_HOURS, asked):
        found[row.queue].add(
            names_of(row.queue, row.counts),
            counts_of(row.queue, row.processing),
            counts_of(row.queue, row.total),
        )
