"""Applies handovers to children."""

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, select, update

from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.transitions import Delivery
from forge_jobs.storage.sql.children import HELD, SETTLED, TOLD, unsettled_parents
from forge_jobs.storage.sql.chunks import portions
from forge_jobs.storage.sql.endings import end_waiting
from forge_jobs.storage.sql.lists import one_of
from forge_jobs.storage.sql.tables import edges, handovers, jobs
from forge_jobs.storage.sql.transaction import Tx

_TAKE = delete(handovers).where(handovers.c.id == bindparam("number")).returning(handovers.c.id)
_MOVE_EDGE = (
    update(edges)
    .where(
        edges.c.child_id == bindparam("child"),
        edges.c.parent_id == bindparam("parent"),
        edges.c.state == TOLD,
    )
    .values(state=bindparam("new_state"))
    .returning(edges.c.child_id)
)
_LOCK_CHILDREN = (
    select(jobs.c.id).where(one_of(jobs.c.id, "ids")).order_by(jobs.c.id).with_for_update()
)
_CHILD = select(jobs.c.id, jobs.c.queue, jobs.c.requested_run_at).where(
    jobs.c.id == bindparam("child"), jobs.c.status == JobStatus.BLOCKED.value
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
    """Apply news to children; how many were applied.

    A handover is taken out by the same step, so a repeat finds nothing to apply. Of two news
    for one child the first may end it; the second then finds it ended and changes nothing.
    """
    # Children first, in the order of all bulk writes. Of two who settle the last two edges of one
    # child, the second then sees what the first has settled.
    for ids in portions(sorted({delivery.handover.child_id for delivery in deliveries})):
        tx.execute(_LOCK_CHILDREN, {"ids": ids}).all()
    return sum(_deliver_one(tx, delivery) for delivery in deliveries)


def _deliver_one(tx: Tx, delivery: Delivery) -> bool:
    handover = delivery.handover
    if tx.execute(_TAKE, {"number": int(handover.id)}).first() is None:
        return False
    child = tx.execute(_CHILD, {"child": handover.child_id}).first()
    if child is None:
        return False
    new_state = HELD if delivery.action == "hold" else SETTLED
    edge = {"child": child.id, "parent": handover.parent_id, "new_state": new_state}
    if tx.execute(_MOVE_EDGE, edge).first() is None:
        return False
    if delivery.action == "cancel":
        end_waiting(tx, [child.id], Cause.PARENT_FAILED)
    elif delivery.action == "settle" and not unsettled_parents(tx, [child.id]):
        run_at = max(child.requested_run_at or 0, tx.now)
        tx.execute(_UNBLOCK, {"child": child.id, "new_run_at": run_at})
        tx.count(child.queue, Cause.PARENTS_SETTLED)
        if run_at <= tx.now:
            tx.wake_queue(child.queue)
    return True
