"""Edits of a job that waits.

The job is read first, and its fields are compared here. The script writes only while the job still
has the fields that were read.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from forge_jobs.clock import duration_us, to_us
from forge_jobs.errors import NotFound, Unavailable
from forge_jobs.model.edits import JobContent, changed_fields, check_editable
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Job, JobStatus
from forge_jobs.model.unique.keys import REPLACED
from forge_jobs.storage.redis.base import job_rows
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.jobs.read import Whole, fields_of, whole_job
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.redis.locators.asking import find_by_queue

_TRIES = 10
_COMPARED = (
    "status", "token", "hold", "payload", "priority", "run_at", "expires", "tags", "doc", "cancel",
)  # fmt: skip


async def edit(
    db: Database, job_id: JobId, token: int, before: JobContent, after: JobContent
) -> None:
    """See ``JobStore.edit``."""
    changed = changed_fields(before, after)
    for _ in range(_TRIES):
        base, whole = await _read(db, job_id)
        job, fields = whole_job(queue_of(base), job_id, whole), fields_of(whole)
        check_editable(job, token, before)
        if not changed:
            return
        written, dropped = _changes(job, fields, after, changed)
        request = request_of(
            "edit",
            id=job_id,
            expected=[[name, fields.get(name, False)] for name in _COMPARED],
            written=written,
            dropped=dropped,
            detail=", ".join(changed),
            is_anew="payload" in changed,
        )
        if await db.run_one("edit", base, request, bool):
            return
    raise Unavailable("gave up: other calls kept changing the same job; try again")


async def _read(db: Database, job_id: JobId) -> tuple[str, Whole]:
    """Return the base of the job's queue, and the job."""
    for base in await find_by_queue(db, [job_id]):
        [whole] = await db.run_one("get", base, [job_id], list[Whole | Literal[False]])
        if whole:
            return base, whole
    raise NotFound(f"there is no job {job_id}; its retention is over, or the store is another")


def _changes(
    job: Job, fields: Mapping[str, str], after: JobContent, changed: tuple[str, ...]
) -> tuple[list[str], list[str]]:
    """Return fields and values in turn that are to be written, and the fields that go."""
    values: dict[str, str | None] = {}
    if "payload" in changed:
        values["payload"] = after.payload
        if "fingerprint" not in fields:
            values["fingerprint"] = REPLACED
    if "priority" in changed:
        values["priority"] = str(after.priority)
    if "due_at" in changed:
        # As text, because a time that a user gave may be too far away for an exact number.
        values["run_at"] = str(to_us(after.due_at))
        if job.status is not JobStatus.FAILED:
            values["requested"] = values["run_at"]
        if job.status is JobStatus.PENDING:
            values["cause"] = Cause.ENQUEUED.value
    if "expires_at" in changed:
        values["expires"] = None if after.expires_at is None else str(to_us(after.expires_at))
    if "tags" in changed:
        values["tags"] = "\n".join(after.tags) or None
    if not {"max_attempts", "timeout", "metadata"}.isdisjoint(changed):
        values["doc"] = _doc(fields["doc"], after, "metadata" in changed)
    written = {name: value for name, value in values.items() if value is not None}
    dropped = [name for name, value in values.items() if value is None]
    return [text for pair in written.items() for text in pair], dropped


def _doc(stored: str, after: JobContent, is_told: bool) -> str:
    doc = job_rows.decode_doc(stored)
    timeout = after.timeout
    doc = msgspec.structs.replace(
        doc,
        max_attempts=after.max_attempts,
        timeout=None if timeout is None else duration_us(timeout),
        metadata=msgspec.json.encode(after.metadata).decode() if is_told else doc.metadata,
    )
    return msgspec.json.encode(doc).decode()
