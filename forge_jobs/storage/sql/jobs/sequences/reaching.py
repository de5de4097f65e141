"""Walks along a line over jobs that are passed, and reads of all that a walk may come to."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from sqlalchemy import Select, and_, literal_column, select, true

from forge_jobs.model.edges import OF_SEQUENCES, WAITING
from forge_jobs.model.jobs import TERMINAL
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import edges, jobs
from forge_jobs.storage.sql.base.transaction import Tx

_ENDED = [status.value for status in TERMINAL]


def _ended_beyond(*, behind: bool, laterally: bool) -> Select[tuple[str]]:
    here, there = (
        (edges.c.parent_id, edges.c.child_id) if behind else (edges.c.child_id, edges.c.parent_id)
    )
    beyond = select(jobs.c.id).where(one_of(jobs.c.id, "ids")).cte("beyond", recursive=True)
    # Behind also over edges that callers named.
    of = () if behind else (edges.c.on_failure.in_(OF_SEQUENCES),)
    is_on_way = and_(here == beyond.c.id, edges.c.state.in_(WAITING), *of)
    has_ended = and_(jobs.c.id == there, jobs.c.status.in_(_ENDED))
    if not laterally:
        way = select(there).join(beyond, is_on_way).join(jobs, has_ended)
    else:
        # Otherwise PostgreSQL may read all edges for each job on the way.
        found = (
            select(there.label("id")).where(is_on_way).offset(literal_column("0")).lateral("found")
        )
        has_ended = and_(jobs.c.id == found.c.id, jobs.c.status.in_(_ENDED))
        ended = select(jobs.c.id).where(has_ended).offset(literal_column("0")).lateral("ended")
        way = select(ended.c.id).select_from(beyond.join(found, true()).join(ended, true()))
    return select(beyond.union(way).c.id)


_BEHIND = {each: _ended_beyond(behind=True, laterally=each) for each in (False, True)}
_AHEAD = {each: _ended_beyond(behind=False, laterally=each) for each in (False, True)}


def ended_behind(tx: Tx, ids: Collection[str]) -> set[str]:
    """Return the jobs, and those that ended while waiting for them, also by way of each other."""
    return _read(tx, _BEHIND[tx.flavor.locks_rows], ids)


def ended_ahead(tx: Tx, ids: Collection[str]) -> set[str]:
    """Return the jobs, and the ended ones that they wait for, also by way of each other."""
    return _read(tx, _AHEAD[tx.flavor.locks_rows], ids)


def _read(tx: Tx, statement: Select[tuple[str]], ids: Collection[str]) -> set[str]:
    some_of = portions(sorted(ids))
    return {each for some in some_of for each in tx.execute(statement, {"ids": some}).scalars()}


class Walk:
    """The first jobs that are not passed, on the way from others.

    A job that is passed is looked at once for all starts. So places for all jobs of a line cost as
    much as the line is long, and not the square.

    :param ways: by job the next ones
    :param is_passed: must not come to be true of another job
    """

    def __init__(
        self, ways: Mapping[str, Collection[str]], is_passed: Callable[[str], bool]
    ) -> None:
        self._ways = ways
        self._is_passed = is_passed
        self._beyond: dict[str, set[str]] = {}
        # By job those whose entry came by way of the job.
        self._users: dict[str, set[str]] = {}

    def reached(self, starts: Iterable[str]) -> set[str]:
        """Return the jobs that are reached."""
        found = set[str]()
        for each in list(starts):
            found |= self._look_beyond(each) if self._is_passed(each) else {each}
        return found

    def forget(self, job_id: str) -> None:
        """Forget what was found by way of a job, which is passed no longer, or has other ways."""
        ahead = [job_id]
        while ahead:
            one = ahead.pop()
            self._beyond.pop(one, None)
            ahead += self._users.pop(one, ())

    def _look_beyond(self, start: str) -> set[str]:
        if start in self._beyond:
            return self._beyond[start]
        found: dict[str, set[str]] = {start: set()}
        way: list[tuple[str, Iterator[str]]] = [(start, iter(self._ways.get(start, ())))]
        while way:
            job_id, ahead = way[-1]
            for each in ahead:
                if not self._is_passed(each):
                    found[job_id].add(each)
                elif each in found:
                    return self._go_round(start)
                elif each in self._beyond:
                    self._take(job_id, each, found)
                else:
                    found[each] = set()
                    way.append((each, iter(self._ways.get(each, ()))))
                    break
            else:
                way.pop()
                self._beyond[job_id] = found.pop(job_id)
                if way:
                    self._take(way[-1][0], job_id, found)
        return self._beyond[start]

    def _take(self, job_id: str, each: str, found: Mapping[str, set[str]]) -> None:
        found[job_id].update(self._beyond[each])
        self._users.setdefault(each, set()).add(job_id)

    def _go_round(self, start: str) -> set[str]:
        """Return the jobs that are reached where some jobs wait for each other."""
        found, seen, ahead = set[str](), {start}, [start]
        while ahead:
            for each in self._ways.get(ahead.pop(), ()):
                if not self._is_passed(each):
                    found.add(each)
                elif each not in seen:
                    seen.add(each)
                    ahead.append(each)
        return found
