"""Edits: what an operator may change of a job that waits."""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from forge_jobs.errors import Conflict
from forge_jobs.model.jobs import ACTIVE, Job, JobStatus


class JobContent(Struct, frozen=True, kw_only=True):
    """The content of a job that an operator may edit while the job waits. As the fields of ``Job``.

    :param payload: JSON text of an object, stored byte for byte
    """

    payload: str
    priority: int
    due_at: datetime
    max_attempts: int | None
    timeout: timedelta | None
    expires_at: datetime | None
    tags: tuple[str, ...]
    metadata: Mapping[str, str]


CONTENT = JobContent.__struct_fields__
"""The names of the fields that may be edited."""


def content_of(job: Job) -> JobContent:
    """Return what may be edited of a job, as the job is."""
    return JobContent(
        payload=job.payload,
        priority=job.priority,
        due_at=job.due_at,
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        expires_at=job.expires_at,
        tags=job.tags,
        metadata=job.metadata,
    )


def changed_fields(before: JobContent, after: JobContent) -> tuple[str, ...]:
    """Return the names of the fields in which two contents differ, in the order of the record."""
    return tuple(name for name in CONTENT if getattr(before, name) != getattr(after, name))


def check_editable(job: Job, token: int, before: JobContent) -> None:
    """Refuse an edit of a job that does not wait, or is not as the editor has seen the job.

    :raises Conflict: says what the job is now
    """
    if job.status not in ACTIVE or job.status is JobStatus.IN_PROGRESS:
        state = "runs" if job.status is JobStatus.IN_PROGRESS else f"is {job.status.value}"
        raise Conflict(f"job {job.id} {state}, and only a waiting job is edited")
    if job.unreadable:
        raise Conflict(f"job {job.id} cannot be read: {job.unreadable}; requeue or delete it")
    if job.token != token:
        raise Conflict(f"job {job.id} has run since you looked; look again, then edit")
    others = changed_fields(before, content_of(job))
    if others:
        names = ", ".join(others)
        raise Conflict(
            f"job {job.id} was changed since you looked ({names}); look again, then edit"
        )


def version_of(job: Job) -> str:
    """Return a text that is another one after each claim and each change of the content."""
    content = msgspec.json.encode([job.token, job.status, content_of(job)])
    return hashlib.blake2b(content, digest_size=8).hexdigest()
