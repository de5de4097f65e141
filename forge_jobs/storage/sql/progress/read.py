"""Reads of progress, log lines and states of jobs."""

from collections.abc import Sequence

from sqlalchemy import and_, bindparam, select

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.progress import JobState, LogLine, LogPage
from forge_jobs.storage.cursors import check_limit
from forge_jobs.storage.progress_documents import progress_of
from forge_jobs.storage.salvage import Fields
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.progress.tables import log_lines, progress

_STATES = (
    select(
        jobs.c.id,
        jobs.c.queue,
        jobs.c.kind,
        jobs.c.status,
        jobs.c.cause,
        jobs.c.attempt,
        jobs.c.token,
        progress.c.progress,
    )
    .select_from(jobs)
    .outerjoin(progress, and_(progress.c.job_id == jobs.c.id, progress.c.token == jobs.c.token))
    .where(one_of(jobs.c.id, "ids"))
)
_ATTEMPTS = (
    select(progress.c.attempt)
    .where(progress.c.job_id == bindparam("of"), progress.c.number > 0)
    .order_by(progress.c.token, progress.c.attempt)
)
_LINES = (
    select(log_lines)
    .where(
        log_lines.c.job_id == bindparam("of"),
        log_lines.c.attempt == bindparam("at_attempt"),
        log_lines.c.number > bindparam("after"),
    )
    .order_by(log_lines.c.number)
    .limit(bindparam("count"))
)


def states(tx: Tx, ids: Sequence[JobId]) -> dict[JobId, JobState]:
    """See ``JobStore.states``."""
    return {
        JobId(row.id): _state(row)
        for portion in portions(ids)
        for row in tx.execute(_STATES, {"ids": portion})
    }


def job_log(tx: Tx, job_id: JobId, attempt: int | None, after: int, limit: int) -> LogPage:
    """See ``JobStore.job_log``."""
    check_limit(limit)
    attempts = tuple(tx.execute(_ATTEMPTS, {"of": job_id}).scalars())
    wanted = attempt if attempt is not None else attempts[-1] if attempts else 0
    asked = {"of": job_id, "at_attempt": wanted, "after": after, "count": limit}
    lines = tuple(map(_line, tx.execute(_LINES, asked))) if wanted in attempts else ()
    return LogPage(attempt=wanted, lines=lines, attempts=attempts)


def _state(row: JobRow) -> JobState:
    read = Fields({**row._mapping})
    return JobState(
        id=JobId(row.id),
        queue=read.text("queue"),
        kind=read.text("kind"),
        status=read.member("status", JobStatus.PENDING),
        cause=read.member("cause", Cause.ENQUEUED),
        attempt=read.number("attempt"),
        token=read.number("token"),
        progress=progress_of(row.progress),
    )


def _line(row: JobRow) -> LogLine:
    read = Fields({**row._mapping})
    return LogLine(
        number=read.number("number"),
        at=read.instant("at"),
        level=read.number("level"),
        text=read.text("text"),
        token=read.number("token"),
    )
