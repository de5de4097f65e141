"""Members of sequences that wait again after they had ended: each gets a place in line.

A job that another one of its sequence still waits for, or that was the last, has kept its place.
Any other goes to the end of the line, behind all that have yet to end, and runs beside none of its
key.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from sqlalchemy import Row, Select, and_, bindparam, select, update

from forge_jobs.model.edges import OF_SEQUENCES, WAITING, EdgeState
from forge_jobs.model.jobs import TERMINAL, JobStatus
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import edges, members
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.children import CUT, LIVE
from forge_jobs.storage.sql.jobs.sequences.lines import (
    lock_known,
    lock_last,
    set_last,
    statuses,
)
from forge_jobs.storage.sql.jobs.sequences.reaching import Walk, ended_ahead, ended_behind
from forge_jobs.storage.sql.jobs.sequences.waited import STILL_OPEN

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
    select(
        edges.c.child_id,
        edges.c.parent_id,
        edges.c.on_failure,
        members.c.line,
        members.c.on_failure.label("rule"),
    )
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
        found = self._rows(_MEMBERS, ids)
        lines = {row.line for row in found}
        last = lock_known(tx, sorted(lines))
        if found:
            # Enqueues that kept the sequences locked may have stored others of the jobs.
            found += self._rows(_MEMBERS, set(ids) - {row.job_id for row in found})
            new = {row.line for row in found} - lines
            last |= lock_known(tx, sorted(new)) if new else {}
        self._rules: dict[str, str] = {row.job_id: row.on_failure for row in found}
        self._members = set(self._rules)
        self._last = last
        self._line_of = {row.job_id: str(row.line) for row in found}
        # Edges of sequences over which a child waits, by the child and by the parent. The children
        # are also those over other edges.
        self._edges: dict[str, list[Row[Any]]] = {}
        self._parents: dict[str, set[str]] = {}
        self._children: dict[str, set[str]] = {}
        self._followers: dict[str, set[str]] = {}
        self._status: dict[str, str] = {}
        self._places: dict[str, set[str]] = {}
        self._leaving: set[str] = set()
        self._put_behind: set[tuple[str, str]] = set()
        # By a job that has yet to end the one that came back last before it, which waits for all
        # that the former waits for.
        self._in_front: dict[str, str] = {}
        self._ahead = Walk(self._parents, self._has_ended)
        self._behind: dict[str, Walk] = {}
        self._is_alone = True

    def find_places(self, rows: Iterable[JobRow], after: Mapping[str, Mapping[str, bool]]) -> None:
        """Find what each of the jobs comes to wait for, once children no longer hear of its end.

        :param rows: the jobs, of which those that have ended get a place, one after the other
        :param after: by job and parent of an edge of its own whether the edge then waits
        """
        coming = sorted(
            row.id for row in rows if row.id in self._members and JobStatus(row.status) in TERMINAL
        )
        if not coming:
            return
        lines = {self._line_of[each] for each in coming}
        self._last |= lock_last(self._tx, sorted(lines - self._last.keys()))
        self._look_behind(coming)
        waiting = {each for job_id in coming for each in self._next_ones(job_id)}
        self._line_of |= {self._last[line]: line for line in lines}
        self._look_ahead({*coming, *(self._last[line] for line in lines)} | waiting, waiting)
        for job_id in coming:
            line = self._line_of[job_id]
            last = self._last[line] or job_id
            next_ones = self._next_ones(job_id)
            next_one = self._first_of(next_ones)
            if next_one or last == job_id:
                # What the next one waits for may have passed this job when that had ended.
                known = self._parents.get(job_id, set())
                mine = {each for each in known if after[job_id].get(each)}
                front = self._in_front.get(next_one)
                starts = {front} if front else self._parents.get(next_one or job_id, set())
                found = self._active(starts) - {job_id}
                self._last[line] = last
                self._keep_behind(job_id, next_ones, found)
                for each in next_ones:
                    self._in_front.pop(each, None)
                if next_one:
                    self._in_front[next_one] = job_id
            else:
                mine = set()
                found = self._active({last}) - {job_id}
                self._leaving.add(job_id)
                self._last[line] = job_id
            self._places[job_id] = found
            self._put(job_id, mine, found, after[job_id])

    def _put(self, job_id: str, mine: set[str], found: set[str], after: Mapping[str, bool]) -> None:
        """Note that the job waits again.

        :param mine: the edges of the sequence that stay
        :param found: the jobs to wait for
        :param after: by parent of its edges of any sort whether the edge waits
        """
        settled = self._parents.get(job_id, set()) - mine
        for parent in settled.union(each for each, waits in after.items() if not waits):
            self._children.get(parent, set()).discard(job_id)
            self._followers.get(parent, set()).discard(job_id)
        for parent in found:
            self._note(job_id, parent)
        self._parents[job_id] = mine | found
        self._status[job_id] = JobStatus.PENDING.value
        self._ahead.forget(job_id)
        if self._is_alone:
            self._behind[self._line_of[job_id]].forget(job_id)
        else:
            self._behind.clear()

    def _note(self, child: str, parent: str) -> None:
        """Note an edge of a sequence, over which the child waits."""
        self._children.setdefault(parent, set()).add(child)
        self._followers.setdefault(parent, set()).add(child)

    def _keep_behind(self, job_id: str, next_ones: set[str], found: set[str]) -> None:
        """Put the next ones behind the job itself.

        Who waits in between may be released, or go on without the job.

        :param found: the jobs that the job waits for. Those that were put there by this call need
            not be waited for any more
        """
        for child in next_ones - self._followers.get(job_id, set()):
            self._note(child, job_id)
            self._parents.setdefault(child, set()).add(job_id)
            self._put_behind.add((child, job_id))
        for child, parent in {
            (each, one) for each in next_ones for one in found
        } & self._put_behind:
            self._put_behind.remove((child, parent))
            self._parents[child].discard(parent)
            self._children[parent].discard(child)
            self._followers[parent].discard(child)

    def _next_ones(self, job_id: str) -> set[str]:
        """Return the first jobs of the sequence that wait for the job and have yet to end.

        By way of those that ended while waiting, and of other sequences.
        """
        line = self._line_of[job_id]

        def is_passed(each: str) -> bool:
            if self._line_of[each] != line:
                self._is_alone = False
                return True
            return self._has_ended(each)

        walk = self._behind.setdefault(line, Walk(self._children, is_passed))
        return walk.reached(self._children.get(job_id, ()))

    def _first_of(self, candidates: Collection[str]) -> str:
        """Return the job that all others wait for, "" of none."""
        beyond = {each: {each} for each in candidates}
        seen = {each: {each} for each in candidates}
        left = set(candidates)
        while len(left) > 1 and any(beyond[each] for each in left):
            self._read_parents({one for each in left for one in beyond[each]})
            for each in sorted(left):
                ahead = {one for at in beyond[each] for one in self._parents[at]} - seen[each]
                beyond[each] = ahead
                seen[each] |= ahead
                if not ahead.isdisjoint(candidates):
                    left.discard(each)
        return min(left, default="")

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
        pairs += sorted(self._put_behind)
        if pairs:
            self._add(pairs)
        moved = sorted({self._line_of[each] for each in coming})
        set_last(tx, {line: self._last[line] for line in moved})
        blocked = set(waiting) - self._places.keys()
        for ids in portions(coming):
            blocked.update(tx.execute(_STILL_WAITING, {"ids": ids}).scalars())
        return blocked

    def _add(self, pairs: Sequence[tuple[str, str]]) -> None:
        queues = {each: self._line_of[each].partition("\n")[0] for each, _ in pairs}
        new = [
            {
                "child_id": child,
                "parent_id": parent,
                "child_queue": queues[child],
                "on_failure": self._rules[child],
            }
            for child, parent in pairs
        ]
        for some in portions(new):
            self._tx.execute(self._tx.flavor.insert_ignore(edges), list(some))
        again = [{"child": child, "parent": parent} for child, parent in pairs]
        self._tx.execute(_WAIT_AGAIN, again)

    def _look_behind(self, coming: Iterable[str]) -> None:
        """Read who waits for the jobs, through those that have ended while waiting, and through
        jobs of other sequences."""
        ahead = {(self._line_of[each], each) for each in coming}
        lines = {line for line, _ in ahead}
        seen, read = set(ahead), set[str]()
        for level in count():
            new = {each for _, each in ahead} - read
            if not ahead:
                break
            # A long way is read at once.
            new = ended_behind(self._tx, new) - read if new and level > 1 else new
            self._read_children(new, lines)
            read |= new
            ahead = {
                (line, child)
                for line, parent in ahead
                for child in self._children.get(parent, ())
                if self._has_ended(child) or self._line_of[child] != line
            } - seen
            seen |= ahead

    def _read_children(self, ids: Collection[str], lines: Collection[str]) -> None:
        found = self._rows(_BEHIND, ids)
        self._line_of |= {row.child_id: str(row.line) for row in found}
        self._rules |= {row.child_id: row.rule for row in found}
        # Jobs of other sequences are passed in any case. They are not locked, as those sequences
        # are not.
        mine = {row.child_id for row in found if row.line in lines}
        self._read_statuses(mine)
        for row in found:
            self._children.setdefault(row.parent_id, set()).add(row.child_id)
            if row.on_failure in OF_SEQUENCES:
                self._note(row.child_id, row.parent_id)

    def _look_ahead(self, starts: Iterable[str], waiting: Collection[str]) -> None:
        """Read what the jobs wait for, through those that have ended while waiting.

        :param waiting: jobs of which this is read although they have yet to end
        """
        ahead, seen = set(starts) - {""}, set[str]()
        for level in count():
            if not ahead:
                break
            seen |= ahead
            self._read_statuses(ahead)
            passed = {each for each in ahead if self._has_ended(each) or each in waiting}
            new = _unknown(passed, self._edges)
            if new and level > 1:
                # A long way is read at once.
                new = ended_ahead(self._tx, new)
                self._read_statuses(new)
                self._read_edges(new)
            self._read_parents(passed)
            ahead = {parent for each in passed for parent in self._parents[each]} - seen

    def _read_parents(self, ids: Iterable[str]) -> None:
        new = _unknown(ids, self._parents)
        self._read_edges(new)
        self._parents |= {each: set() for each in new}
        for row in (row for each in sorted(new) for row in self._edges[each]):
            self._parents[row.child_id].add(row.parent_id)
            self._line_of.setdefault(row.parent_id, self._line_of[row.child_id])
            self._note(row.child_id, row.parent_id)

    def _read_statuses(self, ids: Iterable[str]) -> None:
        self._status |= statuses(self._tx, _unknown(ids, self._status))

    def _read_edges(self, ids: Iterable[str]) -> None:
        new = _unknown(ids, self._edges)
        self._edges |= {each: [] for each in new}
        for row in self._rows(STILL_OPEN, new):
            self._edges[row.child_id].append(row)

    def _rows(self, statement: Select[Any], ids: Iterable[str]) -> list[Row[Any]]:
        some_of = portions(sorted(ids))
        return [row for some in some_of for row in self._tx.execute(statement, {"ids": some})]

    def _has_ended(self, job_id: str) -> bool:
        status = self._status.get(job_id)
        return status is not None and JobStatus(status) in TERMINAL

    def _active(self, starts: Iterable[str]) -> set[str]:
        """Return the first jobs from there on that are yet to end."""
        return {each for each in self._ahead.reached(starts) if each in self._status}


def _unknown(ids: Iterable[str], known: Mapping[str, object]) -> set[str]:
    # The difference of a set and the keys of a mapping would look at all keys.
    return {each for each in ids if each not in known}
