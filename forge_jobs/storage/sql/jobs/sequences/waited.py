"""The places that jobs of a sequence had in line when they ended.

A job that ended while waiting leaves its place to those behind. Ends are handed over some time
after they come, in any order, and several at once. So the edges alone do not say what the job
waited for: the job before may have ended earlier, and by the word of this job that end is passed.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Row, select

from forge_jobs.model.edges import (
    LINE_RULES,
    OF_SEQUENCES,
    WAITING,
    EdgeState,
    edge_of_ended,
)
from forge_jobs.model.jobs import TERMINAL, JobStatus
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import edges, jobs, members
from forge_jobs.storage.sql.base.transaction import Tx

_FAR = 100
"""How many jobs are passed one behind the other. Those before tell the others by hand-overs."""

STILL_OPEN = (
    select(edges.c.child_id, edges.c.parent_id, edges.c.state, edges.c.on_failure)
    .where(
        one_of(edges.c.child_id, "ids"),
        edges.c.state.in_(WAITING),
        edges.c.on_failure.in_(OF_SEQUENCES),
    )
    .order_by(edges.c.child_id, edges.c.parent_id)
)
_ENDED = [status.value for status in TERMINAL]
_ENDS = select(jobs.c.id, jobs.c.status, jobs.c.finished_at).where(one_of(jobs.c.id, "ids"))
_RULES_OF = select(members.c.job_id, members.c.on_failure).where(one_of(members.c.job_id, "ids"))


class End(NamedTuple):
    """The end of a job.

    :param word: the status
    :param at: the time. None of a job that has yet to end
    """

    word: str
    at: int | None

    def was_before(self, other: "End | None") -> bool:
        """Return whether this end came before that of a job which was waiting.

        Of ends at one moment none has passed the other.
        """
        if self.at is None:
            return False
        return other is None or other.at is None or self.at < other.at


def read_ends(tx: Tx, ids: Iterable[str]) -> dict[str, End]:
    """Return the ends of the jobs that are stored."""
    found: dict[str, End] = {}
    for some in portions(sorted(ids)):
        for job_id, word, at in tx.execute(_ENDS, {"ids": some}):
            # A time that cannot be read is before all others.
            known = at if isinstance(at, int) else 0
            found[job_id] = End(word, known if word in _ENDED else None)
    return found


def rules_of(tx: Tx, words: Mapping[str, str]) -> dict[str, str]:
    """Return what the sequences of the children say of those before.

    :param words: of an edge of each child, which may be of a parent that the request named
    """
    rules = {child: word for child, word in words.items() if word in LINE_RULES}
    for ids in portions(sorted(words.keys() - rules.keys())):
        rules |= {row.job_id: row.on_failure for row in tx.execute(_RULES_OF, {"ids": ids})}
    return {child: rules.get(child, LINE_RULES[0]) for child in words}


def waited_for(tx: Tx, ids: Collection[str]) -> dict[str, dict[str, EdgeState]]:
    """Return by job and parent what the jobs waited for when they ended, without those that waited
    for nothing. A job that has yet to end waits now.
    """
    found = _Places(tx, ids)
    places = {each: found.of(each) for each in sorted(ids)}
    return {each: place for each, place in places.items() if place}


class _Places:
    """Edges and ends of jobs, and of those before that ended earlier."""

    def __init__(self, tx: Tx, ids: Collection[str]) -> None:
        self._tx = tx
        self._ends: dict[str, End] = {}
        self._edges: dict[str, list[Row[Any]]] = {}
        self._rules: dict[str, str] = {}
        self._known: dict[str, dict[str, EdgeState]] = {}
        # Together, as far as that is known to be needed.
        ahead = set(ids)
        for _ in range(_FAR):
            self._read(ahead)
            ahead = {parent for each in ahead for parent in self._passed(each)} - self._edges.keys()
            if not ahead:
                break

    def of(self, job_id: str, depth: int = 0) -> dict[str, EdgeState]:
        """Return the jobs that the job waited for at its end, with the states of the edges."""
        if job_id in self._known:
            return self._known[job_id]
        found = self._known[job_id] = {}
        if job_id not in self._edges:
            self._read({job_id})
        ahead = deque(
            (row.parent_id, EdgeState(row.state), row.on_failure) for row in self._edges[job_id]
        )
        seen = {job_id}
        while ahead:
            parent, state, word = ahead.popleft()
            if parent in seen:
                continue
            seen.add(parent)
            if depth == _FAR or state is EdgeState.HELD or not self._was_before(parent, job_id):
                found[parent] = state
                continue
            status = JobStatus(self._ends[parent].word)
            after = edge_of_ended(word, status)
            if after.waits:
                found[parent] = after
            if status is not JobStatus.DONE:
                ahead += [
                    (each, EdgeState.OPEN, self._rules[job_id])
                    for each, of in self.of(parent, depth + 1).items()
                    if not (after.waits and of is EdgeState.HELD)
                ]
        return found

    def _was_before(self, parent: str, child: str) -> bool:
        end = self._ends.get(parent)
        return end is not None and end.was_before(self._ends.get(child))

    def _passed(self, job_id: str) -> set[str]:
        """Return the jobs that ended before the job that was waiting for them."""
        rows = [row for row in self._edges[job_id] if row.state == EdgeState.OPEN.value]
        return {row.parent_id for row in rows if self._was_before(row.parent_id, job_id)}

    def _read(self, ids: Collection[str]) -> None:
        """Read the edges of jobs, and the ends of the jobs on both sides."""
        some_of = portions(sorted(ids))
        found = [row for some in some_of for row in self._tx.execute(STILL_OPEN, {"ids": some})]
        self._edges |= {each: [] for each in ids}
        for row in found:
            self._edges[row.child_id].append(row)
        named = {each for row in found for each in (row.child_id, row.parent_id)}
        self._ends |= read_ends(self._tx, (each for each in named if each not in self._ends))
        self._rules |= rules_of(self._tx, {row.child_id: row.on_failure for row in found})
