"""Applies handovers to children, and operators' releases of held jobs."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs
from sqlalchemy import bindparam, case, delete, func, insert, select, text, update

from forge_jobs.model.edges import OF_SEQUENCES, WAITING, EdgeState
from forge_jobs.model.jobs import TERMINAL, Cause, JobStatus
from forge_jobs.model.transitions import Delivery
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.lists import ID_LENGTH, one_of, pairs_among, portions
from forge_jobs.storage.sql.base.row_locks import Lockable
from forge_jobs.storage.sql.base.tables import edges, handovers, jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.children import CUT, LEFT, LIVE, TOLD
from forge_jobs.storage.sql.jobs.endings import end_waiting
from forge_jobs.storage.sql.jobs.sequences.lines import (
    ended_before,
    inherit,
    leaves_place,
    lock_lines,
)

_GIVEN = select(handovers.c.id).where(one_of(handovers.c.id, "ids")).order_by(handovers.c.id)
_TAKE = delete(handovers).where(one_of(handovers.c.id, "ids")).returning(handovers.c.id)
# An array is made once. Of IN and a subquery that locks PostgreSQL makes a join, which runs the
# subquery again for each handover where the statistics are of an empty table.
_LOCKED = func.array(_GIVEN.with_for_update(skip_locked=True).scalar_subquery())
_TAKE_UNLOCKED = (
    delete(handovers).where(handovers.c.id == func.any(_LOCKED)).returning(handovers.c.id)
)
_PUT_BACK = insert(handovers)
_TOLD_EDGES = (
    select(edges.c.child_id, edges.c.parent_id, edges.c.state)
    .where(
        pairs_among(edges.c.child_id, edges.c.parent_id, "pairs"),
        edges.c.link.in_((TOLD, LEFT)),
    )
    .order_by(edges.c.child_id, edges.c.parent_id)
)
# Likewise: a look by the primary key for each pair, in the order that is given.
_TOLD_EDGES_BY_KEY = text(
    f"""
    SELECT held.child_id, held.parent_id, held.state
    FROM unnest(CAST(:pairs AS text[])) AS given (pair) CROSS JOIN LATERAL (
        SELECT child_id, parent_id, state FROM forge_edges
        WHERE child_id = substr(pair, 1, {ID_LENGTH}) AND parent_id = substr(pair, 1 + {ID_LENGTH})
            AND link IN ('{TOLD}', '{LEFT}')
        FOR NO KEY UPDATE
    ) AS held
    """
)
# The parent may be requeued, and end otherwise.
_HEARS_MORE = case((edges.c.link == TOLD, LIVE), else_=CUT)
_SETTLE = (
    update(edges)
    .where(pairs_among(edges.c.child_id, edges.c.parent_id, "pairs"))
    .values(state=EdgeState.SETTLED.value, link=CUT)
)
_NOTE = (
    update(edges)
    .where(pairs_among(edges.c.child_id, edges.c.parent_id, "pairs"))
    .values(state=bindparam("ended"), link=_HEARS_MORE)
)
_HOLD = (
    update(edges)
    .where(pairs_among(edges.c.child_id, edges.c.parent_id, "pairs"))
    .values(state=EdgeState.HELD.value, link=_HEARS_MORE)
)
_MOVES = {EdgeState.SETTLED: _SETTLE, EdgeState.HELD: _HOLD}
_CHILDREN = Lockable(
    select(jobs.c.id, jobs.c.queue, jobs.c.status, jobs.c.requested_run_at)
    .where(one_of(jobs.c.id, "ids"))
    .order_by(jobs.c.id)
)
_AN_OPEN_EDGE = (
    select(edges.c.child_id)
    .where(edges.c.child_id == jobs.c.id, edges.c.state.in_(WAITING))
    .limit(1)
    .scalar_subquery()
)
# A look at one edge for each job, however many edges the jobs have.
_STILL_WAITING = select(jobs.c.id).where(one_of(jobs.c.id, "ids"), _AN_OPEN_EDGE.is_not(None))
_UNBLOCK = (
    update(jobs)
    .where(one_of(jobs.c.id, "ids"))
    .values(
        status=JobStatus.PENDING.value,
        cause=Cause.PARENTS_SETTLED.value,
        run_at=case(
            (jobs.c.requested_run_at > bindparam("now"), jobs.c.requested_run_at),
            else_=bindparam("now"),
        ),
    )
)


class _Told(NamedTuple):
    """A delivery to an edge that has yet to hear of it.

    :ivar waited: the child waited for the parent
    """

    delivery: Delivery
    waited: bool

    @property
    def child_id(self) -> str:
        return self.delivery.handover.child_id

    @property
    def cancels(self) -> bool:
        return self.delivery.action == "cancel"

    @property
    def settles(self) -> bool:
        """Return whether the child waits for one parent less."""
        return self.waited and not self.delivery.edge.waits

    @property
    def opens(self) -> bool:
        """Return whether the child would wait again for a parent, or be cancelled by that one."""
        return self.delivery.edge.waits and not self.waited


def deliver(tx: Tx, deliveries: Sequence[Delivery]) -> int:
    """Apply handovers to children, and return how many were applied.

    The same step removes a handover, so a repeat finds nothing to apply. Of two handovers to one
    child the first may end or free the child. Then the second is only recorded. The number of
    statements is the same for one handover and for hundreds.
    """
    # A parent of a sequence that ended without success leaves the child its own parents.
    kept = lock_lines(tx, {one.handover.child_id for one in deliveries if leaves_place(one)})
    deliveries = [one for one in deliveries if one.handover.child_id not in kept]
    # Lock children first. Of two transactions that settle the last two edges of one child, the
    # second then sees the edge settled by the first. Handovers to a child that another transaction
    # keeps locked stay.
    children = _CHILDREN.lock(tx, [delivery.handover.child_id for delivery in deliveries])
    taken = _take(tx, [one for one in deliveries if one.handover.child_id not in children.kept])
    opened = inherit(tx, [one for one in taken if one.handover.child_id in children])
    taken = _put_back(tx, taken, opened) if opened else taken
    told = _find_edges(tx, [one for one in taken if one.handover.child_id in children])
    told = _keep_places(tx, told, children)
    blocked = {
        one.child_id: children[one.child_id]
        for one in told
        if children[one.child_id].status == JobStatus.BLOCKED.value
    }
    return sum([_apply(tx, part, blocked) for part in _parts(told)])


def _put_back(
    tx: Tx, taken: Sequence[Delivery], opened: Collection[tuple[str, str]]
) -> list[Delivery]:
    """Leave for the next call what arrives at an edge that this one has opened again.

    By then the child waits for the parent, and so for what that one waited for.
    """
    rest: list[Delivery] = []
    for one in taken:
        news = one.handover
        if (news.child_id, news.parent_id) in opened:
            row = {**structs.asdict(news), "parent_status": news.parent_status.value}
            del row["id"]
            tx.execute(_PUT_BACK, row)
            tx.wake_handover()
        else:
            rest.append(one)
    return rest


def _parts(told: Sequence[_Told]) -> Iterator[list[_Told]]:
    """Yield the deliveries in parts whose order counts only where the child is cancelled.

    By the policies of edges they are one part. No edge opens that the child does not wait for.
    """
    part: list[_Told] = []
    for one in told:
        if one.opens and any(each.child_id == one.child_id for each in part):
            yield part
            part = []
        part.append(one)
    yield part


def _apply(tx: Tx, told: Sequence[_Told], blocked: dict[str, JobRow]) -> int:
    """Move the edges, and return how many deliveries were applied.

    :param blocked: the children that wait. Those that are cancelled or freed are taken out
    """
    _move_edges(tx, [one.delivery for one in told])
    heard: dict[str, list[_Told]] = {}
    for one in told:
        # A child that has ended may be requeued one day, and must know then how the parent ended.
        if one.child_id in blocked:
            heard.setdefault(one.child_id, []).append(one)
    cancelled = dict.fromkeys(one.child_id for of in heard.values() for one in of if one.cancels)
    if cancelled:
        end_waiting(tx, cancelled, Cause.PARENT_FAILED)
    settled = dict.fromkeys(one.child_id for of in heard.values() for one in of if one.settles)
    freed = unblock_settled(tx, [blocked[each] for each in settled if each not in cancelled])
    for child in (*cancelled, *freed):
        del blocked[child]
    return sum(_count_applied(of, child in freed) for child, of in heard.items())


def _count_applied(told: Sequence[_Told], is_freed: bool) -> int:
    """Return how many deliveries to one child were applied: the rest came after its wait."""
    if is_freed:
        return max(place for place, one in enumerate(told, 1) if one.settles)
    return next((place for place, one in enumerate(told, 1) if one.cancels), len(told))


def _take(tx: Tx, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Remove the handovers, and return the deliveries of those that were there, each once."""
    there: set[int] = set()
    take = _TAKE_UNLOCKED if tx.flavor.locks_rows else _TAKE
    for ids in portions(int(one.handover.id) for one in deliveries):
        there.update(tx.execute(take, {"ids": ids}).scalars())
    found: dict[int, Delivery] = {}
    for one in deliveries:
        if int(one.handover.id) in there:
            found.setdefault(int(one.handover.id), one)
    return list(found.values())


