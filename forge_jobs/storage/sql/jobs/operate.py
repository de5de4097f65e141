"""Operators' verbs on jobs, in bounded batches that visit in id order."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from msgspec import structs
from sqlalchemy import bindparam, case, delete, select, text, update

from forge_jobs.clock import from_us
from forge_jobs.model.actions import ActionStep, check_step
from forge_jobs.model.edges import EdgeState
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.filters import REFUSED, BulkOutcome, JobFilter, Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, Cause, JobStatus
from forge_jobs.model.unique.keys import key_of
from forge_jobs.storage.cursors import check_cursor, check_limit
from forge_jobs.storage.sql.actions.steps import begin_step, end_step
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.row_locks import LONGER_PAUSES_S, Lockable
from forge_jobs.storage.sql.base.tables import STRUCK, WAITING, edges, jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.children import CUT, forget_edges, tell_children, unsettled_parents
from forge_jobs.storage.sql.jobs.deliveries import unblock_settled
from forge_jobs.storage.sql.jobs.endings import end_waiting
from forge_jobs.storage.sql.jobs.filters import conditions, oldest_ids
from forge_jobs.storage.sql.jobs.matching.terms import with_texts
from forge_jobs.storage.sql.jobs.metrics import append_events
from forge_jobs.storage.sql.jobs.requeue import (
    Relinking,
    parents_known,
    write_requeued,
    write_restored,
)
from forge_jobs.storage.sql.jobs.sequences.leaving import leave_lines
from forge_jobs.storage.sql.jobs.sequences.lines import lock_lines
from forge_jobs.storage.sql.jobs.unique_keys.holders import key_holders
from forge_jobs.storage.sql.progress.notes import forget

_VISITED = select(
    jobs.c.id,
    jobs.c.queue,
    jobs.c.status,
    jobs.c.cause,
    jobs.c.unique_key,
    jobs.c.has_children,
    jobs.c.enqueued_at,
    jobs.c.expires_at,
    jobs.c.run_at,
    jobs.c.requested_run_at,
    jobs.c.hold,
    (jobs.c.payload == "").label("is_dropped"),
)
_ASK = update(jobs).where(one_of(jobs.c.id, "ids")).values(cancel_requested=True)
_DELETE = delete(jobs).where(one_of(jobs.c.id, "ids"))
_SETTLE_HELD = (
    update(edges)
    .where(one_of(edges.c.child_id, "ids"), edges.c.state == EdgeState.HELD.value)
    .values(state=EdgeState.SETTLED.value, link=CUT)
)
_RUN_NOW = (
    update(jobs)
    .where(one_of(jobs.c.id, "ids"), jobs.c.run_at > bindparam("now"))
    # Strikes judge the job anew at its claim.
    .values(run_at=bindparam("now"), hold=case((text(STRUCK), None), else_=jobs.c.hold))
)
_EXPIRED = (
    select(jobs.c.id)
    .where(jobs.c.expires_at <= bindparam("now"), text(f"expires_at IS NOT NULL AND {WAITING}"))
    .order_by(jobs.c.expires_at, jobs.c.id)
    .limit(bindparam("count"))
    .with_for_update(key_share=True, skip_locked=True)
)

_Verb = Callable[[Tx, Sequence[JobRow]], "_Changes"]


class _Changes:
    """The outcomes of the visited jobs."""

    def __init__(self) -> None:
        self.changed: list[JobId] = []
        self.requested: list[JobId] = []
        self.refused: dict[JobId, Refusal] = {}

    def refuse(self, verb: str, rows: Iterable[JobRow]) -> list[JobRow]:
        """Refuse the rows that the verb refuses for their status, and return the others."""
        left = []
        for row in rows:
            refusal = REFUSED[verb].refusal(row.status, row.hold)
            if refusal is None:
                left.append(row)
            else:
                self.refused[JobId(row.id)] = refusal
        return left

    def keep(self, rows: Iterable[JobRow], kept: Collection[str]) -> list[JobRow]:
        """Refuse the rows whose sequence another call has locked, and return the others."""
        self.refused.update((JobId(each), Refusal.LOCKED) for each in kept)
        return [row for row in rows if row.id not in kept]


@dataclass(frozen=True)
class Visit:
    """The jobs that one call visits. They are found without a lock, so the write looks again.

    :param ids: ascending
    :param cursor: where the next call goes on
    """

    which: JobFilter
    ids: Sequence[JobId]
    cursor: JobId | None
    step: ActionStep | None = None

    def halves(self) -> "tuple[Visit, Visit]":
        """Split the jobs into two visits, of which the second goes on where the first ends."""
        middle = len(self.ids) // 2
        edge = self.ids[middle - 1]
        step = None if self.step is None else structs.replace(self.step, cursor=edge)
        return (
            replace(self, ids=self.ids[:middle], cursor=edge),
            replace(self, ids=self.ids[middle:], step=step),
        )


def find(
    tx: Tx, which: JobFilter, cursor: str | None, limit: int, step: ActionStep | None = None
) -> Visit:
    """Find the jobs to visit, at most ``limit``. Looking may take long, and needs no write lock."""
    check_limit(limit)
    if step is not None:
        check_step(which, cursor, step)
        cursor = step.cursor or None
    after = check_cursor(cursor) or ""
    if which.ids is not None:
        ids, looked_at = sorted({job_id for job_id in which.ids if job_id > after}), None
    else:
        ids, looked_at = oldest_ids(tx, which, after, limit + 1)
    visited = ids[:limit]
    return Visit(which, visited, visited[-1] if len(ids) > limit else looked_at, step)


def cancel(tx: Tx, visit: Visit) -> BulkOutcome:
    """See ``JobStore.cancel``."""
    return _visit(tx, visit, _cancel)


class Referenced(Exception):
    """The database refuses to delete a job, for a reason of the user's. Nothing has happened."""


