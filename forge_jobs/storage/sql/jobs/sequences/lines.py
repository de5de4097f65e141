"""Sequences: each job comes after the last one of its key, by an edge like any other.

The row of a sequence is locked until the jobs are committed, so two calls that store jobs of one
key do it one after the other. So do calls that change for whom a stored job waits.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from sqlalchemy import bindparam, insert, select, update

from forge_jobs.model.edges import OF_SEQUENCES, WAITING, EdgeState
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, After, JobStatus, NewJob
from forge_jobs.model.transitions import Delivery
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.row_locks import PAUSES_S, pause
from forge_jobs.storage.sql.base.tables import edges, handovers, jobs, members, sequences
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.children import CUT, LIVE, TOLD
from forge_jobs.storage.sql.jobs.sequences.waited import (
    STILL_OPEN,
    read_ends,
    rules_of,
    waited_for,
)

_LAST = (
    select(sequences.c.line, sequences.c.job_id)
    .where(one_of(sequences.c.line, "lines"))
    .order_by(sequences.c.line)
    .with_for_update()
)
_LINES_OF = select(members.c.job_id, members.c.line).where(one_of(members.c.job_id, "ids"))
_KNOWN_LINES = select(sequences.c.line).where(one_of(sequences.c.line, "lines"))
_FREE_LINES = _KNOWN_LINES.order_by(sequences.c.line).with_for_update(skip_locked=True)
_SET_LAST = (
    update(sequences).where(sequences.c.line == bindparam("of")).values(job_id=bindparam("last"))
)
_LOCKED = (
    select(jobs.c.id, jobs.c.status)
    .where(one_of(jobs.c.id, "ids"))
    .order_by(jobs.c.id)
    .with_for_update(key_share=True)
)
CHILDREN = (
    select(edges.c.child_id, edges.c.parent_id, edges.c.child_queue, edges.c.on_failure)
    .where(
        one_of(edges.c.parent_id, "ids"),
        edges.c.state.in_(WAITING),
        edges.c.on_failure.in_(OF_SEQUENCES),
    )
    .order_by(edges.c.child_id, edges.c.parent_id)
)
_INSERT_HANDOVERS = insert(handovers)
_open = (
    update(edges)
    .where(
        edges.c.child_id == bindparam("child"),
        edges.c.parent_id == bindparam("parent"),
        edges.c.state.not_in(WAITING),
    )
    .values(state=bindparam("as"))
)
_OPEN_AGAIN = (
    _open.where(edges.c.link != TOLD).values(link=bindparam("to")).returning(edges.c.on_failure)
)
# A handover of this very end is under way.
_OPEN_TOLD = _open.where(edges.c.link == TOLD)


def in_line(tx: Tx, requests: Sequence[NewJob], stands_for: Mapping[str, JobId]) -> list[NewJob]:
    """Return the requests, each after the job that was last in its sequence.

    A job that is done or gone need not be waited for. All else is known at the hand-over. A parent
    that the request names, and that is of the sequence, is named by the sequence too.

    :param stands_for: of a request that was dropped the stored job in place of it
    """
    lines = {request.id: _line(request) for request in requests if request.sequence is not None}
    last = lock_last(tx, sorted(set(lines.values())))
    waited_for = _waited_for(tx, {job_id for job_id in last.values() if job_id})
    last = {line: job_id for line, job_id in last.items() if job_id in waited_for}
    named = {
        request.id: [stands_for.get(after.job_id, after.job_id) for after in request.after]
        for request in requests
        if request.id in lines
    }
    line_of = lines | lines_of(tx, {each for ids in named.values() for each in ids} - lines.keys())
    placed = [_placed(request, last, line_of, named.get(request.id, ())) for request in requests]
    set_last(tx, {line: last[line] for line in sorted(set(lines.values()))})
    joined = [
        {"job_id": one.id, "line": lines[one.id], "on_failure": one.sequence.on_failure}
        for one in requests
        if one.sequence is not None
    ]
    for portion in portions(joined):
        tx.execute(tx.flavor.insert_ignore(members), list(portion))
    return placed


def set_last(tx: Tx, last: Mapping[str, str]) -> None:
    """Note the last job of each sequence, by the line, in the order of lines."""
    for portion in portions({"of": line, "last": job_id} for line, job_id in last.items()):
        tx.execute(_SET_LAST, list(portion))


def _placed(
    request: NewJob, last: dict[str, str], line_of: Mapping[str, str], named: Sequence[JobId]
) -> NewJob:
    sequence = request.sequence
    if sequence is None:
        return request
    line = line_of[request.id]
    parents = {each for each in named if line_of.get(each) == line}
    parents |= {JobId(last[line])} if line in last else set()
    last[line] = request.id
    if not parents:
        return request
    places = [After(each, sequence.on_failure) for each in sorted(parents)]
    return msgspec.structs.replace(request, after=(*request.after, *places))


def statuses(tx: Tx, ids: Iterable[str]) -> dict[str, str]:
    """Lock the jobs, and return the statuses of those that are stored."""
    return {
        row.id: row.status
        for portion in portions(sorted(ids))
        for row in tx.execute(_LOCKED, {"ids": portion})
    }


def leaves_place(one: Delivery) -> bool:
    """Return whether the parent's end makes the child wait for what the parent waited for."""
    told = one.handover
    return told.on_failure in OF_SEQUENCES and told.parent_status is not JobStatus.DONE


