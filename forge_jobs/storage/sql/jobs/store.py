"""The jobs of a SQL store: each method is one transaction script."""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from forge_jobs.errors import Locked, StorageError
from forge_jobs.model.actions import ActionStep
from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.filters import BulkOutcome, JobFilter, Refusal
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import Claim, EnqueueOutcome, Job, NewJob
from forge_jobs.model.letters import Letter
from forge_jobs.model.metrics import LatencySample
from forge_jobs.model.processes import Beat, HeldClaim, PodLease
from forge_jobs.model.progress import JobState, LogPage, ProgressNote
from forge_jobs.model.queues import Wake
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
from forge_jobs.reports import reporter
from forge_jobs.storage.changes import Changes
from forge_jobs.storage.salvage import log_set_aside
from forge_jobs.storage.sql.actions.calls import RecordCalls
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.job_rows import Picked, Unreadable, claimed_jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.base.unreadable import give_back
from forge_jobs.storage.sql.config.queues import list_again, unlisted
from forge_jobs.storage.sql.fleet import set_back
from forge_jobs.storage.sql.history.store import SqlHistory
from forge_jobs.storage.sql.jobs import (
    children,
    claim,
    finalize,
    heartbeat,
    metrics,
    operate,
    read,
    struck,
)
from forge_jobs.storage.sql.jobs.cleanup.passes import Cleaner
from forge_jobs.storage.sql.jobs.deliveries import deliver
from forge_jobs.storage.sql.jobs.enqueue import enqueue
from forge_jobs.storage.sql.jobs.lists.numbers import SqlNumbers
from forge_jobs.storage.sql.jobs.looks.calls import ListCalls
from forge_jobs.storage.sql.jobs.one.calls import OneJobCalls
from forge_jobs.storage.sql.letters.read import forget_letters, list_letters
from forge_jobs.storage.sql.progress import read as progress_read
from forge_jobs.storage.sql.progress import steps
from forge_jobs.storage.sql.progress.notes import START, forget_orphans, note_progress, orphans

R = TypeVar("R")
logger = reporter(__name__)

ORPHANS_AT_ONCE = 20  # jobs that are gone whose notes one step removes


