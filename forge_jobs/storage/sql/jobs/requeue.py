"""Gives jobs their whole budget again, or takes cancels back. Jobs that come after others wait
again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Row, and_, bindparam, delete, not_, or_, select, update

from forge_jobs.model.edges import WAITING, EdgeState, edge_of_requeued
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import edges, handovers, jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.children import (
    CUT,
    LEFT,
    LIVE,
    TOLD,
    edges_of,
    lock_linked,
    withdraw_news,
)
from forge_jobs.storage.sql.jobs.sequences.returning import Returning

_LOCK = (
    select(jobs.c.id, jobs.c.status)
    .where(one_of(jobs.c.id, "ids"))
    .order_by(jobs.c.id)
    .with_for_update(key_share=True)
)
_SET_EDGE = (
    update(edges)
    .where(edges.c.child_id == bindparam("child"), edges.c.parent_id == bindparam("parent"))
    .values(state=bindparam("new_state"), link=bindparam("new_link"))
)
_DROP_NEWS = delete(handovers).where(
    handovers.c.child_id == bindparam("child"), handovers.c.parent_id == bindparam("parent")
)
_MARK_PARENTS = (
    update(jobs)
    .where(one_of(jobs.c.id, "ids"), jobs.c.has_children.is_(False))
    .values(has_children=True)
)
_REQUEUE = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(
        status=bindparam("new_status"),
        cause=Cause.REQUEUED.value,
        run_at=bindparam("now"),
        requested_run_at=None,
        expires_at=bindparam("new_expires_at"),
        attempt=0,
        crashes=0,
        snoozes=0,
        snoozed_at=None,
        cancel_requested=False,
        finished_at=None,
        hold=None,
        result=None,
        result_expires_at=None,
    )
)


_RESTORE = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(
        status=bindparam("new_status"),
        cause=Cause.RESTORED.value,
        requested_run_at=bindparam("new_requested_run_at"),
        cancel_requested=False,
        finished_at=None,
        hold=None,
        result=None,
        result_expires_at=None,
    )
)
_was_cancelled_too = and_(
    jobs.c.status == JobStatus.CANCELLED.value, jobs.c.cause == Cause.CANCELLED.value
)
_was_given_up = and_(
    jobs.c.status == JobStatus.CANCELLED.value, jobs.c.cause == Cause.PARENT_FAILED.value
)
_KNOWN = (
    select(edges.c.parent_id)
    .join(jobs, jobs.c.id == edges.c.child_id)
    .where(
        one_of(edges.c.parent_id, "ids"),
        or_(
            and_(edges.c.state.not_in(WAITING), not_(_was_cancelled_too)),
            and_(edges.c.state == EdgeState.HELD.value, _was_given_up),
        ),
    )
    .distinct()
)


class Relinking:
    """The parents that the jobs of one call wait for.

    Made before the jobs are locked: parents and children are locked together, in id order, as by
    every write of many jobs.

    :ivar sequences: of the jobs
    """

    def __init__(self, tx: Tx, ids: Sequence[str]) -> None:
        self._tx = tx
        self.sequences = Returning(tx, ids)
        self._edges: Mapping[str, Sequence[Row[Any]]] = edges_of(tx, ids)
        self._parents: dict[str, JobStatus] = {}
        if self._edges:
            named = {edge.parent_id for found in self._edges.values() for edge in found}
            for portion in portions(sorted({*ids, *named})):
                rows = tx.execute(_LOCK, {"ids": portion})
                self._parents |= {row.id: JobStatus(row.status) for row in rows}
            # A handover may have been delivered before the jobs were locked.
            self._edges = edges_of(tx, ids, locked=True)

    def is_refused(self, child: str) -> bool:
        """Return whether a parent is gone without success, and the child must not run without
        it."""
        return any(self._state(edge) is None for edge in self._edges.get(child, ()))

    def _state(self, edge: Row[Any]) -> EdgeState | None:
        state, parent = EdgeState(edge.state), self._parents.get(edge.parent_id)
        if parent is None and edge.link == LEFT:
            # A handover of the parent's end is still under way.
            return state
        return edge_of_requeued(edge.on_failure, state, parent)

    def parents_after(self, requeued: Collection[str]) -> dict[str, dict[str, bool]]:
        """Return by child and parent whether their edge waits once the child waits again.

        :param requeued: the jobs that the call requeues: some may be parents of others
        """
        self._parents |= dict.fromkeys(requeued, JobStatus.PENDING)
        return {
            child: {
                edge.parent_id: (self._state(edge) or EdgeState.HELD).waits
                for edge in self._edges.get(child, ())
            }
            for child in requeued
        }

    def relink(self, requeued: Collection[str]) -> set[str]:
        """Open the edges again, and return the children that wait.

        :param requeued: the jobs of which ``parents_after`` knows
        """
        if not self._edges:
            return set()
        tx = self._tx
        again = [edge for child in requeued for edge in self._edges.get(child, ())]
        changes = [self._change(edge) for edge in again]
        waiting = {one["child"] for one in changes if EdgeState(one["new_state"]).waits}
        written = [change for change in changes if change["new_link"] != LEFT]
        if written:
            tx.execute(_SET_EDGE, written)
        self._drop_news(again)
        live = sorted({change["parent"] for change in written if change["new_link"] == LIVE})
        for ids in portions(live):
            tx.execute(_MARK_PARENTS, {"ids": ids})
        return waiting

    def _change(self, edge: Row[Any]) -> dict[str, str]:
        state = self._state(edge) or EdgeState.HELD
        link = CUT
        if edge.parent_id not in self._parents:
            link = LEFT if edge.link == LEFT else CUT
        elif state.hears:
            link = LIVE
        return {
            "child": edge.child_id,
            "parent": edge.parent_id,
            "new_state": state.value,
            "new_link": link,
        }

    def _drop_news(self, again: Iterable[Row[Any]]) -> None:
        """Void undelivered handovers of parents that were looked at."""
        void = [
            {"child": edge.child_id, "parent": edge.parent_id}
            for edge in again
            if edge.link in {TOLD, LEFT} and edge.parent_id in self._parents
        ]
        if void:
            self._tx.execute(_DROP_NEWS, void)


def write_requeued(tx: Tx, rows: Sequence[JobRow], relinking: Relinking) -> None:
    """Write the jobs, of which there are some: blocked when they wait for others, otherwise due
    now."""
    blocked = _relinked(tx, rows, relinking)
    tx.execute(_REQUEUE, list(_values(tx, rows, blocked)))
    for row in rows:
        tx.count(row.queue, Cause.REQUEUED)
        if row.id not in blocked:
            tx.wake_queue(row.queue)


def _relinked(tx: Tx, rows: Sequence[JobRow], relinking: Relinking) -> set[str]:
    """Write the edges of jobs that wait again, and return the jobs that wait for others."""
    withdraw_news(tx, (row.id for row in rows if row.has_children))
    requeued = {row.id for row in rows}
    relinking.sequences.find_places(rows, relinking.parents_after(requeued))
    waiting = relinking.relink(requeued)
    return relinking.sequences.take_places(waiting)


def _key_order(row: JobRow) -> tuple[str, str, JobId]:
    # Each job takes its key, in the order in which new jobs take theirs.
    return row.queue, row.unique_key or "", JobId(row.id)


def _values(tx: Tx, rows: Sequence[JobRow], blocked: Collection[str]) -> Iterable[dict[str, Any]]:
    for row in sorted(rows, key=_key_order):
        status = JobStatus.BLOCKED if row.id in blocked else JobStatus.PENDING
        yield {
            "job": row.id,
            "now": tx.now,
            "new_status": status.value,
            # An expiry that has passed would end the job again at once.
            "new_expires_at": None if (row.expires_at or 0) <= tx.now else row.expires_at,
        }


def parents_known(tx: Tx, parents: Iterable[str]) -> set[str]:
    """Return those of the cancelled jobs of whose end a child knows. See ``JobStore.restore``."""
    known: set[str] = set()
    for ids in portions(parents):
        # A transaction that delivers ends first: then its edges are seen.
        lock_linked(tx, ids)
        known.update(tx.execute(_KNOWN, {"ids": ids}).scalars())
    return known


def write_restored(tx: Tx, rows: Sequence[JobRow], relinking: Relinking) -> None:
    """Write the jobs, of which there are some: blocked when they wait for others, otherwise with
    the due time that they had."""
    blocked = _relinked(tx, rows, relinking)
    tx.execute(
        _RESTORE,
        [
            {
                "job": row.id,
                "new_status": (JobStatus.BLOCKED if row.id in blocked else JobStatus.PENDING).value,
                "new_requested_run_at": _requested(tx, row),
            }
            for row in sorted(rows, key=_key_order)
        ],
    )
    for row in rows:
        tx.count(row.queue, Cause.RESTORED)
        if row.id not in blocked and row.run_at <= tx.now:
            tx.wake_queue(row.queue)


def _requested(tx: Tx, row: JobRow) -> int | None:
    """Return the time that the job waits for, also when the store's clock is set back."""
    # Of an enqueue that was due at once the clock alone has made a time ahead.
    if row.run_at > max(tx.now, row.enqueued_at):
        return int(row.run_at)
    requested: int | None = row.requested_run_at
    return requested
