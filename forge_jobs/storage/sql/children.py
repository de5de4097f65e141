"""Edges between jobs, and the handovers that bring a parent's end to its children."""

from collections.abc import Iterable, Mapping

from sqlalchemy import bindparam, delete, insert, select, text, update

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.transitions import Handover
from forge_jobs.storage.sql.chunks import portions
from forge_jobs.storage.sql.lists import one_of
from forge_jobs.storage.sql.tables import edges, handovers
from forge_jobs.storage.sql.transaction import Tx

OPEN, TOLD, SETTLED, HELD = "open", "told", "settled", "held"

_OPEN_EDGES = (
    select(edges)
    .where(one_of(edges.c.parent_id, "ids"), text("state = 'open'"))
    .order_by(edges.c.child_id, edges.c.parent_id)
    # Whoever ends a parent and whoever ends its child meet here: both in this order.
    .with_for_update()
)
_OF_CHILDREN = (
    select(edges.c.child_id)
    .where(one_of(edges.c.child_id, "ids"))
    .order_by(edges.c.child_id, edges.c.parent_id)
    .with_for_update()
)
_TELL = (
    update(edges).where(one_of(edges.c.parent_id, "ids"), text("state = 'open'")).values(state=TOLD)
)
_ADD = insert(handovers)
_FORGET_EDGES = delete(edges).where(one_of(edges.c.child_id, "ids"))
_UNSETTLED = (
    select(edges.c.child_id, edges.c.parent_id)
    .where(one_of(edges.c.child_id, "ids"), edges.c.state != SETTLED)
    .order_by(edges.c.child_id, edges.c.parent_id)
)
_OLDEST = select(handovers).order_by(handovers.c.id).limit(bindparam("count"))


def tell_children(tx: Tx, ended: Mapping[str, JobStatus]) -> None:
    """Write a handover for every child that waits for one of the parents.

    :param ended: parent id -> the terminal status to report
    """
    told = False
    for ids in portions(ended):
        found = tx.execute(_OPEN_EDGES, {"ids": ids}).all()
        if not found:
            continue
        told = True
        tx.execute(
            _ADD,
            [
                {
                    "queue": edge.child_queue,
                    "child_id": edge.child_id,
                    "parent_id": edge.parent_id,
                    "parent_status": ended[edge.parent_id].value,
                    "on_failure": edge.on_failure,
                }
                for edge in found
            ],
        )
        tx.execute(_TELL, {"ids": ids})
    if told:
        tx.wake_handover()


def forget_edges(tx: Tx, children: Iterable[str]) -> None:
    """The jobs wait for nobody any more."""
    for ids in portions(children):
        if tx.execute(_OF_CHILDREN, {"ids": ids}).all():
            tx.execute(_FORGET_EDGES, {"ids": ids})


def unsettled_parents(tx: Tx, children: Iterable[str]) -> dict[str, list[str]]:
    """Child id -> the parents it waits for; children that wait for none are left out."""
    found: dict[str, list[str]] = {}
    for ids in portions(children):
        for child_id, parent_id in tx.execute(_UNSETTLED, {"ids": ids}):
            found.setdefault(child_id, []).append(parent_id)
    return found


def list_handovers(tx: Tx, limit: int) -> list[Handover]:
    """The oldest handovers."""
    return [
        Handover(
            id=str(row.id),
            queue=row.queue,
            child_id=JobId(row.child_id),
            parent_id=JobId(row.parent_id),
            parent_status=JobStatus(row.parent_status),
            on_failure=row.on_failure,
        )
        for row in tx.execute(_OLDEST, {"count": limit})
    ]
