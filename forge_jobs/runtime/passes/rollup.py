"""Folds the counters of all pods into one row per queue and minute."""

from datetime import timedelta

from forge_jobs.clock import Clock
from forge_jobs.runtime.passes.batches import BUDGET, BatchReport, in_batches
from forge_jobs.storage.protocols import JobStore

ROLLUP_BATCH = 1_000


async def roll_up_once(
    jobs: JobStore,
    *,
    clock: Clock | None = None,
    batch: int = ROLLUP_BATCH,
    budget: timedelta = BUDGET,
) -> BatchReport:
    """Fold closed minutes in bounded batches, oldest first, until none is left.

    A gap without a coordinator, however long, is made up for by the first passes after it.
    Sums are right also where the budget ends a pass early.
    """
    return await in_batches(jobs.roll_up, batch, budget, clock)
