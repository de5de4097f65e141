"""Housekeeping: retention, roll-up, hand-over and sweep, in short batches."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from msgspec import Struct

from forge_jobs import stop_points
from forge_jobs.clock import Clock, SystemClock
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import JobId
from forge_jobs.model.retention import KEPT, Kept
from forge_jobs.model.sweeps import Swept
from forge_jobs.model.transitions import Handover
from forge_jobs.outages import Outage
from forge_jobs.policy.dependencies import delivery
from forge_jobs.reports import reporter
from forge_jobs.runtime.passes.bisecting import BisectingSender
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.storage.protocols import JobStore

logger = reporter(__name__)

BUDGET = timedelta(seconds=20)
"""No further batch of a pass is begun after this long."""

BATCH = 5_000

_MOST_NAMED = 10
"""Reasons named in the gauges of a pod."""

_OTHERS = 2
"""The pause after a batch is this many times as long as the batch."""

_elapsed = SystemClock().elapsed


class BatchReport(Struct, frozen=True):
    """The result of one pass.

    :param rows: over all batches
    :param finished: False when the time budget ended the pass, so that rows wait for the next pass
    """

    rows: int
    finished: bool


async def in_batches(
    call: Callable[[int], Awaitable[int]], batch: int, budget: timedelta, clock: Clock | None
) -> BatchReport:
    """Repeat ``call(batch)``, which returns the number of rows, until there are fewer."""
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


class CleanupReport(Struct, frozen=True):
    """The result of one batch.

    :param rows: removed rows
    :param next_in: until the next batch of this pass. None: the pass has ended
    """

    rows: int
    next_in: timedelta | None


class Cleanup:
    """Passes of retention, batch by batch, until nothing is left to remove.

    :param kept: how long the history stays
    """

    def __init__(self, jobs: JobStore, *, batch: int = BATCH, kept: Kept = KEPT) -> None:
        self._jobs = jobs
        self._batch = batch
        self._kept = kept
        self._rest: object | None = None
        self._logged = Outage()
        self._in_the_way: dict[str, JobId] = {}
        self.in_the_way: tuple[str, ...] = ()
        """References that kept jobs from removal in the last whole pass, a line for each reason."""

    async def go_on(self) -> CleanupReport:
        """Remove one batch. The pause after it, twice as long, is for other callers."""
        began = _elapsed()
        cleaned = await self._jobs.cleanup(self._batch, self._rest, kept=self._kept)
        took = timedelta(seconds=_elapsed() - began)
        self._rest = cleaned.rest
        self._log_held(cleaned.held)
        if self._rest is None:
            self.in_the_way = tuple(
                f"job {job_id}: {reason}" for reason, job_id in sorted(self._in_the_way.items())
            )[:_MOST_NAMED]
            self._in_the_way = {}
        return CleanupReport(cleaned.removed, None if self._rest is None else _OTHERS * took)

    def give_up(self) -> None:
        """End the pass here, because another pod cleans up now."""
        self._rest = None
        self._in_the_way, self.in_the_way = {}, ()

    def _log_held(self, held: Mapping[JobId, str]) -> None:
        """Log each reference that keeps jobs from removal, once."""
        for job_id, reason in held.items():
            self._in_the_way.setdefault(reason, job_id)
            if self._logged.is_new(reason):
                logger.warning(
                    "job %s is past its retention and stays, because %s forbids the removal. All "
                    "others were removed. Delete the referring rows, or let them follow with "
                    "ON DELETE CASCADE or SET NULL",
                    job_id,
                    reason,
                )


ROLLUP_BATCH = 1_000


async def roll_up_once(
    jobs: JobStore,
    *,
    clock: Clock | None = None,
    batch: int = ROLLUP_BATCH,
    budget: timedelta = BUDGET,
) -> BatchReport:
    """Fold closed minutes in bounded batches, oldest first, until none is left.

    The first passes after a time without a coordinator, however long, make up for that time. Sums
    are right also where the budget ends a pass early.
    """
    return await in_batches(jobs.roll_up, batch, budget, clock)


HANDOVER_BATCH = 500
"""Bounds how long one delivery holds the store's write lock."""


async def hand_over_once(
    jobs: JobStore,
    sender: BisectingSender | None = None,
    *,
    clock: Clock | None = None,
    budget: timedelta = BUDGET,
) -> int:
    """Deliver all handovers, and those that arise from them. Return how many were applied.

    One pass settles a chain of cancelled jobs, however deep. Any number of pods may do this at the
    same time: each handover is applied once.

    :param sender: kept from pass to pass. Handovers that it has set aside delay no others
    :param budget: no further batch is begun after this long. The rest waits for the next pass
    """
    clock = clock or SystemClock()
    until = clock.elapsed() + budget.total_seconds()
    sender = BisectingSender("the handover to child") if sender is None else sender
    applied = 0
    tried: set[str] = set()
    while True:
        aside = sender.waiting
        limit = HANDOVER_BATCH + len(tried) + len(aside)
        found = await jobs.handovers(limit)
        # A handover that was delivered and is there again waits for a caller's transaction.
        waiting = {
            handover.id for handover in found if handover.id in tried or _key(handover) in aside
        }
        batch = [handover for handover in found if handover.id not in waiting][:HANDOVER_BATCH]
        if not batch:
            return applied
        if stop_points.ARMED:
            await stop_points.reach("handover:read")
        deliveries = [delivery(handover) for handover in batch]
        applied += sum(
            await sender.send(deliveries, jobs.deliver, lambda each: _key(each.handover))
        )
        if stop_points.ARMED:
            await stop_points.reach("handover:committed")
        if clock.elapsed() >= until:
            return applied
        tried = waiting.union(handover.id for handover in batch)


def _key(handover: Handover) -> str:
    """Return the key of a handover, which is also its name in the log."""
    return f"{handover.child_id} of parent {handover.parent_id}"


SWEEP_LIMIT = 2_000
"""Jobs that one pass looks at."""

_NAMED = 10
"""Jobs that a line of the log names."""


async def sweep_once(jobs: JobStore, *, events: EventBuffer) -> Swept:
    """Make one pass. Mended jobs are logged and get an entry in their timelines."""
    swept = await jobs.sweep(SWEEP_LIMIT)
    for found, what in (
        (swept.notified, "the end of a parent had not been delivered"),
        (swept.located, "the id led to no job"),
    ):
        for one in found:
            events.record(EventKind.MENDED, queue=one.queue, job_id=one.job_id, detail=what)
        if found:
            named = ", ".join(one.job_id for one in found[:_NAMED])
            logger.warning(
                "mended %d jobs, among them %s: %s. The store has lost writes, as a failover to a "
                "replica that lags does",
                len(found),
                named,
                what,
            )
    if swept.queues:
        logger.warning(
            "queues in use were missing from the list and are listed again: %s. The store has lost "
            "writes, or the queues were deleted during a call",
            ", ".join(swept.queues),
        )
    if swept.forgotten:
        logger.info("removed %d ids that led to no stored job", swept.forgotten)
    return swept
