"""The jobs of a Redis store: each method is one script per queue concerned, or a few."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from forge_jobs.errors import InvalidInput
from forge_jobs.model.actions import ActionStep
from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.filters import BulkOutcome, JobFilter
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import Claim, EnqueueOutcome, Job, NewJob
from forge_jobs.model.letters import Letter
from forge_jobs.model.metrics import LatencySample, MetricBucket
from forge_jobs.model.processes import Beat, HeldClaim, PodLease
from forge_jobs.model.progress import JobState, LogPage, ProgressNote
from forge_jobs.model.queues import QueueCounts, Wake
from forge_jobs.model.retention import KEPT, Cleaned, Kept
from forge_jobs.model.sweeps import Swept
from forge_jobs.model.transitions import (
    Delivery,
    Demand,
    Exchange,
    Finalization,
    Handover,
    Revival,
    StaleClaims,
)
from forge_jobs.storage.batches import check_batch
from forge_jobs.storage.changes import Changes
from forge_jobs.storage.cursors import check_ended
from forge_jobs.storage.redis.actions.calls import RecordCalls
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.fleet import set_back
from forge_jobs.storage.redis.history.store import RedisHistory
from forge_jobs.storage.redis.jobs import (
    children,
    claim,
    cleanup,
    heartbeat,
    metrics,
    operate,
    read,
)
from forge_jobs.storage.redis.jobs.enqueue import enqueue
from forge_jobs.storage.redis.jobs.looks.calls import ListCalls
from forge_jobs.storage.redis.jobs.one.calls import OneJobCalls
from forge_jobs.storage.redis.jobs.struck import release_struck
from forge_jobs.storage.redis.jobs.sweep import Sweeper
from forge_jobs.storage.redis.letters.read import forget_letters, read_letters
from forge_jobs.storage.redis.locators.late import LateLocators
from forge_jobs.storage.redis.progress import read as progress_read
from forge_jobs.storage.redis.progress import steps
from forge_jobs.storage.redis.progress.notes import note_progress
from forge_jobs.storage.wakeups import wakeups_of


class RedisJobStore(RedisHistory, RecordCalls, OneJobCalls, ListCalls):
    """:class:`~forge_jobs.storage.protocols.JobStore` on Redis and Valkey."""

    def __init__(self, database: Database) -> None:
        self.store_id = database.store_id
        # At 10 to 20 us each, and all other calls of the server wait as long.
        self.enqueue_at_once = 200
        self.exchange_at_once = claim.CLAIMS_AT_ONCE
        self._database = database
        self._late_locators = LateLocators(database)
        self._sweeper = Sweeper(database)
        self._cleaner = cleanup.Cleaner(database)
        self._beats = heartbeat.Beats(database)
        self._changes = Changes(
            lambda: wakeups_of(database.store_id), database.hear, database.hints.send
        )

    # -- in ----------------------------------------------------------------------------------

    async def enqueue(
        self, requests: Sequence[NewJob], *, connection: object | None = None
    ) -> list[EnqueueOutcome]:
        _check_none(connection)
        check_batch(requests)
        return await enqueue(self._database, requests, late=self._late_locators.add)

    # -- claims ------------------------------------------------------------------------------

    async def finalize(
        self, finalizations: Sequence[Finalization], *, connection: object | None = None
    ) -> list[bool]:
        _check_none(connection)
        return await claim.finalize(self._database, finalizations)

    async def exchange(
        self, queue: str, finalizations: Sequence[Finalization], demand: Demand, lease: PodLease
    ) -> Exchange:
        return await claim.exchange(self._database, queue, finalizations, demand, lease)

    async def record_start(self, claims: Sequence[Claim]) -> list[bool]:
        return await claim.record_start(self._database, claims)

    async def heartbeat(
        self, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta
    ) -> Beat:
        return await self._beats.heartbeat(lease, claims, lease_for)

    async def release(self, claims: Sequence[Claim]) -> list[bool]:
        return await claim.release(self._database, claims)

    async def stale_claims(self, stale_after: timedelta, limit: int) -> StaleClaims:
        return await claim.stale_claims(self._database, stale_after, limit)

    async def revive(self, revivals: Sequence[Revival], stale_after: timedelta) -> list[bool]:
        return await claim.revive(self._database, revivals, stale_after)

    # -- operators ---------------------------------------------------------------------------

    async def cancel(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        return await operate.operate(self._database, "cancel", which, cursor, limit, step=step)

    async def delete(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        return await operate.operate(self._database, "delete", which, cursor, limit, step=step)

    async def requeue(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        return await operate.operate(self._database, "requeue", which, cursor, limit, step=step)

    async def restore(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        return await operate.operate(self._database, "restore", which, cursor, limit, step=step)

    async def release_held(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        return await operate.operate(
            self._database, "release_held", which, cursor, limit, step=step
        )

    async def run_now(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        return await operate.operate(self._database, "run_now", which, cursor, limit, step=step)

    async def bring_back_jobs(self, limit: int) -> int:
        return await set_back.bring_back_jobs(self._database, limit)

    async def expire(self, limit: int) -> int:
        return await operate.expire(self._database, limit)

    # -- children ----------------------------------------------------------------------------

    async def handovers(self, limit: int) -> list[Handover]:
        return await children.handovers(self._database, limit)

    async def deliver(self, deliveries: Sequence[Delivery]) -> int:
        return await children.deliver(self._database, deliveries)

    # -- letters -----------------------------------------------------------------------------

    async def letters(
        self, limit: int, *, skip: Collection[str] = (), not_to: Collection[str] = ()
    ) -> list[Letter]:
        return await read_letters(self._database, limit, skip, not_to)

    async def forget_letters(self, letters: Sequence[Letter]) -> None:
        await forget_letters(self._database, letters)

    # -- reads -------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> dict[JobId, Job]:
        return await read.get(self._database, ids, self._late_locators.queues)

    async def counts(
        self, queues: Sequence[str] | None = None, *, ended_at_most: int | None = None
    ) -> dict[str, QueueCounts]:
        check_ended(ended_at_most)
        return await read.counts(self._database, queues)

    async def wait_for_work(
        self, queues: frozenset[str], at_most: timedelta, waiter: object | None = None
    ) -> Wake:
        return await self._database.wait(queues, at_most, waiter)

    def wake(self, wake: Wake) -> None:
        self._database.wake(wake)

    # -- progress ----------------------------------------------------------------------------

    async def note_progress(self, notes: Sequence[ProgressNote]) -> list[bool | None]:
        return await note_progress(self._database, notes)

    async def states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        return await progress_read.states(self._database, ids, self._late_locators.queues)

    def announce_changes(self, queues: Iterable[str] | None) -> None:
        self._changes.announce(queues)

    async def wait_for_changes(
        self, queues: frozenset[str], at_most: timedelta, waiter: object
    ) -> frozenset[str]:
        return await self._changes.wait(queues, at_most, waiter)

    async def job_log(
        self, job_id: JobId, *, attempt: int | None = None, after: int = 0, limit: int = 1000
    ) -> LogPage:
        late = self._late_locators.queues
        return await progress_read.job_log(
            self._database, job_id, late, attempt=attempt, after=after, limit=limit
        )

    async def save_checkpoint(self, claim: Claim, text: str) -> bool | None:
        return await steps.save_checkpoint(self._database, claim, text)

    async def checkpoint(self, job_id: JobId) -> str | None:
        return await steps.checkpoint(self._database, job_id)

    async def first_time(self, claim: Claim, step: str, *, connection: object) -> bool:
        raise InvalidInput(
            "connection",
            "is of a database, and this store keeps its jobs in Redis",
            "make the step safe to repeat, for example by a row with the job's id as unique key",
        )

    # -- bookkeeping -------------------------------------------------------------------------

    async def append_events(self, events: Sequence[TimelineEvent]) -> list[TimelineEvent]:
        return await metrics.append_events(self._database, events)

    async def events(
        self, *, job_id: JobId | None = None, queue: str | None = None, limit: int = 100
    ) -> list[TimelineEvent]:
        return await metrics.read_events(self._database, job_id, queue, limit)

    async def add_latencies(
        self, host_id: HostId, samples: Sequence[LatencySample]
    ) -> list[LatencySample]:
        return await metrics.add_latencies(self._database, host_id, samples)

    async def metrics(self, queue: str, since: datetime, until: datetime) -> list[MetricBucket]:
        return await metrics.metrics(self._database, queue, since, until)

    async def summaries(
        self, queues: Sequence[str], since: datetime, until: datetime
    ) -> dict[str, MetricBucket]:
        return await metrics.summaries(self._database, queues, since, until)

    async def roll_up(self, limit: int) -> int:
        return await metrics.roll_up(self._database, limit)

    async def release_struck(self, in_force: Collection[str], limit: int) -> int:
        return await release_struck(self._database, in_force, limit)

    async def sweep(self, limit: int) -> Swept:
        return await self._sweeper.sweep(limit)

    async def cleanup(
        self, limit: int, rest: object | None = None, *, kept: Kept = KEPT
    ) -> Cleaned:
        return await self._cleaner.cleanup(limit, rest, kept)


def _check_none(connection: object | None) -> None:
    if connection is not None:
        raise InvalidInput(
            "connection",
            "is given, and this store has no transactions of yours",
            "leave it out, or keep jobs in your SQL database",
        )
