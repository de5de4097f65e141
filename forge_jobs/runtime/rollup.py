"""Folds the counters of all pods into one row per queue and minute."""

from datetime import timedelta

from msgspec import Struct

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.storage.protocols import JobStore

ROLLUP_BATCH = 1_000
"""Bounds how long one call holds the store's write lock."""

ROLLUP_BUDGET = timedelta(seconds=20)


class RollupReport(Struct, frozen=True):
    """What one pass folded.

    :param folded: rows of closed minutes
    :param finished: False when the time budget ended the pass; sums are right all the same
    """

    folded: int
    finished: bool


async def roll_up_once(
    jobs: JobStore,
    *,
    clock: Clock | None = None,
    batch: int = ROLLUP_BATCH,
    budget: timedelta = ROLLUP_BUDGET,
) -> RollupReport:
    """Fold closed minutes in bounded batches, oldest first, until none is left.

    A gap without a coordinator, however long, is made up for by the first passes after it.

    :param budget: no further batch is begun after this long
    """
    clock = clock or SystemClock()
    until = clock.elapsed() + budget.total_seconds()
    folded = 0
    while True:
        count = await jobs.roll_up(batch)
        folded += count
        if count < batch:
            return RollupReport(folded, finished=True)
        if clock.elapsed() >= until:
            return RollupReport(folded, finished=False)