def inherit(tx: Tx, deliveries: Iterable[Delivery]) -> set[tuple[str, str]]:
    """Let children of a sequence wait for what a parent that ended without success waited for.

    Otherwise a cancelled job in the middle would let the next one overtake those before. What holds
    a parent that holds the child is left there. Otherwise each job of a stopped sequence, the jobs
    of which are cancelled, would come to wait for all before.

    :return: child and parent of edges that are open again, and of which an end is on the way
    """
    children: dict[str, list[Delivery]] = {}
    for one in deliveries:
        if leaves_place(one):
            children.setdefault(one.handover.parent_id, []).append(one)
    places = waited_for(tx, children)
    found = [
        (one, parent, state)
        for job_id, place in places.items()
        for parent, state in sorted(place.items())
        for one in children[job_id]
        if parent != one.handover.child_id and not (one.edge.waits and state is EdgeState.HELD)
    ]
    # A child that went on by a note of an earlier end may be in front of the parent by now.
    waiting = {
        (edge.child_id, edge.parent_id)
        for ids in portions(sorted({one.handover.child_id for one, *_ in found}))
        for edge in tx.execute(STILL_OPEN, {"ids": ids})
    }
    found = [
        each for each in found if (each[0].handover.child_id, each[0].handover.parent_id) in waiting
    ]
    if not found:
        return set()
    status = statuses(tx, {parent for _, parent, _ in found})
    rules = rules_of(tx, {one.handover.child_id: one.handover.on_failure for one, *_ in found})
    held = [one.handover for one, _, state in found if state is EdgeState.HELD]
    late = ended_before(tx, [(told.child_id, told.parent_id) for told in held])
    opened: set[tuple[str, str]] = set()
    for one, parent, state in found:
        told = one.handover
        child = (told.child_id, told.queue, rules[told.child_id])
        kept = state if (told.child_id, told.parent_id) in late else EdgeState.OPEN
        if add_edge(tx, child, parent, status.get(parent), kept):
            opened.add((told.child_id, parent))
    return opened