def _find_edges(tx: Tx, deliveries: Sequence[Delivery]) -> list[_Told]:
    """Lock the edges, and return the deliveries that move one."""
    given: dict[str, Delivery] = {}
    for one in deliveries:
        given.setdefault(one.handover.child_id + one.handover.parent_id, one)
    waited: dict[str, bool] = {}
    # In order, as those who end a parent or the child lock edges.
    find = _TOLD_EDGES_BY_KEY if tx.flavor.locks_rows else _TOLD_EDGES
    for pairs in portions(sorted(given)):
        found = tx.execute(find, {"pairs": list(pairs)}).all()
        waited |= {child + parent: state in WAITING for child, parent, state in found}
    return [_Told(one, waited[pair]) for pair, one in given.items() if pair in waited]


def _keep_places(tx: Tx, told: Sequence[_Told], children: Mapping[str, JobRow]) -> list[_Told]:
    """Return the deliveries, of which those to jobs that ended before a dead parent hold.

    Such a job did not live to pass the parent. Those behind decide by words of their own.
    """
    late = [
        (one.child_id, one.delivery.handover.parent_id)
        for one in told
        if one.settles
        and one.delivery.handover.parent_status is JobStatus.DEAD
        and one.delivery.handover.on_failure in OF_SEQUENCES
        and JobStatus(children[one.child_id].status) in TERMINAL
    ]
    kept = ended_before(tx, late)
    return [
        one._replace(delivery=Delivery(one.delivery.handover, "hold"))
        if (one.child_id, one.delivery.handover.parent_id) in kept
        else one
        for one in told
    ]


