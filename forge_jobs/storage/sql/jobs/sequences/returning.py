"""Members of sequences that wait again after they had ended: each gets a place in line.

A job that another one still waits for, or that was the last, has kept its place. Any other goes to
the end of the line, behind all that have yet to end, so that it runs beside none of its key.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, and_, bindparam, select, update

from forge_jobs.model.edges import OF_SEQUENCES, WAITING, EdgeState
from forge_jobs.model.jobs import TERMINAL, JobStatus
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import edges, members
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.children import CUT, LIVE
from forge_jobs.storage.sql.jobs.sequences.lines import (
    STILL_OPEN,
    lock_known,
    lock_last,
    set_last,
    statuses,
)

_MEMBERS = select(members.c.job_id, members.c.line, members.c.on_failure).where(
    one_of(members.c.job_id, "ids")
)
_is_waited_for = and_(edges.c.state.in_(WAITING), edges.c.on_failure.in_(OF_SEQUENCES))
_LEAVE = (
    update(edges)
    .where(one_of(edges.c.child_id, "ids"), _is_waited_for)
    .values(state=EdgeState.SETTLED.value, link=CUT)
)
_WAIT_AGAIN = (
    update(edges)
    .where(edges.c.child_id == bindparam("child"), edges.c.parent_id == bindparam("parent"))
    .values(state=EdgeState.OPEN.value, link=LIVE)
)
# Also over an edge that a caller named: the two would wait for each other otherwise.
_BEHIND = (
    select(edges.c.child_id, edges.c.parent_id)
    .join(members, members.c.job_id == edges.c.child_id)
    .where(one_of(edges.c.parent_id, "ids"), edges.c.state.in_(WAITING))
    .order_by(edges.c.child_id, edges.c.parent_id)
)
_NOT_HELD = (
    update(edges)
    .where(one_of(edges.c.parent_id, "ids"), _is_waited_for, edges.c.state == EdgeState.HELD.value)
    .values(state=EdgeState.OPEN.value)
)
_STILL_WAITING = (
    select(edges.c.child_id)
    .where(one_of(edges.c.child_id, "ids"), edges.c.state.in_(WAITING))
    .distinct()
)


class Returning:
    """The sequences of the jobs that one call lets wait again.

    Made before the jobs are locked: an enqueue locks the record of a sequence first, too.
    """

    def __init__(self, tx: Tx, ids: Sequence[str]) -> None:
        self._tx = tx
        found = [row for some in portions(ids) for row in tx.execute(_MEMBERS, {"ids": some})]
        self._members = {row.job_id: row for row in found}
        self._last = lock_known(tx, sorted({row.line for row in found}))
        # Edges of sequences over which a child waits, from both ends.
        self._parents: dict[str, set[str]] = {}
        self._children: dict[str, set[str]] = {}
        self._status: dict[str, str] = {}
        self._places: dict[str, set[str]] = {}
        self._leaving: set[str] = set()

    def find_places(self, rows: Iterable[JobRow]) -> None:
        """Find what each of the jobs comes to wait for, once children no longer hear of its end.

        :param rows: the jobs, of which those that have ended get a place
        """
        coming = sorted(
            row.id for row in rows if row.id in self._members and JobStatus(row.status) in TERMINAL
        )
        if coming:
            lines = {self._line(each) for each in coming}
            self._last |= lock_last(self._tx, sorted(lines - self._last.keys()))
            self._look_behind(coming)
            self._look_ahead({*coming, *(self._last[line] for line in lines)})
        staying = self._staying(coming)
        self._status |= dict.fromkeys(staying, JobStatus.PENDING.value)
        for job_id in coming:
            if job_id in staying:
                self._stay(job_id)
        for job_id in coming:
            if job_id not in staying:
                self._come_last(job_id)

    def _staying(self, coming: Sequence[str]) -> set[str]:
        """Return those of the jobs that keep their places: one that waits again waits for them, or
        they are the last.

        Found for all at once: ids need not be in the order of the line.
        """
        for job_id in coming:
            self._last[self._line(job_id)] = self._last[self._line(job_id)] or job_id
        parents: dict[str, set[str]] = {}
        for parent, children in self._children.items():
            for child in children:
                parents.setdefault(child, set()).add(parent)
        last = {each for each in coming if self._last[self._line(each)] == each}
        waiting = {each for each in self._status if not self._has_ended(each)}
        starts = [parent for each in waiting | last for parent in parents.get(each, ())]
        return last | (_reached(parents, starts, self._has_ended) & set(coming))

    def _stay(self, job_id: str) -> None:
        mine = self._parents.get(job_id, set())
        found = self._active(mine) - {job_id}
        self._parents[job_id] = mine | found
        self._places[job_id] = found

    def _come_last(self, job_id: str) -> None:
        line = self._line(job_id)
        found = self._active({self._last[line]}) - {job_id}
        self._parents[job_id] = found
        self._places[job_id] = found
        self._leaving.add(job_id)
        self._last[line] = job_id
        self._status[job_id] = JobStatus.PENDING.value

    def take_places(self, waiting: Collection[str]) -> set[str]:
        """Write what has been found, and return the jobs that wait for others.

        :param waiting: jobs that wait for others by edges of their own
        """
        tx, coming = self._tx, sorted(self._places)
        for ids in portions(coming):
            tx.execute(_NOT_HELD, {"ids": ids})
        for ids in portions(sorted(self._leaving)):
            tx.execute(_LEAVE, {"ids": ids})
        pairs = [(child, parent) for child in coming for parent in sorted(self._places[child])]
        if pairs:
            self._add(pairs)
        moved = sorted({self._line(each) for each in coming})
        set_last(tx, {line: self._last[line] for line in moved})
        blocked = set(waiting) - self._places.keys()
        for ids in portions(coming):
            blocked.update(tx.execute(_STILL_WAITING, {"ids": ids}).scalars())
        return blocked

    def _add(self, pairs: Sequence[tuple[str, str]]) -> None:
        queues = {each: self._line(each).partition("\n")[0] for each, _ in pairs}
        new = [
            {
                "child_id": child,
                "parent_id": parent,
                "child_queue": queues[child],
                "on_failure": self._members[child].on_failure,
            }
            for child, parent in pairs
        ]
        for some in portions(new):
            self._tx.execute(self._tx.flavor.insert_ignore(edges), list(some))
        again = [{"child": child, "parent": parent} for child, parent in pairs]
        self._tx.execute(_WAIT_AGAIN, again)

    def _line(self, job_id: str) -> str:
        return str(self._members[job_id].line)

    def _look_behind(self, coming: Iterable[str]) -> None:
        """Read who waits for the jobs, through those that have ended while waiting."""
        ahead, seen = set(coming), set(coming)
        while ahead:
            found = self._edges(_BEHIND, ahead)
            children = {child for child, _ in found} - self._status.keys()
            self._status |= statuses(self._tx, children)
            ahead = {child for child in children if self._has_ended(child)} - seen
            seen |= ahead

    def _look_ahead(self, starts: Iterable[str]) -> None:
        """Read what the jobs wait for, through those that have ended while waiting."""
        ahead, seen = set(starts) - {""}, set[str]()
        while ahead:
            seen |= ahead
            self._status |= statuses(self._tx, ahead - self._status.keys())
            found = self._edges(STILL_OPEN, {each for each in ahead if self._has_ended(each)})
            for child, parent in found:
                self._parents.setdefault(child, set()).add(parent)
            ahead = {parent for _, parent in found} - seen

    def _edges(self, statement: Select[Any], ids: Iterable[str]) -> list[tuple[str, str]]:
        found = [
            (row.child_id, row.parent_id)
            for some in portions(sorted(ids))
            for row in self._tx.execute(statement, {"ids": some})
        ]
        for child, parent in found:
            self._children.setdefault(parent, set()).add(child)
        return found

    def _has_ended(self, job_id: str) -> bool:
        status = self._status.get(job_id)
        return status is not None and JobStatus(status) in TERMINAL

    def _active(self, starts: Iterable[str]) -> set[str]:
        """Return the first jobs from there on that are yet to end."""
        ahead = _reached(self._parents, starts, self._has_ended)
        return {each for each in ahead if each in self._status and not self._has_ended(each)}


def _reached(
    ways: Mapping[str, Collection[str]], starts: Iterable[str], is_passed: Callable[[str], bool]
) -> set[str]:
    """Return the jobs that are reached by the ways over jobs that are passed."""
    seen: set[str] = set()
    ahead = list(starts)
    while ahead:
        job_id = ahead.pop()
        if job_id not in seen:
            seen.add(job_id)
            if is_passed(job_id):
                ahead += ways.get(job_id, ())
    return seen
