"""Jobs that are removed from their sequences. The others keep their order."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import delete, select

from forge_jobs.model.edges import EdgeState
from forge_jobs.model.jobs import TERMINAL, JobStatus
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import members, sequences
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.sequences.lines import (
    CHILDREN,
    add_edge,
    ended_before,
    set_last,
    statuses,
)
from forge_jobs.storage.sql.jobs.sequences.waited import STILL_OPEN, rules_of, waited_for

_FORGET_MEMBERS = delete(members).where(one_of(members.c.job_id, "ids"))
_FORGET = delete(sequences).where(one_of(sequences.c.job_id, "ids"))
_NAMED_LAST = (
    select(sequences.c.line, sequences.c.job_id)
    .where(one_of(sequences.c.job_id, "ids"))
    .order_by(sequences.c.line)
)


def leave_lines(tx: Tx, removed: Sequence[str]) -> None:
    """Take jobs that are being removed out of their sequences, before their edges go.

    Those behind come to wait for what the jobs waited for, and so do those that are yet to come.

    :param removed: of sequences that are locked, see :func:`lock_lines`
    """
    places = waited_for(tx, removed)
    before, status = _stored_before(tx, removed, places)
    if any(before.values()):
        told = [edge for ids in portions(before) for edge in tx.execute(CHILDREN, {"ids": ids})]
        told = [edge for edge in told if edge.child_id not in before]
        rules = rules_of(tx, {edge.child_id: edge.on_failure for edge in told})
        held = {each for of in places.values() for each in of if of[each] is EdgeState.HELD}
        late = ended_before(tx, [(edge.child_id, edge.parent_id) for edge in told if held])
        for edge in told:
            child = (edge.child_id, edge.child_queue, rules[edge.child_id])
            for parent in before[edge.parent_id]:
                keeps = parent in held and (edge.child_id, edge.parent_id) in late
                state = EdgeState.HELD if keeps else EdgeState.OPEN
                add_edge(tx, child, parent, status[parent], state)
        last = [row for ids in portions(before) for row in tx.execute(_NAMED_LAST, {"ids": ids})]
        kept = [row for row in last if before[row.job_id]]
        latest = {row.line: _latest(tx, before[row.job_id], status) for row in kept}
        set_last(tx, latest)
    for ids in portions(removed):
        tx.execute(_FORGET, {"ids": ids})
        tx.execute(_FORGET_MEMBERS, {"ids": ids})


def _stored_before(
    tx: Tx, removed: Sequence[str], places: Mapping[str, Mapping[str, EdgeState]]
) -> tuple[dict[str, list[str]], Mapping[str, str]]:
    """Return for each of the jobs the stored jobs of its sequence that it waits for, and the
    statuses of those.

    One that waits for another of the removed jobs waits for what that one waits for.
    """
    if not places:
        return {}, {}
    parents = {each: sorted(places.get(each, ())) for each in removed}
    status = statuses(tx, {each for of in parents.values() for each in of} - parents.keys())
    before = {each: sorted(_beyond(each, parents) & status.keys()) for each in removed}
    return before, status


def _latest(tx: Tx, places: Sequence[str], status: Mapping[str, str]) -> str:
    """Return the job of a sequence that waits for the others, also by way of other jobs.

    Of those behind all that have yet to end: one that has ended may have left its place.
    """
    behind = set(places)
    if len(behind) > 1 and (newest := _not_ahead(tx, _active(tx, places, status))):
        behind &= _behind(tx, newest)
    return max(_not_ahead(tx, behind or set(places)))


def _not_ahead(tx: Tx, ids: set[str]) -> set[str]:
    """Return the jobs that no other of them waits for."""
    left = ahead = seen = ids
    while ahead and len(left) > 1:
        found = _ahead_of(tx, ahead)
        left = left - found
        ahead = found - seen
        seen = seen | found
    return left or ids


def _behind(tx: Tx, ids: set[str]) -> set[str]:
    """Return the jobs, and all of the sequence that wait for them, also by way of others."""
    ahead = seen = ids
    while ahead:
        some_of = portions(sorted(ahead))
        found = {each.child_id for some in some_of for each in tx.execute(CHILDREN, {"ids": some})}
        ahead = found - seen
        seen = seen | found
    return seen


def _active(tx: Tx, places: Sequence[str], status: Mapping[str, str]) -> set[str]:
    """Return the first jobs from there on that have yet to end, by way of those that ended while
    waiting."""
    known, found = dict(status), set[str]()
    ahead, seen = set(places), set(places)
    while ahead:
        known |= statuses(tx, ahead - known.keys())
        ended = {each for each in ahead & known.keys() if JobStatus(known[each]) in TERMINAL}
        found |= (ahead & known.keys()) - ended
        ahead = _ahead_of(tx, ended) - seen
        seen |= ahead
    return found


def _ahead_of(tx: Tx, ids: Iterable[str]) -> set[str]:
    some_of = portions(sorted(ids))
    return {edge.parent_id for some in some_of for edge in tx.execute(STILL_OPEN, {"ids": some})}


def _beyond(start: str, parents: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the first jobs on the way from one to its parents that have no entry themselves."""
    found: set[str] = set()
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        job_id = ahead.pop()
        if job_id not in parents:
            found.add(job_id)
        elif job_id not in seen:
            seen.add(job_id)
            ahead += parents[job_id]
    return found