def ended_before(tx: Tx, pairs: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the pairs of child and parent whose child had ended by the end of the parent.

    Such a child has no word about the jobs that held the parent. Those behind the child have one.
    A parent that has yet to end, and is being removed, ends now.
    """
    ends = read_ends(tx, {each for pair in pairs for each in pair})
    return {
        (child, parent)
        for child, parent in pairs
        if child in ends and ends[child].at is not None
        if parent in ends and not ends[parent].was_before(ends[child])
    }


def add_edge(
    tx: Tx,
    child: tuple[str, str, str],
    parent: str,
    found: str | None,
    state: EdgeState = EdgeState.OPEN,
) -> bool:
    """Let a child wait for one parent more.

    :param child: the id, the queue, and what a failure of the parent means
    :param found: the status of the parent. None when the parent is gone
    :param state: held by a parent that has ended: the child does not hear of that end
    :return: whether the edge is open again, and an end of the parent on the way
    """
    child_id, queue, on_failure = child
    status = JobStatus.CANCELLED if found is None else JobStatus(found)
    is_told = status in TERMINAL and state is EdgeState.OPEN
    pair = {"child_id": child_id, "parent_id": parent, "on_failure": on_failure}
    link = TOLD if is_told else CUT if found is None else LIVE
    edge = {**pair, "child_queue": queue, "state": state.value, "link": link}
    is_open = tx.execute(tx.flavor.insert_ignore(edges), edge).rowcount
    if not is_open and found is not None and status is not JobStatus.DONE:
        # The child had come last, and so left its place behind this parent.
        again = {"child": child_id, "parent": parent, "as": state.value, "to": link}
        words = tx.execute(_OPEN_AGAIN, again).scalars().all()
        is_open, pair["on_failure"] = len(words), (words or [on_failure])[0]
        if not is_open:
            del again["to"]
            return tx.execute(_OPEN_TOLD, again).rowcount > 0
    if is_open and is_told:
        news = {**pair, "queue": queue, "parent_status": status.value}
        tx.execute(_INSERT_HANDOVERS, news)
        tx.wake_handover()
    return False


def _line(request: NewJob) -> str:
    key = "" if request.sequence is None else request.sequence.key
    return f"{request.queue}\n{key}"


def lock_lines(tx: Tx, job_ids: Iterable[str]) -> set[str]:
    """Lock the sequences of jobs, and return the jobs whose sequence another call keeps locked.

    Waits for a moment, and without an end only in a caller's own transaction. For the calls that
    have jobs locked already, or that may do the rest later: one that waited could deadlock.
    """
    if not tx.flavor.locks_rows:
        return set()
    line_of = lines_of(tx, job_ids)
    kept: Collection[str] = set(line_of.values())
    if tx.is_callers:
        lock_known(tx, sorted(kept))
        return set()
    for seconds in (0.0, *PAUSES_S):
        if not kept:
            return set()
        if seconds:
            pause(tx, seconds)
        kept = _kept(tx, kept)
    return {each for each, line in line_of.items() if line in kept}


def lines_of(tx: Tx, job_ids: Iterable[str]) -> dict[str, str]:
    """Return the sequence of each of the jobs that is in one."""
    return {
        row.job_id: row.line
        for ids in portions(job_ids)
        for row in tx.execute(_LINES_OF, {"ids": ids})
    }


def _kept(tx: Tx, lines: Collection[str]) -> set[str]:
    """Lock the sequences that no other transaction has locked, and return the rest of them."""
    kept: set[str] = set()
    for portion in portions(sorted(lines)):
        locked = set(tx.execute(_FREE_LINES, {"lines": portion}).scalars())
        if len(locked) < len(portion):
            kept.update(set(tx.execute(_KNOWN_LINES, {"lines": portion}).scalars()) - locked)
    return kept


def lock_known(tx: Tx, lines: Sequence[str]) -> dict[str, str]:
    """Lock the sequences that have a record, and return the last job of each."""
    return {
        row.line: row.job_id
        for portion in portions(lines)
        for row in tx.execute(_LAST, {"lines": portion})
    }


def lock_last(tx: Tx, lines: Sequence[str]) -> dict[str, str]:
    """Lock the sequences, in one order in every call, and return the last job of each."""
    found: dict[str, str] = {}
    for portion in portions(lines):
        missing = portion
        while missing:
            # A row may be removed between the two statements, with the job.
            rows = [{"line": line, "job_id": ""} for line in missing]
            tx.execute(tx.flavor.insert_ignore(sequences), rows)
            found |= lock_known(tx, missing)
            missing = [line for line in missing if line not in found]
    return found


def _waited_for(tx: Tx, ids: Iterable[str]) -> Mapping[str, str]:
    """Return those of the jobs that are stored, and not done."""
    found = statuses(tx, ids)
    return {each: status for each, status in found.items() if status != JobStatus.DONE.value}
