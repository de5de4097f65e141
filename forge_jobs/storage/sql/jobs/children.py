"""Edges between jobs, and the handovers that bring a parent's end to its children.

An edge stays as long as its child, because a child that is requeued waits again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Row, bindparam, delete, func, insert, select, text, tuple_, update

from forge_jobs.model.edges import WAITING, EdgeState, Tally
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, JobStatus
from forge_jobs.model.transitions import Handover
from forge_jobs.storage.salvage import log_unreadable, shown
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import LINKED, edges, handovers
from forge_jobs.storage.sql.base.transaction import Tx

LIVE, TOLD, LEFT, CUT = "live", "told", "left", "cut"
"""See the column ``link``."""

_LINKED_EDGES = (
    select(edges.c.parent_id, edges.c.link)
    .where(one_of(edges.c.parent_id, "ids"), text(LINKED))
    .order_by(edges.c.child_id, edges.c.parent_id)
    # Transactions that end a parent and transactions that end the child lock edges in this order.
    .with_for_update(key_share=True)
)
_OF_CHILDREN = (
    select(edges)
    .where(one_of(edges.c.child_id, "ids"))
    .order_by(edges.c.child_id, edges.c.parent_id)
)
_OF_CHILDREN_LOCKED = _OF_CHILDREN.with_for_update(key_share=True)
_free = (
    select(edges.c.child_id, edges.c.parent_id)
    .where(one_of(edges.c.child_id, "ids"))
    .with_for_update(skip_locked=True)
    .cte("free")
)
_KEPT_CHILDREN = select(edges.c.child_id).where(
    one_of(edges.c.child_id, "ids"),
    tuple_(edges.c.child_id, edges.c.parent_id).not_in(select(_free)),
)
_LINK = (
    update(edges)
    .where(one_of(edges.c.parent_id, "ids"), text(LINKED))
    .values(link=bindparam("new_link"))
)
_TOLD_PAIR = select(edges.c.child_id).where(
    edges.c.child_id == handovers.c.child_id,
    edges.c.parent_id == handovers.c.parent_id,
    edges.c.link == TOLD,
)
_WITHDRAW = delete(handovers).where(one_of(handovers.c.parent_id, "ids"), _TOLD_PAIR.exists())
_ADD = insert(handovers).from_select(
    ("queue", "child_id", "parent_id", "parent_status", "on_failure"),
    select(
        edges.c.child_queue,
        edges.c.child_id,
        edges.c.parent_id,
        bindparam("status", type_=handovers.c.parent_status.type),
        edges.c.on_failure,
    )
    .where(one_of(edges.c.parent_id, "ids"), edges.c.link == LIVE)
    .order_by(edges.c.child_id, edges.c.parent_id),
)
_FORGET_EDGES = delete(edges).where(one_of(edges.c.child_id, "ids"))
_FORGET_NEWS = delete(handovers).where(one_of(handovers.c.child_id, "ids"))
_UNSETTLED = (
    select(edges.c.child_id, edges.c.parent_id, edges.c.state)
    .where(one_of(edges.c.child_id, "ids"), edges.c.state.in_(WAITING))
    .order_by(edges.c.child_id, edges.c.parent_id)
)
_TALLY = (
    select(edges.c.child_id, edges.c.state, func.count())
    .where(one_of(edges.c.child_id, "ids"))
    .group_by(edges.c.child_id, edges.c.state)
)
_OLDEST = select(handovers).order_by(handovers.c.id).limit(bindparam("count"))

_ENDS = {status.value: status for status in TERMINAL}


def tell_children(tx: Tx, ended: Mapping[str, JobStatus], *, removed: bool = False) -> None:
    """Write a handover for every child that has not settled its edge to one of the parents.

    :param ended: parent id -> the terminal status to report
    :param removed: the parents are being removed: no later handover can follow
    """
    told = False
    for ids in portions(ended):
        found = tx.execute(_LINKED_EDGES, {"ids": ids}).all()
        if not found:
            continue
        by_status: dict[JobStatus, dict[str, None]] = {}
        for parent, link in found:
            if link == LIVE:
                by_status.setdefault(ended[parent], {})[parent] = None
        for status, parents in by_status.items():
            told = True
            tx.execute(_ADD, {"ids": list(parents), "status": status.value})
        tx.execute(_LINK, {"ids": ids, "new_link": LEFT if removed else TOLD})
    if told:
        tx.wake_handover()


def lock_linked(tx: Tx, parents: Sequence[str]) -> None:
    """Lock the edges over which the parents' ends are, or will be, handed over."""
    tx.execute(_LINKED_EDGES, {"ids": parents}).all()