def _move_edges(tx: Tx, deliveries: Iterable[Delivery]) -> None:
    for portion in portions(deliveries):
        by_state: dict[EdgeState, list[str]] = {}
        for one in portion:
            pair = one.handover.child_id + one.handover.parent_id
            by_state.setdefault(one.edge, []).append(pair)
        for state, pairs in by_state.items():
            if state in _MOVES:
                tx.execute(_MOVES[state], {"pairs": pairs})
            else:
                tx.execute(_NOTE, {"pairs": pairs, "ended": state.value})


def unblock_settled(tx: Tx, children: Iterable[JobRow]) -> set[str]:
    """Make blocked jobs pending that wait for no parent any more, and return these.

    :param children: id, queue and requested_run_at
    """
    freed: set[str] = set()
    for portion in portions(children):
        ids = [child.id for child in portion]
        waiting = set(tx.execute(_STILL_WAITING, {"ids": ids}).scalars())
        free = [child for child in portion if child.id not in waiting]
        if not free:
            continue
        tx.execute(_UNBLOCK, {"ids": [child.id for child in free], "now": tx.now})
        for child in free:
            tx.count(child.queue, Cause.PARENTS_SETTLED)
            if (child.requested_run_at or 0) <= tx.now:
                tx.wake_queue(child.queue)
        freed.update(child.id for child in free)
    return freed