def delete_jobs(tx: Tx, visit: Visit) -> BulkOutcome:
    """See ``JobStore.delete``.

    :raises Referenced: the database refuses one of them
    """
    try:
        return _visit(tx, visit, _delete, removes=True)
    except tx.flavor.driver_errors as error:
        reason = tx.flavor.refusal(error)
        if reason is None:
            raise
        raise Referenced(reason) from None


def requeue(tx: Tx, visit: Visit) -> BulkOutcome:
    """See ``JobStore.requeue``."""
    relinking = Relinking(tx, visit.ids)
    return _visit(tx, visit, lambda tx, rows: _requeue(tx, rows, relinking))


def restore(tx: Tx, visit: Visit) -> BulkOutcome:
    """See ``JobStore.restore``."""
    relinking = Relinking(tx, visit.ids)
    return _visit(tx, visit, lambda tx, rows: _restore(tx, rows, relinking))


def release_held(tx: Tx, visit: Visit) -> BulkOutcome:
    """See ``JobStore.release_held``."""
    return _visit(tx, visit, _release_held)


def run_now(tx: Tx, visit: Visit) -> BulkOutcome:
    """See ``JobStore.run_now``."""
    return _visit(tx, visit, _run_now)


def refused(visit: Visit, why: Refusal) -> BulkOutcome:
    """Return the outcome that none of the jobs could be changed."""
    return BulkOutcome((), (), dict.fromkeys(visit.ids, why), visit.cursor)


def note(tx: Tx, visit: Visit, outcome: BulkOutcome) -> BulkOutcome:
    """Advance the action by an outcome that has changed no job."""
    if visit.step is not None:
        begin_step(tx, visit.step)
        end_step(tx, visit.step, outcome, visit.cursor)
    return outcome


def joined(outcomes: Sequence[BulkOutcome]) -> BulkOutcome:
    """Join the outcomes of the halves of a visit."""
    return BulkOutcome(
        changed=tuple(each for outcome in outcomes for each in outcome.changed),
        requested=tuple(each for outcome in outcomes for each in outcome.requested),
        refused={each: why for outcome in outcomes for each, why in outcome.refused.items()},
        cursor=outcomes[-1].cursor,
    )