class SqlJobStore(SqlHistory, SqlNumbers, RecordCalls, OneJobCalls, ListCalls):
    """:class:`~forge_jobs.storage.protocols.JobStore` on SQL."""

    def __init__(self, database: Database) -> None:
        self.store_id = database.store_id
        self.enqueue_at_once = 10_000
        self.exchange_at_once = 1_000
        self._database = database
        self._cleaner = Cleaner(database)
        self._swept_past: Mapping[str, str] = START
        self._changes = Changes(database.all_wakeups, database.wait, database.send)

    # -- in ----------------------------------------------------------------------------------

    async def enqueue(
        self, requests: Sequence[NewJob], *, connection: object | None = None
    ) -> list[EnqueueOutcome]:
        # Other calls share the transaction, and need not wait for rows that a caller has locked.
        return await self._write(lambda tx: enqueue(tx, requests), connection, patient=False)

    # No coroutine of its own, as in the database.

    def _write(
        self, script: Callable[[Tx], R], connection: object | None, *, patient: bool = True
    ) -> Coroutine[Any, Any, R]:
        """Run the script in a transaction of the store's own, or in the caller's."""
        database = self._database
        if connection is None:
            return database.write(script, patient=patient)
        # This import brings SQLAlchemy's ORM, a sixth of the imports of a command on SQLite.
        from forge_jobs.storage.sql.base.callers import run_in_callers_transaction

        return run_in_callers_transaction(connection, script, database.flavor, database.store_id)

    # -- claims ------------------------------------------------------------------------------

    async def _set_aside(self, unreadable: Sequence[Unreadable]) -> None:
        """Put claimed jobs on hold that cannot be read.

        The caller's claims must survive an error here. The pod's next beat names a claim that stays
        as unknown, and hands it back.
        """
        if not unreadable:
            return
        for each in unreadable:
            log_set_aside(each.claim.queue, each.claim.job_id, each.reason)
        claim = [each.claim for each in unreadable]
        with suppress(StorageError):
            await self._database.write(lambda tx: give_back(tx, claim))

    async def finalize(
        self, finalizations: Sequence[Finalization], *, connection: object | None = None
    ) -> list[bool | None]:
        return await self._write(lambda tx: finalize.finalize(tx, finalizations), connection)

    async def exchange(
        self, queue: str, finalizations: Sequence[Finalization], demand: Demand, lease: PodLease
    ) -> Exchange:
        def script(tx: Tx) -> tuple[list[bool | None], Picked, timedelta | None]:
            settled = finalize.finalize(tx, finalizations) if finalizations else []
            picked = tx.flavor.claim(tx, queue, demand, lease)
            next_due_in = timedelta(0) if picked.is_cut else None
            if len(picked.rows) < demand.limit and not picked.is_cut:
                next_due_in = claim.next_due_in(tx, queue)
            return settled, picked, next_due_in

        def answer(
            done: tuple[list[bool | None], Picked, timedelta | None],
        ) -> tuple[Exchange, list[Unreadable]]:
            settled, picked, next_due_in = done
            claimed, unreadable = claimed_jobs(picked.rows, lease.host_id)
            # Jobs behind those set aside are due too.
            next_due_in = timedelta(0) if unreadable else next_due_in
            exchange = Exchange(tuple(settled), tuple(claimed), next_due_in, picked.goes_on)
            return exchange, unreadable

        exchange, unreadable = await self._database.write_then(
            script, answer, synced=bool(finalizations)
        )
        if unreadable:
            await self._set_aside(unreadable)
        return exchange

    async def record_start(self, claims: Sequence[Claim]) -> list[bool]:
        return await self._database.write(lambda tx: heartbeat.record_start(tx, claims))

    async def heartbeat(
        self, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta
    ) -> Beat:
        return await self._database.write(
            lambda tx: heartbeat.heartbeat(tx, lease, claims, lease_for)
        )

    async def release(self, claims: Sequence[Claim]) -> list[bool | None]:
        return await self._database.write(lambda tx: finalize.release(tx, claims))

    async def stale_claims(self, stale_after: timedelta, limit: int) -> StaleClaims:
        return await self._database.read(lambda tx: finalize.stale_claims(tx, stale_after, limit))

    async def revive(self, revivals: Sequence[Revival], stale_after: timedelta) -> list[bool]:
        return await self._database.write(lambda tx: finalize.revive(tx, revivals, stale_after))

    # -- operators ---------------------------------------------------------------------------

    async def cancel(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        return await self._visit(operate.cancel, which, cursor, limit, step)

    async def delete(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        return await self._visit(operate.delete_jobs, which, cursor, limit, step)

    async def requeue(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        return await self._visit(operate.requeue, which, cursor, limit, step)

    async def restore(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        return await self._visit(operate.restore, which, cursor, limit, step)

    async def run_now(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        return await self._visit(operate.run_now, which, cursor, limit, step)

    async def _visit(
        self,
        verb: Callable[[Tx, operate.Visit], BulkOutcome],
        which: JobFilter,
        cursor: str | None,
        limit: int,
        step: ActionStep | None,
    ) -> BulkOutcome:
        visit = await self._database.read(lambda tx: operate.find(tx, which, cursor, limit, step))
        if not visit.ids:
            return await self._noted(visit, BulkOutcome((), (), {}, visit.cursor))
        return await self._visited(verb, visit)

    async def _visited(
        self, verb: Callable[[Tx, operate.Visit], BulkOutcome], visit: operate.Visit
    ) -> BulkOutcome:
        """Run the verb in one transaction, or by halves where the database refuses a job."""
        try:
            return await self._database.write(lambda tx: verb(tx, visit), patient=False)
        except Locked:
            if len(visit.ids) == 1:
                return await self._noted(visit, operate.refused(visit, Refusal.LOCKED))
        except operate.Referenced as reason:
            if len(visit.ids) == 1:
                logger.warning(
                    "job %s cannot be deleted, and others can. Delete the referring rows first: %s",
                    visit.ids[0],
                    reason,
                )
                return await self._noted(visit, operate.refused(visit, Refusal.REFERENCED))
        return operate.joined([await self._visited(verb, half) for half in visit.halves()])

    async def _noted(self, visit: operate.Visit, outcome: BulkOutcome) -> BulkOutcome:
        note = partial(operate.note, visit=visit, outcome=outcome)
        return outcome if visit.step is None else await self._database.write(note)

    async def bring_back_jobs(self, limit: int) -> int:
        return await set_back.bring_back_jobs(self._database, limit)

    async def release_held(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        return await self._visit(operate.release_held, which, cursor, limit, step)

    async def expire(self, limit: int) -> int:
        return await self._database.write(lambda tx: operate.expire(tx, limit))

    # -- children ----------------------------------------------------------------------------

    async def handovers(self, limit: int) -> list[Handover]:
        return await self._database.read(lambda tx: children.list_handovers(tx, limit))

    async def deliver(self, deliveries: Sequence[Delivery]) -> int:
        return await self._database.write(lambda tx: deliver(tx, deliveries))

    # -- letters -----------------------------------------------------------------------------

    async def letters(
        self, limit: int, *, skip: Collection[str] = (), not_to: Collection[str] = ()
    ) -> list[Letter]:
        return await self._database.read(lambda tx: list_letters(tx, limit, skip, not_to))

    async def forget_letters(self, letters: Sequence[Letter]) -> None:
        await self._database.write(lambda tx: forget_letters(tx, letters))

    # -- reads -------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> dict[JobId, Job]:
        return await self._database.read(lambda tx: read.get(tx, ids))

    async def wait_for_work(
        self, queues: frozenset[str], at_most: timedelta, waiter: object | None = None
    ) -> Wake:
        return await self._database.wait(queues, at_most, waiter)

    def wake(self, wake: Wake) -> None:
        self._database.wake(wake)

    # -- progress ----------------------------------------------------------------------------

    async def note_progress(self, notes: Sequence[ProgressNote]) -> list[bool | None]:
        # A loss of power may cost the last second of lines, as the end of the process does.
        return await self._database.write(
            lambda tx: note_progress(tx, notes), patient=False, synced=False
        )

    async def states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        return await self._database.read(lambda tx: progress_read.states(tx, ids))

    def announce_changes(self, queues: Iterable[str] | None) -> None:
        self._changes.announce(queues)

    async def wait_for_changes(
        self, queues: frozenset[str], at_most: timedelta, waiter: object
    ) -> frozenset[str]:
        return await self._changes.wait(queues, at_most, waiter)

    async def job_log(
        self, job_id: JobId, *, attempt: int | None = None, after: int = 0, limit: int = 1000
    ) -> LogPage:
        return await self._database.read(
            lambda tx: progress_read.job_log(tx, job_id, attempt, after, limit)
        )

    async def save_checkpoint(self, claim: Claim, text: str) -> bool | None:
        return await self._database.write(
            lambda tx: steps.save_checkpoint(tx, claim, text), patient=False
        )

    async def checkpoint(self, job_id: JobId) -> str | None:
        return await self._database.read(lambda tx: steps.checkpoint(tx, job_id))

    async def first_time(self, claim: Claim, step: str, *, connection: object) -> bool:
        return await self._write(lambda tx: steps.first_time(tx, claim, step), connection)

    # -- bookkeeping -------------------------------------------------------------------------

    async def append_events(self, events: Sequence[TimelineEvent]) -> list[TimelineEvent]:
        await self._database.write(lambda tx: metrics.append_events(tx, events))
        return []

    async def events(
        self, *, job_id: JobId | None = None, queue: str | None = None, limit: int = 100
    ) -> list[TimelineEvent]:
        return await self._database.read(lambda tx: metrics.read_events(tx, job_id, queue, limit))

    async def add_latencies(
        self, host_id: HostId, samples: Sequence[LatencySample]
    ) -> list[LatencySample]:
        await self._database.write(lambda tx: metrics.add_latencies(tx, host_id, samples))
        return []

    async def roll_up(self, limit: int) -> int:
        return await self._database.write(lambda tx: metrics.roll_up(tx, limit))

    async def release_struck(self, in_force: Collection[str], limit: int) -> int:
        # Without the lock of writers, because most often there is nothing to write.
        marks = await self._database.read(lambda tx: struck.left_marks(tx, in_force))
        released = 0
        for start in range(0, len(marks), struck.MARKS_AT_ONCE):
            some = marks[start : start + struck.MARKS_AT_ONCE]
            left = limit - released
            released += await self._database.write(partial(struck.release, marks=some, limit=left))
            if released >= limit:
                break
        return released

    async def sweep(self, limit: int) -> Swept:
        # What belongs together is one transaction, except for queues that were deleted beside a
        # call under way, and what a program of an earlier release does not know.
        past = self._swept_past
        names, (gone, self._swept_past) = await self._database.read(
            lambda tx: (unlisted(tx), orphans(tx, past, limit))
        )
        if names:
            await self._database.write(lambda tx: list_again(tx, names))
        # A job has up to a thousand lines per attempt, so these are short steps.
        for start in range(0, len(gone), ORPHANS_AT_ONCE):
            some = gone[start : start + ORPHANS_AT_ONCE]
            await self._database.write(partial(forget_orphans, ids=some))
        return Swept(queues=names, orphaned=len(gone))

    async def cleanup(
        self, limit: int, rest: object | None = None, *, kept: Kept = KEPT
    ) -> Cleaned:
        return await self._cleaner.cleanup(limit, rest, kept)
