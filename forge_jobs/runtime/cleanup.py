"""Removes what retention no longer keeps."""

from datetime import timedelta

from forge_jobs.clock import Clock
from forge_jobs.runtime.batches import BUDGET, BatchReport, in_batches
from forge_jobs.storage.protocols import JobStore

CLEANUP_BATCH = 500


async def clean_up_once(
    jobs: JobStore,
    *,
    clock: Clock | None = None,
    batch: int = CLEANUP_BATCH,
    budget: timedelta = BUDGET,
) -> BatchReport:
    """Remove in bounded batches until nothing is left to remove or ``budget`` is used up."""
    return await in_batches(jobs.cleanup, batch, budget, clock)
