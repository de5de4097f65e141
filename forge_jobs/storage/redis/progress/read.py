"""Reads of progress, log lines and states of jobs."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from forge_jobs.clock import from_us
from forge_jobs.errors import PartlyUnavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.progress import JobState, LogLine, LogPage
from forge_jobs.storage.cursors import check_limit
from forge_jobs.storage.progress_documents import progress_of
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.job_rows import StoredFields
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.redis.locators.asking import find
from forge_jobs.storage.redis.locators.locators import by_base

_AT_ONCE = 250
"""How many states one step reads, of all queues together."""


class _State(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``states.lua`` of a job: texts, "" for what is not set."""

    kind: str
    status: str
    cause: str
    attempt: str
    token: str
    progress_at: int
    progress: str


class _Line(msgspec.Struct, frozen=True, array_like=True):
    """A line in the answer of ``job_log.lua``."""

    number: int
    at: int
    level: int
    text: str
    token: int
    offset: int


class _Log(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``job_log.lua``."""

    attempt: int
    lines: list[_Line]
    attempts: list[int]


async def states(
    db: Database, ids: Sequence[JobId], late: Mapping[JobId, str]
) -> dict[JobId, JobState]:
    """See ``JobStore.states``.

    :param late: jobs whose locators are not written yet, and their queues
    """
    found: dict[JobId, JobState] = {}
    unknown: set[JobId] = set()
    for start in range(0, len(ids), _AT_ONCE):
        located, unlocated = await _located(db, ids[start : start + _AT_ONCE], late)
        answers, silent = await db.run_some("states", located, list[_State | Literal[False]])
        unknown |= unlocated.union(*(located[base] for base in silent))
        for base, given in answers.items():
            for job_id, state in zip(located[base], given, strict=True):
                if state:
                    found[job_id] = _state(job_id, queue_of(base), state)
    if unknown:
        text = (
            f"of {len(unknown)} of {len(ids)} jobs nothing is known: their server does not answer"
        )
        raise PartlyUnavailable(text, found, unknown)
    return found


async def job_log(
    db: Database,
    job_id: JobId,
    late: Mapping[JobId, str],
    *,
    attempt: int | None,
    after: int,
    limit: int,
) -> LogPage:
    """See ``JobStore.job_log``."""
    check_limit(limit)
    located, unlocated = await _located(db, [job_id], late)
    if unlocated:
        text = f"nothing is known of job {job_id}: its server does not answer"
        raise PartlyUnavailable(text, {}, unlocated)
    for base in located:
        request = request_of("job_log", id=job_id, attempt=attempt or 0, after=after, most=limit)
        log = await db.run_one("job_log", base, request, _Log)
        lines = tuple(map(_line, log.lines)) if log.attempt in log.attempts else ()
        return LogPage(attempt=log.attempt, lines=lines, attempts=tuple(log.attempts))
    return LogPage(attempt=attempt or 0, lines=(), attempts=())


async def _located(
    db: Database, ids: Sequence[JobId], late: Mapping[JobId, str]
) -> tuple[dict[str, list[JobId]], set[JobId]]:
    queues, unlocated = await find(db, ids, late)
    return by_base(db, queues), unlocated


def _state(job_id: JobId, queue: str, stored: _State) -> JobState:
    read = StoredFields(msgspec.structs.asdict(stored))
    progress = progress_of(stored.progress)
    if progress is not None:
        progress = msgspec.structs.replace(progress, at=from_us(stored.progress_at))
    return JobState(
        id=job_id,
        queue=queue,
        kind=stored.kind,
        status=read.member("status", JobStatus.PENDING),
        cause=read.member("cause", Cause.ENQUEUED),
        attempt=read.count("attempt"),
        token=read.number("token"),
        progress=progress,
    )


def _line(stored: _Line) -> LogLine:
    return LogLine(
        number=stored.number,
        at=from_us(stored.at),
        level=stored.level,
        text=stored.text,
        token=stored.token,
    )