def expire(tx: Tx, limit: int) -> int:
    """See ``JobStore.expire``."""
    ids = tx.execute(_EXPIRED, {"now": tx.now, "count": limit}).scalars().all()
    end_waiting(tx, ids, Cause.EXPIRED)
    return len(ids)


def _visit(tx: Tx, visit: Visit, verb: _Verb, *, removes: bool = False) -> BulkOutcome:
    if visit.step is not None:
        begin_step(tx, visit.step)
    meant = _VISITED.where(*conditions(visit.which, tx), one_of(jobs.c.id, "ids"))
    rows = Lockable(meant.order_by(jobs.c.id), removes=removes).lock(tx, visit.ids, LONGER_PAUSES_S)
    found = {*rows, *rows.kept}
    missing = _missing(tx, visit.ids, found) if visit.which.ids and not visit.step else []
    meant_ids = with_texts(tx, visit.which.deep, list(rows)) if visit.which.deep else set(rows)
    changes = verb(tx, [rows[each] for each in sorted(meant_ids)])
    changes.refused.update(dict.fromkeys(missing, Refusal.NOT_FOUND))
    changes.refused.update((JobId(each), Refusal.LOCKED) for each in rows.kept)
    outcome = BulkOutcome(
        changed=tuple(changes.changed),
        requested=tuple(changes.requested),
        refused=changes.refused,
        cursor=visit.cursor,
    )
    if visit.step is not None:
        end_step(tx, visit.step, outcome, visit.cursor)
    return outcome


def _missing(tx: Tx, wanted: Sequence[JobId], found: set[str]) -> list[JobId]:
    """Return the wanted ids that do not exist at all."""
    unseen = [job_id for job_id in wanted if job_id not in found]
    existing = {
        job_id
        for portion in portions(unseen)
        for job_id in tx.execute(_EXISTING, {"ids": portion}).scalars()
    }
    return [job_id for job_id in unseen if job_id not in existing]


_EXISTING = select(jobs.c.id).where(one_of(jobs.c.id, "ids"))


def _cancel(tx: Tx, rows: Sequence[JobRow]) -> _Changes:
    changes = _Changes()
    left = changes.refuse("cancel", rows)
    running = [row.id for row in left if row.status == JobStatus.IN_PROGRESS.value]
    waiting = [row.id for row in left if row.status != JobStatus.IN_PROGRESS.value]
    for ids in portions(running):
        tx.execute(_ASK, {"ids": ids})
    if running:
        asked = (row for row in left if row.status == JobStatus.IN_PROGRESS.value)
        _note(tx, EventKind.CANCEL_REQUESTED, asked)
        tx.wake_beats()
    end_waiting(tx, waiting, Cause.CANCELLED)
    changes.changed, changes.requested = waiting, running
    return changes


def _delete(tx: Tx, rows: Sequence[JobRow]) -> _Changes:
    changes = _Changes()
    left = changes.refuse("delete", rows)
    parents = {row.id: _end_of_removed(row.status) for row in left if row.has_children}
    left = changes.keep(left, lock_lines(tx, parents))
    parents = {row.id: parents[row.id] for row in left if row.has_children}
    if parents:
        leave_lines(tx, list(parents))
    tell_children(tx, parents, removed=True)
    ids = [row.id for row in left]
    forget_edges(tx, ids)
    for portion in portions(ids):
        tx.execute(_DELETE, {"ids": portion})
    forget(tx, ids)
    changes.changed = ids
    return changes


def _end_of_removed(status: str) -> JobStatus:
    return JobStatus(status) if status in TERMINAL else JobStatus.CANCELLED


