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
"""Reasons, in the gauges of a pod."""

_OTHERS = 2
"""How much longer than a batch the pause after it is."""

_elapsed = SystemClock().elapsed


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


class CleanupReport(Struct, frozen=True):
    """What one batch did.

    :param rows: that went
    :param next_in: until the next batch of this pass; None: the pass has ended
    """

    rows: int
    next_in: timedelta | None


class Cleanup:
    """Passes of retention, batch by batch, until nothing is left that has to go.

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
        """What did not let jobs go in the last whole pass, one line for each reason."""

    async def go_on(self) -> CleanupReport:
        """One batch. Before the next one others go first, for twice as long as this one took."""
        began = _elapsed()
        cleaned = await self._jobs.cleanup(self._batch, self._rest, kept=self._kept)
        took = timedelta(seconds=_elapsed() - began)
        self._rest = cleaned.rest
        self._tell(cleaned.held)
        if self._rest is None:
            self.in_the_way = tuple(
                f"job {job_id}: {reason}" for reason, job_id in sorted(self._in_the_way.items())
            )[:_MOST_NAMED]
            self._in_the_way = {}
        return CleanupReport(cleaned.removed, None if self._rest is None else _OTHERS * took)

    def give_up(self) -> None:
        """Another pod's pass goes on in place of this one."""
        self._rest = None
        self._in_the_way, self.in_the_way = {}, ()

    def _tell(self, held: Mapping[JobId, str]) -> None:
        """Log what is in the way, each thing once."""
        for job_id, reason in held.items():
            self._in_the_way.setdefault(reason, job_id)
            if self._logged.is_new(reason):
                logger.warning(
                    "job %s is past its retention and stays: %s does not let it go. All others "
                    "were removed; delete what refers to it, or let the reference follow with "
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

    A gap without a coordinator, however long, is made up for by the first passes after it.
    Sums are right also where the budget ends a pass early.
    """
    return await in_batches(jobs.roll_up, batch, budget, clock)


HANDOVER_BATCH = 500
"""Bounds how long one delivery holds the store's write lock."""


async def hand_over_once(jobs: JobStore, sender: BisectingSender | None = None) -> int:
    """Deliver all news that wait, and the news that arise from them; how many were applied.

    A chain of cancelled jobs, however deep, is settled by one pass. Any number of pods may do
    this at the same time: each piece of news is applied once.

    :param sender: kept from pass to pass; what it has set aside keeps no other news waiting
    """
    sender = BisectingSender("news for a child") if sender is None else sender
    applied = 0
    tried: set[str] = set()
    while True:
        aside = sender.waiting
        limit = HANDOVER_BATCH + len(tried) + len(aside)
        found = await jobs.handovers(limit)
        # What was delivered and is there again waits for somebody's transaction: look behind it.
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
        tried = waiting.union(handover.id for handover in batch)


def _key(handover: Handover) -> str:
    """What names the news in the log too."""
    return f"{handover.child_id} of its parent {handover.parent_id}"


SWEEP_LIMIT = 2_000
"""How many jobs one pass looks at."""

_NAMED = 10
"""How many jobs a line of the log names."""


async def sweep_once(jobs: JobStore, *, events: EventBuffer) -> Swept:
    """One pass; what it has mended is logged, and told on the timelines of the jobs."""
    swept = await jobs.sweep(SWEEP_LIMIT)
    for found, what in (
        (swept.told, "nobody would have told it how a parent ended"),
        (swept.located, "it could not be found by its id"),
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
            "listed again: the queues %s. They are used and were missing, after lost writes or as "
            "they were deleted beside a call under way",
            ", ".join(swept.queues),
        )
    if swept.forgotten:
        logger.info("took away %d ids of jobs that are not stored", swept.forgotten)
    return swept
