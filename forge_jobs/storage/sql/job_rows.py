"""Job rows and the records they stand for."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Row

from forge_jobs.clock import duration_us, from_us, to_us
from forge_jobs.model.edges import EdgeState
from forge_jobs.model.ids import HostId, JobId, WorkerId
from forge_jobs.model.jobs import (
    ERROR_HISTORY,
    Cause,
    Claim,
    ClaimedJob,
    ErrorRecord,
    Hold,
    Job,
    JobStatus,
    JobSummary,
    NewJob,
)

JobRow = Row[Any]

# Looked up once: an enum's ``value`` is slower than all else of a row.
_BLOCKED, _PENDING = JobStatus.BLOCKED.value, JobStatus.PENDING.value
_ENQUEUED = Cause.ENQUEUED.value

_encode = msgspec.json.encode
_decode_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_metadata = msgspec.json.Decoder(dict[str, str]).decode
_decode_errors = msgspec.json.Decoder(tuple[ErrorRecord, ...]).decode


def instant(microseconds: int | None) -> datetime | None:
    """A nullable instant."""
    return None if microseconds is None else from_us(microseconds)


def duration(microseconds: int | None) -> timedelta | None:
    """A nullable duration."""
    return None if microseconds is None else timedelta(microseconds=microseconds)


def micros(value: datetime | timedelta | None) -> int | None:
    """A nullable instant or duration as it is stored."""
    if value is None:
        return None
    return to_us(value) if isinstance(value, datetime) else duration_us(value)


def due_at(request: NewJob, now: int) -> int:
    """When a request that is accepted at ``now`` falls due."""
    if request.delay is not None:
        return now + duration_us(request.delay)
    return now if request.run_at is None else to_us(request.run_at)


def new_job_values(request: NewJob, now: int, *, has_children: bool) -> dict[str, object]:
    """The row of a request that is accepted at ``now``."""
    due = due_at(request, now)
    asked = request.run_at is not None or request.delay is not None
    return {
        "id": request.id,
        "queue": request.queue,
        "kind": request.kind,
        "payload": request.payload,
        "status": _BLOCKED if request.after else _PENDING,
        "cause": _ENQUEUED,
        "priority": request.priority,
        "run_at": due,
        "requested_run_at": due if asked else None,
        "enqueued_at": now,
        "token": now,
        "expires_at": micros(request.expires_at),
        "timeout_us": micros(request.timeout),
        "max_attempts": request.max_attempts,
        "unique_key": None if request.unique is None else request.unique.key,
        "has_children": has_children,
        "tags": encode_tags(request.tags),
        "metadata": request.metadata,
        "trace": request.trace,
        "schedule": request.schedule,
        "fingerprint": request.fingerprint,
        "keep_result": request.keep_result,
        "result_ttl_us": micros(request.result_ttl),
    }


def encode_tags(tags: Sequence[str]) -> str:
    """Tags as they are stored."""
    return _encode(tags).decode() if tags else "[]"


def tag_patterns(tag: str) -> tuple[str, str]:
    """One of these is in the column ``tags`` when the tag is among them, and only then.

    Inside a tag a quote follows a backslash, and no tag holds a comma: so a quote that follows a
    bracket or a comma begins a tag, and the next one that follows no backslash ends it.
    """
    quoted = _encode(tag).decode()
    return f"[{quoted}", f",{quoted}"


def append_error(errors: str, error: ErrorRecord, now: int) -> str:
    """The column ``errors`` with one more record; the oldest beyond the bound go."""
    stamped = msgspec.structs.replace(error, at=from_us(now))
    return _encode((*_decode_errors(errors), stamped)[-ERROR_HISTORY:]).decode()


def claimed_job(row: Any, host_id: HostId) -> ClaimedJob:
    """A row read before the pod claimed it, as the claim that was made of it.

    :param row: with the columns as attributes; ``token`` is the claim's already
    """
    return ClaimedJob(
        claim=Claim(row.queue, row.id, row.token, host_id),
        kind=row.kind,
        payload=row.payload,
        attempt=row.attempt + 1,
        max_attempts=row.max_attempts,
        crashes=row.crashes,
        snoozes=row.snoozes,
        priority=row.priority,
        timeout=duration(row.timeout_us),
        tags=() if row.tags == "[]" else _decode_tags(row.tags),
        metadata=row.metadata,
        trace=row.trace,
        run_at=from_us(row.run_at),
        enqueued_at=from_us(row.enqueued_at),
        keep_result=bool(row.keep_result),
        cancel_requested=bool(row.cancel_requested),
        schedule=row.schedule,
        snoozed_since=instant(row.snoozed_at),
    )


def job(row: JobRow, waits_for: Mapping[str, EdgeState]) -> Job:
    """A whole row, with what it waits for."""
    parents = sorted(waits_for)
    return Job(
        id=JobId(row.id),
        queue=row.queue,
        kind=row.kind,
        payload=row.payload,
        status=JobStatus(row.status),
        cause=Cause(row.cause),
        priority=row.priority,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        token=row.token,
        crashes=row.crashes,
        snoozes=row.snoozes,
        enqueued_at=from_us(row.enqueued_at),
        due_at=from_us(row.run_at),
        claimed_at=instant(row.claimed_at),
        started_at=instant(row.started_at),
        heartbeat_at=instant(row.heartbeat_at),
        finished_at=instant(row.finished_at),
        expires_at=instant(row.expires_at),
        timeout=duration(row.timeout_us),
        unique_key=row.unique_key,
        hold=None if row.hold is None else Hold(row.hold),
        host_id=HostId(row.host_id),
        worker_id=WorkerId(row.worker_id),
        cancel_requested=row.cancel_requested,
        tags=_decode_tags(row.tags),
        metadata=_decode_metadata(row.metadata),
        trace=row.trace,
        schedule=row.schedule,
        keep_result=row.keep_result,
        result=row.result,
        errors=_decode_errors(row.errors),
        waits_for=tuple(JobId(parent) for parent in parents),
        held_by=tuple(JobId(one) for one in parents if waits_for[one] is EdgeState.HELD),
        rate_limit=row.rate_limit if row.cause == Cause.RATE_LIMITED.value else None,
    )


def job_summary(row: JobRow) -> JobSummary:
    """A line of a list."""
    errors = () if row.errors == "[]" else _decode_errors(row.errors)
    return JobSummary(
        id=JobId(row.id),
        queue=row.queue,
        kind=row.kind,
        status=JobStatus(row.status),
        cause=Cause(row.cause),
        priority=row.priority,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        enqueued_at=from_us(row.enqueued_at),
        due_at=from_us(row.run_at),
        finished_at=instant(row.finished_at),
        hold=None if row.hold is None else Hold(row.hold),
        host_id=HostId(row.host_id),
        started_at=instant(row.started_at),
        tags=_decode_tags(row.tags),
        last_error=f"{errors[-1].type}: {errors[-1].message}" if errors else "",
    )
