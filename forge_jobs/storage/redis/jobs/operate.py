"""The verbs of operators, in bounded batches that visit in id order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forge_jobs.model.actions import ActionStep, check_step
from forge_jobs.model.filters import REFUSED, BulkOutcome, JobFilter, Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.storage.cursors import check_cursor, check_limit
from forge_jobs.storage.redis.actions.steps import packed, read_step
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_all_queues
from forge_jobs.storage.redis.base.requests import VisitFields
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.base.steps import ITEMS_AT_ONCE, run_in_steps
from forge_jobs.storage.redis.jobs.filters import (
    filter_parts,
    is_meant_queue,
    oldest,
    texts_seen,
)
from forge_jobs.storage.redis.jobs.requeue import VERBS, requeue, requeue_step, seen_of
from forge_jobs.storage.redis.locators.asking import find_by_queue

_CHANGED, _REQUESTED = "changed", "requested"
_Outcomes = list[tuple[JobId, str]]


@dataclass(frozen=True)
class _Visit:
    """The jobs that one call visits, per base of a queue. The step itself looks at them again.

    :param outside: named jobs in queues that are not meant
    :param missing: named jobs that are nowhere
    :param cursor: where the next call goes on
    """

    ids: dict[str, list[JobId]]
    outside: dict[str, list[JobId]] = field(default_factory=dict)
    missing: Sequence[JobId] = ()
    cursor: str | None = None


async def operate(
    db: Database,
    verb: str,
    which: JobFilter,
    cursor: str | None,
    limit: int,
    *,
    step: ActionStep | None = None,
) -> BulkOutcome:
    """Do ``verb`` (the name of its script) to the next matching jobs.

    Step by step, each of a bounded number of jobs: a call that dies in between has dealt with the
    first. A requeue of jobs that come after others is a separate step.
    """
    check_limit(limit)
    if step is not None:
        check_step(which, cursor, step)
        cursor, limit = step.cursor or None, min(limit, ITEMS_AT_ONCE)
    after = check_cursor(cursor) or ""
    if which.ids is None:
        visit = await _find(db, which, after, limit)
    else:
        visit = await _find_named(db, which, which.ids, after, limit)
    parts, row = filter_parts(which), REFUSED[verb]
    seen = await texts_seen(db, which, visit.ids) if which.deep else None
    if step is not None:
        return await _step(db, verb, (parts, seen), visit, step)
    if verb in VERBS:
        outcomes = await requeue(db, parts, visit.ids, seen, VERBS[verb])
    else:
        answers = await run_in_steps(
            db,
            verb,
            visit.ids,
            lambda _, ids: VisitFields(parts, ids, row, seen=seen_of(seen, ids)),
            _Outcomes,
        )
        outcomes = [outcome for found in answers.values() for outcome in found]
    outcomes += ((job_id, Refusal.NOT_FOUND.value) for job_id in await _gone(db, visit))
    return _outcome(sorted(outcomes), visit.cursor, is_named=which.ids is not None)


async def _step(
    db: Database,
    verb: str,
    meant: tuple[object, Mapping[JobId, str] | None],
    visit: _Visit,
    step: ActionStep,
) -> BulkOutcome:
    """Take one step of an action: one run of one script, also where no job is left.

    :param meant: the filter as scripts take it, and the texts that were seen
    """
    base = db.keys.queue(step.queue)
    ids, to = visit.ids.get(base, []), visit.cursor
    parts, seen = meant[0], seen_of(meant[1], ids)
    if verb in VERBS:
        visited = (base, ids, seen, VERBS[verb])
        outcomes, cursor = await requeue_step(db, parts, visited, step, to)
    else:
        request = VisitFields(parts, ids, REFUSED[verb], False, packed(step, to), seen)
        answer = await db.run_one(verb, base, request, _Outcomes)
        outcomes, cursor = read_step(step, answer, to)
    return _outcome(sorted(outcomes), cursor, is_named=False)


async def expire(db: Database, limit: int) -> int:
    """See ``JobStore.expire``."""
    waiting = await in_all_queues(db, "expirable", [], int)
    expired = 0
    # One after the other, because only so many in all are changed.
    for queue, count in waiting.items():
        gone = count
        while gone and expired < limit:
            request = {db.keys.queue(queue): min(limit - expired, ITEMS_AT_ONCE)}
            gone = sum((await db.run_some("expire", request, int)).found.values())
            expired += gone
    return expired


async def _find(db: Database, which: JobFilter, after: str, limit: int) -> _Visit:
    found, looked_at, _ = await oldest(db, which, after, limit + 1)
    ids: dict[str, list[JobId]] = {}
    for job_id, base in found[:limit]:
        ids.setdefault(base, []).append(job_id)
    return _Visit(ids, cursor=found[limit - 1][0] if len(found) > limit else looked_at)


async def _find_named(
    db: Database, which: JobFilter, named: Sequence[JobId], after: str, limit: int
) -> _Visit:
    wanted = sorted({job_id for job_id in named if job_id > after})
    visited = wanted[:limit]
    found = await find_by_queue(db, visited)
    # Jobs that come back in one call get their places one after the other.
    located = {base: sorted(ids) for base, ids in found.items()}
    known = {job_id for ids in located.values() for job_id in ids}
    meant = {base for base in located if is_meant_queue(which, base)}
    return _Visit(
        {base: ids for base, ids in located.items() if base in meant},
        {base: ids for base, ids in located.items() if base not in meant},
        [job_id for job_id in visited if job_id not in known],
        visited[-1] if len(wanted) > limit else None,
    )


async def _gone(db: Database, visit: _Visit) -> list[JobId]:
    """Named jobs that do not exist, other than those of the queues that are meant."""
    every = filter_parts(JobFilter())
    requests = {
        base: request_of("match", meant=every, ids=ids) for base, ids in visit.outside.items()
    }
    answers = await db.run("match", requests, list[JobId])
    return [
        *visit.missing,
        *(
            job_id
            for base, ids in visit.outside.items()
            for job_id in ids
            if job_id not in answers[base]
        ),
    ]


def _outcome(outcomes: _Outcomes, cursor: str | None, *, is_named: bool) -> BulkOutcome:
    return BulkOutcome(
        changed=tuple(job_id for job_id, what in outcomes if what == _CHANGED),
        requested=tuple(job_id for job_id, what in outcomes if what == _REQUESTED),
        refused={
            job_id: Refusal(what)
            for job_id, what in outcomes
            if what not in (_CHANGED, _REQUESTED)
            # A job that a filter found and that has gone since is nobody's business.
            and (is_named or what != Refusal.NOT_FOUND)
        },
        cursor=cursor,
    )
