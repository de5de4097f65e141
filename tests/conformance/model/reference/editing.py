"""Edits of one job that waits."""

from datetime import datetime

import msgspec
from msgspec import structs

from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.edits import JobContent, changed_fields, content_of
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Hold, JobStatus
from tests.conformance.model.reference.state import REPLACED, WAITING, World


def edit(world: World, job_id: JobId, token: int, before: JobContent, after: JobContent) -> None:
    job = world.jobs.get(job_id)
    if job is None:
        raise NotFound(job_id)
    waits = job.status in {*WAITING, JobStatus.BLOCKED}
    if not waits or job.token != token or content_of(job.view()) != before:
        raise Conflict(job_id)
    changed = changed_fields(before, after)
    if not changed:
        return
    request = job.request
    asked_for: datetime | None = request.run_at
    if "due_at" in changed and job.status is not JobStatus.FAILED:
        asked_for = after.due_at
        if job.status is JobStatus.PENDING:
            job.cause = Cause.ENQUEUED
    if "payload" in changed:
        request = structs.replace(request, fingerprint=request.fingerprint or REPLACED)
        job.forget_steps()
    job.request = structs.replace(
        request,
        run_at=asked_for,
        priority=after.priority,
        max_attempts=after.max_attempts,
        timeout=after.timeout,
        tags=after.tags,
        metadata=_text(after) if "metadata" in changed else request.metadata,
    )
    job.hold = None if job.hold is Hold.STRUCK else job.hold
    job.payload, job.due_at, job.expires_at = after.payload, after.due_at, after.expires_at
    world.note(EventKind.EDITED, job, detail=", ".join(changed))


def _text(after: JobContent) -> str:
    return msgspec.json.encode(after.metadata).decode()