def withdraw_news(tx: Tx, parents: Iterable[str]) -> None:
    """Void undelivered handovers of parents that are requeued."""
    for ids in portions(parents):
        if any(edge.link == TOLD for edge in tx.execute(_LINKED_EDGES, {"ids": ids})):
            tx.execute(_WITHDRAW, {"ids": ids})
            tx.execute(_LINK, {"ids": ids, "new_link": LIVE})


def forget_edges(tx: Tx, children: Iterable[str]) -> None:
    """Remove the edges of jobs that are being removed."""
    for ids in portions(children):
        if tx.execute(_OF_CHILDREN_LOCKED, {"ids": ids}).all():
            forget_locked_edges(tx, ids)


def forget_locked_edges(tx: Tx, ids: Sequence[str]) -> None:
    """Remove the edges of jobs, and the ends that these have yet to hear of. A job that is stored
    under the same id must not hear of such an end.

    :param ids: one portion at most
    """
    if tx.execute(_FORGET_EDGES, {"ids": ids}).rowcount:
        tx.execute(_FORGET_NEWS, {"ids": ids})


def children_kept(tx: Tx, children: Iterable[str]) -> set[str]:
    """Lock the edges of the children. Return the children with an edge that another transaction has
    locked."""
    kept: set[str] = set()
    if tx.flavor.locks_rows:
        for ids in portions(children):
            kept.update(tx.execute(_KEPT_CHILDREN, {"ids": ids}).scalars())
    return kept


def edges_of(tx: Tx, children: Iterable[str], *, locked: bool = False) -> dict[str, list[Row[Any]]]:
    """Return child id -> edges, without children that have none."""
    found: dict[str, list[Row[Any]]] = {}
    for ids in portions(children):
        for edge in tx.execute(_OF_CHILDREN_LOCKED if locked else _OF_CHILDREN, {"ids": ids}):
            found.setdefault(edge.child_id, []).append(edge)
    return found


def parents_of(tx: Tx, children: Iterable[str]) -> dict[JobId, tuple[JobId, ...]]:
    """See ``JobStore.parents``."""
    return {
        JobId(child): tuple(JobId(edge.parent_id) for edge in found)
        for child, found in edges_of(tx, children).items()
    }


def tallies_of(tx: Tx, children: Iterable[str]) -> dict[JobId, Tally]:
    """See ``KinStore.tallies``."""
    found: defaultdict[JobId, Counter[str]] = defaultdict(Counter)
    for ids in portions(children):
        for child_id, state, number in tx.execute(_TALLY, {"ids": ids}):
            # The child waits by an edge that cannot be read.
            known = state if state in Tally.__struct_fields__ else EdgeState.OPEN.value
            found[JobId(child_id)][known] += number
    return {child: Tally(**counts) for child, counts in found.items()}


def unsettled_parents(tx: Tx, children: Iterable[str]) -> dict[str, dict[str, EdgeState]]:
    """Return child id -> the parents it waits for, without children that wait for none."""
    found: dict[str, dict[str, EdgeState]] = {}
    for ids in portions(children):
        for child_id, parent_id, state in tx.execute(_UNSETTLED, {"ids": ids}):
            parent = parent_id if isinstance(parent_id, str) else repr(parent_id)
            found.setdefault(child_id, {})[parent] = EdgeState(state)
    return found


def list_handovers(tx: Tx, limit: int) -> list[Handover]:
    """Return the oldest handovers."""
    return [
        Handover(
            id=str(row.id),
            queue=row.queue,
            child_id=JobId(row.child_id),
            parent_id=JobId(row.parent_id),
            parent_status=_ended_as(row),
            on_failure=row.on_failure,
        )
        for row in tx.execute(_OLDEST, {"count": limit})
    ]


def _ended_as(row: Row[Any]) -> JobStatus:
    """Return how the parent of a handover ended: dead where that cannot be read."""
    try:
        return _ENDS[row.parent_status]
    except KeyError:
        log_unreadable(
            "handover",
            f"{row.child_id} of parent {row.parent_id}",
            f"parent_status is {shown(row.parent_status)}",
            "the child is left as after a dead parent; requeue the parent, or 'forge-jobs jobs "
            "release-held' the child",
        )
        return JobStatus.DEAD
