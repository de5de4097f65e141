"""Reads of jobs."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from forge_jobs.clock import to_us
from forge_jobs.errors import PartlyUnavailable, Unavailable
from forge_jobs.model.filters import JobFilter, JobOrder, JobSummary, Page
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import TERMINAL, Cause, Hold, Job, JobStatus
from forge_jobs.model.queues import MOST_AHEAD, LinePlace, QueueCounts
from forge_jobs.storage.cursors import (
    Place,
    check_cursor,
    check_limit,
    check_order,
    check_place,
    cursor_of,
)
from forge_jobs.storage.redis.base import job_rows
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_all_queues, in_each_queue
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.jobs.filters import Located, by_time, matching, newest, portions
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.redis.locators.asking import find
from forge_jobs.storage.redis.locators.locators import by_base

_WHOLE_AT_ONCE = 100
"""Whole jobs may be large."""


_LINES_AT_ONCE = 500


class _Line(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``lines.lua`` about a job: texts, "" for a value that is not set."""

    status: str
    cause: str
    kind: str
    priority: str
    attempt: str
    enqueued: str
    run_at: str
    finished: str
    hold: str
    host: str
    started: str
    tags: str
    doc: str
    error: str


class _Counts(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``counts.lua``.

    :param oldest_due_for: microseconds. -1: nothing is due
    """

    exists: bool
    by_status: list[int]
    due: int
    held: int
    running: int
    oldest_due_for: int


Whole = tuple[list[str], list[str], list[str]]


async def get(db: Database, ids: Sequence[JobId], late: Mapping[JobId, str]) -> dict[JobId, Job]:
    """See ``JobStore.get``.

    :param late: jobs whose locators are not written yet, and their queues
    """
    found: dict[JobId, Job] = {}
    unknown: set[JobId] = set()
    for portion in portions(ids, _WHOLE_AT_ONCE):
        queues, unlocated = await find(db, portion, late)
        located = by_base(db, queues)
        answers, silent = await db.run_some("get", located, list[Whole | Literal[False]])
        unknown |= unlocated.union(*(located[base] for base in silent))
        for base, wholes in answers.items():
            for job_id, whole in zip(located[base], wholes, strict=True):
                if whole:
                    found[job_id] = whole_job(queue_of(base), job_id, whole)
    if unknown:
        text = (
            f"of {len(unknown)} of {len(ids)} jobs nothing is known: their server does not answer"
        )
        raise PartlyUnavailable(text, found, unknown)
    return found


async def list_jobs(
    db: Database, which: JobFilter, order: JobOrder, cursor: str | None, limit: int
) -> Page:
    """See ``JobStore.list``."""
    check_limit(limit)
    check_order(order)
    if order == "id":
        return await _newest_page(db, which, check_cursor(cursor) or "", limit)
    beyond = check_place(order, cursor)
    if which.ids is not None:
        return await _named_page(db, which, order, beyond, limit)
    places, looked_at, silent = await by_time(db, which, order, beyond, limit + 1)
    shown = places[:limit]
    lines, unread = await _lines(db, [(place.id, base) for place, base in shown])
    if which.queues and unread:
        raise next(iter(unread.values()))
    last = shown[-1][0] if len(places) > limit else looked_at
    by_id = {line.id: line for line in lines}
    return Page(
        tuple(by_id[place.id] for place, _ in shown if place.id in by_id),
        None if last is None else cursor_of(order, last),
        looked_at.id if looked_at else None,
        tuple(sorted(silent.union(map(queue_of, unread)))),
    )


async def _newest_page(db: Database, which: JobFilter, before: str, limit: int) -> Page:
    found, looked_at, silent = await newest(db, which, before, limit + 1)
    lines, unread = await _lines(db, found[:limit])
    if which.queues and unread:
        raise next(iter(unread.values()))
    cursor = found[limit - 1][0] if len(found) > limit else looked_at
    return Page(tuple(lines), cursor, looked_at, tuple(sorted(silent.union(map(queue_of, unread)))))


async def _named_page(
    db: Database, which: JobFilter, order: JobOrder, beyond: Place | None, limit: int
) -> Page:
    """A page of named jobs, in the order of a time: all of them are read."""
    found: list[Located] = []
    for portion in portions(sorted(set(which.ids or ()))):
        found += await matching(db, which, portion)
    lines, unread = await _lines(db, found)
    if unread:
        raise next(iter(unread.values()))
    placed = [(place, line) for line in lines if (place := _place_of(line, order)) is not None]
    is_descending = order == "finished"
    placed.sort(key=lambda each: each[0], reverse=is_descending)
    left = [
        each
        for each in placed
        if beyond is None or (each[0] != beyond and (each[0] < beyond) == is_descending)
    ]
    cursor = cursor_of(order, left[limit - 1][0]) if len(left) > limit else None
    return Page(tuple(line for _, line in left[:limit]), cursor)


def _place_of(line: JobSummary, order: JobOrder) -> Place | None:
    """Where a job stands in a list by times. None where the list does not hold the job."""
    if order == "finished":
        if line.status not in TERMINAL or line.finished_at is None:
            return None
        return Place(to_us(line.finished_at), line.id)
    is_in_line = line.status in {JobStatus.PENDING, JobStatus.FAILED} and line.hold is None
    return Place(to_us(line.due_at), line.id) if is_in_line else None


async def counts(db: Database, queues: Sequence[str] | None) -> dict[str, QueueCounts]:
    """See ``JobStore.counts``."""
    if queues is None:
        answers = await in_all_queues(db, "counts", [], _Counts)
    else:
        answers = await in_each_queue(db, "counts", sorted(set(queues)), [], _Counts)
    return {
        queue: _queue_counts(each)
        for queue, each in answers.items()
        if each.exists or queues is not None
    }


async def place(db: Database, queue: str, job_id: JobId) -> LinePlace | None:
    """See ``JobStore.place``."""
    ahead = await db.run_one("place", db.keys.queue(queue), request_of("place", id=job_id), int)
    if ahead < 0:
        return None
    return LinePlace(ahead=min(ahead, MOST_AHEAD), is_more=ahead > MOST_AHEAD)


async def _lines(
    db: Database, found: Sequence[Located]
) -> tuple[list[JobSummary], dict[str, Unavailable]]:
    """Return the lines of jobs that are still there, newest first, and errors by base.

    A base that does not answer has no line here, also where a part of its lines has come.
    """
    lines: list[JobSummary] = []
    unread: dict[str, Unavailable] = {}
    for portion in portions(found, _LINES_AT_ONCE):
        ids: dict[str, list[JobId]] = {}
        for job_id, base in portion:
            ids.setdefault(base, []).append(job_id)
        answers, silent = await db.run_some("lines", ids, list[_Line | Literal[False]])
        unread.update(silent)
        lines += (
            _summary(queue_of(base), job_id, line)
            for base, given in answers.items()
            for job_id, line in zip(ids[base], given, strict=True)
            if line
        )
    silent_queues = set(map(queue_of, unread))
    read = (line for line in lines if line.queue not in silent_queues)
    return sorted(read, key=lambda line: line.id, reverse=True), unread


def fields_of(whole: Whole) -> dict[str, str]:
    """Return the hash of a job, of an answer of ``get.lua``."""
    return dict(zip(whole[0][::2], whole[0][1::2], strict=True))


def whole_job(queue: str, job_id: JobId, whole: Whole) -> Job:
    """Return the job of an answer of ``get.lua``."""
    _, errors, waits_for = whole
    fields = fields_of(whole)
    parents = dict(zip(waits_for[::2], waits_for[1::2], strict=True))
    return job_rows.job(queue, job_id, fields, errors, parents)


def _summary(queue: str, job_id: JobId, line: _Line) -> JobSummary:
    read = job_rows.StoredFields(msgspec.structs.asdict(line))
    doc = read.read("doc", job_rows.decode_doc, job_rows.NO_DOC)
    error = read.read("error", job_rows.decode_error, None) if line.error else None
    found = JobSummary(
        id=job_id,
        queue=queue,
        kind=line.kind,
        status=read.member("status", JobStatus.PENDING),
        cause=read.member("cause", Cause.ENQUEUED),
        priority=read.number("priority"),
        attempt=read.count("attempt"),
        max_attempts=doc.max_attempts,
        enqueued_at=read.instant("enqueued"),
        due_at=read.instant("run_at"),
        finished_at=read.instant_if_set("finished"),
        hold=read.member_or_none("hold", Hold) if line.hold else None,
        host_id=HostId(line.host),
        started_at=read.instant_if_set("started"),
        tags=tuple(line.tags.split("\n")) if line.tags else (),
        last_error=f"{error.type}: {error.message}" if error else "",
    )
    return msgspec.structs.replace(found, unreadable=read.problems) if read.problems else found


def _queue_counts(each: _Counts) -> QueueCounts:
    waited = each.oldest_due_for
    return QueueCounts(
        by_status=dict(zip((status.value for status in JobStatus), each.by_status, strict=True)),
        due=each.due,
        held=each.held,
        running=each.running,
        oldest_due_for=None if waited < 0 else timedelta(microseconds=waited),
    )
