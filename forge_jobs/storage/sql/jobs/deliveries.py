"""Applies handovers to children, and operators' releases of held jobs."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, bindparam, case, delete, select, update

from forge_jobs.model.edges import EdgeState
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.transitions import Delivery
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.row_locks import Lockable
from forge_jobs.storage.sql.base.tables import edges, handovers, jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.children import CUT, LEFT, LIVE, TOLD, unsettled_parents
from forge_jobs.storage.sql.jobs.endings import end_waiting

_TAKE = delete(handovers).where(handovers.c.id == bindparam("number")).returning(handovers.c.id)
_MOVE_EDGE = (
    update(edges)
    .where(
        edges.c.child_id == bindparam("child"),
        edges.c.parent_id == bindparam("parent"),
        edges.c.link.in_((TOLD, LEFT)),
    )
    .values(
        state=bindparam("new_state"),
        link=case(
            (bindparam("new_state") == EdgeState.SETTLED.value, CUT),
            (edges.c.link == TOLD, LIVE),
            else_=CUT,
        ),
    )
    .returning(edges.c.child_id)
)
_CHILDREN = Lockable(select(jobs.c.id).where(one_of(jobs.c.id, "ids")).order_by(jobs.c.id))
_CHILD = select(jobs.c.id, jobs.c.queue, jobs.c.status, jobs.c.requested_run_at).where(
    jobs.c.id == bindparam("child")
)
_UNBLOCK = (
    update(jobs)
    .where(jobs.c.id == bindparam("child"))
    .values(
        status=JobStatus.PENDING.value,
        cause=Cause.PARENTS_SETTLED.value,
        run_at=bindparam("new_run_at"),
    )
)


def deliver(tx: Tx, deliveries: Sequence[Delivery]) -> int:
    """Apply handovers to children, and return how many were applied.

    The same step removes a handover, so a repeat finds nothing to apply. Of two handovers to one
    child the first may end the child. Then the second is only recorded.
    """
    # Lock children first. Of two transactions that settle the last two edges of one child, the
    # second then sees the edge settled by the first. Handovers to a child that another transaction
    # keeps locked stay.
    children = _CHILDREN.lock(tx, [delivery.handover.child_id for delivery in deliveries])
    free = (one for one in deliveries if one.handover.child_id not in children.kept)
    return sum(_deliver_one(tx, delivery) for delivery in free)


def _deliver_one(tx: Tx, delivery: Delivery) -> bool:
    handover = delivery.handover
    if tx.execute(_TAKE, {"number": int(handover.id)}).first() is None:
        return False
    child = tx.execute(_CHILD, {"child": handover.child_id}).first()
    if child is None:
        return False
    new_state = EdgeState.SETTLED if delivery.action == "settle" else EdgeState.HELD
    edge = {"child": child.id, "parent": handover.parent_id, "new_state": new_state.value}
    if tx.execute(_MOVE_EDGE, edge).first() is None:
        return False
    # A child that has ended may be requeued one day, and must know then how the parent ended.
    if child.status != JobStatus.BLOCKED.value:
        return False
    if delivery.action == "cancel":
        end_waiting(tx, [child.id], Cause.PARENT_FAILED)
    elif new_state is EdgeState.SETTLED:
        unblock_settled(tx, child)
    return True


def unblock_settled(tx: Tx, child: Row[Any]) -> None:
    """Make a blocked job pending when it waits for no parent any more.

    :param child: id, queue and requested_run_at
    """
    if unsettled_parents(tx, [child.id]):
        return
    run_at = max(child.requested_run_at or 0, tx.now)
    tx.execute(_UNBLOCK, {"child": child.id, "new_run_at": run_at})
    tx.count(child.queue, Cause.PARENTS_SETTLED)
    if run_at <= tx.now:
        tx.wake_queue(child.queue)