def _requeue(tx: Tx, rows: Sequence[JobRow], relinking: Relinking) -> _Changes:
    changes = _Changes()
    requeued = _returning(tx, changes.refuse("requeue", rows), changes, relinking)
    if requeued:
        write_requeued(tx, requeued, relinking)
        _note(tx, EventKind.REQUEUED, requeued)
    changes.changed = [JobId(row.id) for row in requeued]
    return changes


def _restore(tx: Tx, rows: Sequence[JobRow], relinking: Relinking) -> _Changes:
    changes = _Changes()
    left = changes.refuse("restore", rows)
    known = parents_known(tx, [row.id for row in left if row.has_children])
    cancelled = []
    for row in left:
        if row.is_dropped or row.cause != Cause.CANCELLED.value:
            changes.refused[JobId(row.id)] = Refusal.FINISHED
        elif row.expires_at is not None and row.expires_at <= tx.now:
            changes.refused[JobId(row.id)] = Refusal.EXPIRED
        else:
            cancelled.append(row)
    restored = _returning(tx, cancelled, changes, relinking, known)
    if restored:
        write_restored(tx, restored, relinking)
        _note(tx, EventKind.RESTORED, restored)
    changes.changed = [JobId(row.id) for row in restored]
    return changes


def _returning(
    tx: Tx,
    left: Sequence[JobRow],
    changes: _Changes,
    relinking: Relinking,
    known: Collection[str] = (),
) -> list[JobRow]:
    """Return the ended jobs that may wait again, and refuse the others.

    :param known: jobs of whose ends children know
    """
    held = key_holders(
        tx, ((row.queue, row.unique_key) for row in left if row.unique_key is not None)
    )
    holders = {key: {holder.id for holder in found} for key, found in held.items()}
    returning = []
    for row in left:
        if row.is_dropped:
            # The payload is no longer stored.
            changes.refused[JobId(row.id)] = Refusal.FINISHED
        elif row.unique_key is not None and row.id not in holders.get(_key_of(row), {row.id}):
            changes.refused[JobId(row.id)] = Refusal.KEY_TAKEN
        elif relinking.is_refused(row.id):
            changes.refused[JobId(row.id)] = Refusal.PARENT_FAILED
        elif row.id in known:
            changes.refused[JobId(row.id)] = Refusal.CHILDREN_KNOW
        else:
            returning.append(row)
            if row.unique_key is not None:
                holders.setdefault(_key_of(row), {row.id})
    return returning


def _key_of(row: JobRow) -> tuple[str, str]:
    return row.queue, key_of(row.unique_key)


def _note(tx: Tx, kind: EventKind, rows: Iterable[JobRow]) -> None:
    """Add an operator's action to the jobs' timelines."""
    at = from_us(tx.now)
    append_events(
        tx, [TimelineEvent(at=at, kind=kind, queue=row.queue, job_id=row.id) for row in rows]
    )


def _release_held(tx: Tx, rows: Sequence[JobRow]) -> _Changes:
    changes = _Changes()
    left = changes.refuse("release_held", rows)
    waiting = unsettled_parents(tx, [row.id for row in left])
    held = [row for row in left if EdgeState.HELD in waiting.get(row.id, {}).values()]
    for row in left:
        if row not in held:
            changes.refused[JobId(row.id)] = Refusal.WAITING
    held = changes.keep(held, lock_lines(tx, [row.id for row in held]))
    changes.changed = [JobId(row.id) for row in held]
    for ids in portions(changes.changed):
        tx.execute(_SETTLE_HELD, {"ids": ids})
    unblock_settled(tx, held)
    _note(tx, EventKind.RELEASED_HELD, held)
    return changes


def _run_now(tx: Tx, rows: Sequence[JobRow]) -> _Changes:
    changes = _Changes()
    left = changes.refuse("run_now", rows)
    changes.changed = [JobId(row.id) for row in left]
    for ids in portions(changes.changed):
        tx.execute(_RUN_NOW, {"ids": ids, "now": tx.now})
    tx.wake_queues({row.queue for row in left})
    return changes
