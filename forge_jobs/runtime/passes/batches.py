"""Housekeeping in bounded batches: none of them holds the store's write lock for long."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from msgspec import Struct

from forge_jobs.clock import Clock, SystemClock

BUDGET = timedelta(seconds=20)
"""No further batch of a pass is begun after this long."""


class BatchReport(Struct, frozen=True):
    """What one pass did.

    :param rows: over all batches
    :param finished: False when the time budget ended the pass, so more waits for the next one
    """

    rows: int
    finished: bool


async def in_batches(
    call: Callable[[int], Awaitable[int]], batch: int, budget: timedelta, clock: Clock | None
) -> BatchReport:
    """Repeat ``call(batch)``, which says how many rows it dealt with, until it finds fewer."""
    clock = clock or SystemClock()
    until = clock.elapsed() + budget.total_seconds()
    rows = 0
    while True:
        count = await call(batch)
        rows += count
        if count < batch:
            return BatchReport(rows, finished=True)
        if clock.elapsed() >= until:
            return BatchReport(rows, finished=False)
