"""Edits of a job that waits."""

from typing import Any

import msgspec
from sqlalchemy import bindparam, case, select, update

from forge_jobs.clock import duration_us, from_us, to_us
from forge_jobs.errors import Locked, NotFound
from forge_jobs.model.edits import JobContent, changed_fields, check_editable
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Hold, Job, JobStatus
from forge_jobs.model.unique.keys import REPLACED
from forge_jobs.storage.sql.base.job_rows import encode_tags
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.row_locks import LONGER_PAUSES_S, Lockable
from forge_jobs.storage.sql.base.tables import jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs import read
from forge_jobs.storage.sql.jobs.metrics import append_events
from forge_jobs.storage.sql.progress.notes import forget_steps

_ROW = Lockable(select(jobs.c.id).where(one_of(jobs.c.id, "ids")).order_by(jobs.c.id))
_EDIT = update(jobs).where(jobs.c.id == bindparam("job"))
_OF_CONTENT = {Hold.LIMIT, Hold.STRUCK}
_STAYS_A_REPEAT = case((jobs.c.fingerprint == "", REPLACED), else_=jobs.c.fingerprint)


def edit(tx: Tx, job_id: JobId, token: int, before: JobContent, after: JobContent) -> None:
    """See ``JobStore.edit``."""
    rows = _ROW.lock(tx, [job_id], LONGER_PAUSES_S)
    if rows.kept:
        raise Locked(f"an open transaction holds job {job_id}; edit it when that has ended")
    job = read.get(tx, [job_id]).get(job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}; its retention is over, or the store is another")
    check_editable(job, token, before)
    changed = changed_fields(before, after)
    if not changed:
        return
    values = _values(job, after, changed)
    tx.execute(_EDIT.values(**values), {"job": job_id})
    if "payload" in changed:
        forget_steps(tx, [job_id])
    event = TimelineEvent(
        at=from_us(tx.now),
        kind=EventKind.EDITED,
        queue=job.queue,
        job_id=job_id,
        detail=", ".join(changed),
    )
    append_events(tx, [event])
    is_free = job.status is not JobStatus.BLOCKED and job.hold in {None, *_OF_CONTENT}
    if is_free and to_us(after.due_at) <= tx.now:
        tx.wake_queue(job.queue)


def _values(job: Job, after: JobContent, changed: tuple[str, ...]) -> dict[str, Any]:
    """Return the columns to write. What is not changed stays byte for byte."""
    values: dict[str, Any] = {}
    if job.hold in _OF_CONTENT:
        # The place of the job is another one, or strikes mean it no more. The next claim tells.
        values["hold"] = None
    if "payload" in changed:
        values |= {"payload": after.payload, "fingerprint": _STAYS_A_REPEAT}
    if "due_at" in changed:
        values["run_at"] = to_us(after.due_at)
        if job.status is not JobStatus.FAILED:
            values["requested_run_at"] = values["run_at"]
        if job.status is JobStatus.PENDING:
            values["cause"] = Cause.ENQUEUED.value
    if "timeout" in changed:
        values["timeout_us"] = None if after.timeout is None else duration_us(after.timeout)
    if "expires_at" in changed:
        values["expires_at"] = None if after.expires_at is None else to_us(after.expires_at)
    if "tags" in changed:
        values["tags"] = encode_tags(after.tags)
    if "metadata" in changed:
        values["metadata"] = msgspec.json.encode(after.metadata).decode()
    return values | {
        name: getattr(after, name) for name in ("priority", "max_attempts") if name in changed
    }
