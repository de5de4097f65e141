"""Removes what retention no longer keeps."""

from datetime import timedelta

from msgspec import Struct

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.storage.protocols import JobStore

CLEANUP_BATCH = 500
"""Bounds how long one call holds the store's write lock."""

CLEANUP_BUDGET = timedelta(seconds=20)


class CleanupReport(Struct, frozen=True):
    """What one pass removed.

    :param removed: rows of any kind
    :param finished: False when the time budget ended the pass, so more waits for the next one
    """

    removed: int
    finished: bool


async def clean_up_once(
    jobs: JobStore,
    *,
    clock: Clock | None = None,
    batch: int = CLEANUP_BATCH,
    budget: timedelta = CLEANUP_BUDGET,
) -> CleanupReport:
    """Remove in bounded batches until nothing is left to remove or ``budget`` is used up.

    :param budget: no further batch is begun after this long
    """
    clock = clock or SystemClock()
    until = clock.elapsed() + budget.total_seconds()
    removed = 0
    while True:
        count = await jobs.cleanup(batch)
        removed += count
        if count < batch:
            return CleanupReport(removed, finished=True)
        if clock.elapsed() >= until:
            return CleanupReport(removed, finished=False)
