"""Job rows and the records they stand for."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec import structs
from sqlalchemy import Row

from forge_jobs.clock import duration_us, from_us, to_us
from forge_jobs.model.edges import EdgeState
from forge_jobs.model.filters import JobSummary
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
    NewJob,
)
from forge_jobs.model.strikes import name_of
from forge_jobs.model.unique.keys import REPLACED, is_following, key_of
from forge_jobs.storage.salvage import UNREADABLE, Fields

JobRow = Row[Any]

# Looked up once: an enum's ``value`` is slower than all other work on a row.
_BLOCKED, _PENDING = JobStatus.BLOCKED.value, JobStatus.PENDING.value
_ENQUEUED = Cause.ENQUEUED.value

_encode = msgspec.json.encode
_decode_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_metadata = msgspec.json.Decoder(dict[str, str]).decode
_decode_errors = msgspec.json.Decoder(tuple[ErrorRecord, ...]).decode
_split = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Picked(NamedTuple):
    """The claims of one call.

    :ivar rows: as they were before they were claimed, in the queue's order
    :ivar is_cut: more jobs were due, beyond the bytes of one call
    :ivar elsewhere: kinds of jobs that were met, which other pods know. Some or all
    :ivar goes_on: see ``Exchange``
    """

    rows: list[JobRow]
    is_cut: bool
    elsewhere: frozenset[str] = frozenset()
    goes_on: bool = False


class Succeeded(NamedTuple):
    """A job that a batch has ended."""

    id: str
    queue: str
    host_id: str
    has_children: bool
    limit_name: str | None
    limit_key: str


class Ended(NamedTuple):
    """The overdue jobs of one queue and status, oldest first.

    :param rule: the retention that these jobs have outlived
    :param until: the time of the last of them
    :param last: the id of the last of them
    :param since: the time of the last that was dealt with
    :param past: the id of the last that was dealt with
    """

    queue: str
    status: str
    rule: str
    until: int
    last: str
    since: int = -1
    past: str = ""


class Unreadable(NamedTuple):
    """A job that was claimed and cannot be given to a worker."""

    claim: Claim
    reason: str


def instant(microseconds: int | None) -> datetime | None:
    """Return a nullable instant."""
    return None if microseconds is None else from_us(microseconds)


def duration(microseconds: int | None) -> timedelta | None:
    """Return a nullable duration."""
    return None if microseconds is None else timedelta(microseconds=microseconds)


def due_at(request: NewJob, now: int) -> int:
    """Return the due time of a request that is accepted at ``now``."""
    if request.delay is not None:
        return now + duration_us(request.delay)
    return now if request.run_at is None else to_us(request.run_at)


def ends_at_once(request: NewJob) -> bool:
    """Return whether a strike cancels the job in the step that stores the job."""
    return request.struck is not None and bool(request.struck.message)


def with_content(earlier: NewJob, request: NewJob, due: int | None) -> NewJob:
    """Return the earlier request of a call with the content of a later one with the same key.

    The job stays in its sequence. Pods judge the new content by the strikes, before the run.
    """
    if due is not None:
        request = structs.replace(request, run_at=from_us(due), delay=None)
    return structs.replace(
        request,
        id=earlier.id,
        unique=earlier.unique,
        after=earlier.after,
        schedule=earlier.schedule,
        fingerprint=earlier.fingerprint or REPLACED,
        sequence=earlier.sequence,
        struck=None,
    )


def new_job_values(request: NewJob, now: int, *, has_children: bool) -> dict[str, object]:
    """Return the row of a request that is accepted at ``now``."""
    asked = request.run_at is not None or request.delay is not None
    due = due_at(request, now) if asked else now
    expires_at, timeout, result_ttl = request.expires_at, request.timeout, request.result_ttl
    unique = request.unique
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
        "expires_at": None if expires_at is None else to_us(expires_at),
        "timeout_us": None if timeout is None else duration_us(timeout),
        "max_attempts": request.max_attempts,
        # Another job of the call may have the key of one that ends in the same step.
        "unique_key": None if unique is None or ends_at_once(request) else unique.key,
        "has_children": has_children,
        "tags": encode_tags(request.tags) if request.tags else "[]",
        "metadata": request.metadata,
        "trace": request.trace,
        "schedule": request.schedule,
        "fingerprint": request.fingerprint,
        "keep_result": request.keep_result,
        "result_ttl_us": None if result_ttl is None else duration_us(result_ttl),
        "limit_name": request.limit_name or None,
        "limit_key": request.limit_key,
    }


def encode_tags(tags: Sequence[str]) -> str:
    """Return tags as stored."""
    return _encode(tags).decode() if tags else "[]"


def tag_patterns(tag: str) -> tuple[str, str]:
    """Return two patterns. The column ``tags`` contains one of them exactly when it has the tag.

    Inside a tag a quote follows a backslash, and no tag holds a comma. So a quote that follows a
    bracket or a comma begins a tag, and the next quote without a backslash before ends that tag.
    """
    quoted = _encode(tag).decode()
    return f"[{quoted}", f",{quoted}"


def append_error(errors: str, error: ErrorRecord, now: int) -> str:
    """Return the column ``errors`` with one more record. The oldest beyond the bound go.

    Records that this release cannot read stay as they are. A text that is no list at all goes.
    """
    stamped = _encode(msgspec.structs.replace(error, at=from_us(now)))
    try:
        before = _split(errors)
    except UNREADABLE:
        before = []
    kept = [*before, msgspec.Raw(stamped)][-ERROR_HISTORY:]
    return _encode(kept).decode()


def claimed_job(row: Any, host_id: HostId) -> ClaimedJob:
    """Return the pod's claim of a row that was read before the claim.

    :param row: with the columns as attributes, except that ``token`` is the claim's already
    :raises UNREADABLE: a field of the row cannot be read
    """
    if row.metadata != "{}":
        _decode_metadata(row.metadata)
    due_at, waited_for = from_us(row.run_at), row.rate_limit
    return ClaimedJob(
        claim=Claim(row.queue, row.id, row.token, host_id),
        kind=row.kind,
        payload=row.payload,
        attempt=row.attempt + 1,
        max_attempts=row.max_attempts,
        crashes=row.crashes,
        snoozes=row.snoozes,
        priority=row.priority,
        timeout=None if row.timeout_us is None else duration(row.timeout_us),
        tags=() if row.tags == "[]" else _decode_tags(row.tags),
        metadata=row.metadata,
        trace=row.trace,
        run_at=due_at,
        # The two are mostly the same, and this runs for each claim.
        enqueued_at=due_at if row.enqueued_at == row.run_at else from_us(row.enqueued_at),
        keep_result=bool(row.keep_result),
        cancel_requested=bool(row.cancel_requested),
        schedule=row.schedule,
        snoozed_since=None if row.snoozed_at is None else from_us(row.snoozed_at),
        rate_limit=waited_for if row.cause == Cause.RATE_LIMITED and waited_for else "",
    )


def claimed_jobs(rows: Iterable[Any], host_id: HostId) -> tuple[list[ClaimedJob], list[Unreadable]]:
    """Return the claims that the pod has made of the rows, and those of unreadable jobs."""
    claimed: list[ClaimedJob] = []
    unreadable: list[Unreadable] = []
    for row in rows:
        try:
            claimed.append(claimed_job(row, host_id))
        except UNREADABLE as error:
            reason = " ".join(str(error).split())
            unreadable.append(Unreadable(Claim(row.queue, row.id, row.token, host_id), reason))
    return claimed, unreadable


def job(row: JobRow, waits_for: Mapping[str, EdgeState]) -> Job:
    """Return the job of a whole row, with the parents that the job waits for."""
    parents = sorted(waits_for)
    read = Fields({**row._mapping})
    cause = read.member("cause", Cause.ENQUEUED)
    place = read.text_or_none("unique_key")
    found = Job(
        id=JobId(row.id),
        queue=read.text("queue"),
        kind=read.text("kind"),
        payload=read.text("payload"),
        status=read.member("status", JobStatus.PENDING),
        cause=cause,
        priority=read.number("priority"),
        attempt=read.number("attempt"),
        max_attempts=read.number_or_none("max_attempts"),
        token=read.number("token"),
        crashes=read.number("crashes"),
        snoozes=read.number("snoozes"),
        enqueued_at=read.instant("enqueued_at"),
        due_at=read.instant("run_at"),
        claimed_at=read.instant_or_none("claimed_at"),
        started_at=read.instant_or_none("started_at"),
        heartbeat_at=read.instant_or_none("heartbeat_at"),
        finished_at=read.instant_or_none("finished_at"),
        expires_at=read.instant_or_none("expires_at"),
        timeout=read.duration_or_none("timeout_us"),
        unique_key=None if place is None else key_of(place),
        hold=read.member_or_none("hold", Hold),
        host_id=HostId(read.text("host_id")),
        worker_id=WorkerId(read.text("worker_id")),
        cancel_requested=read.flag("cancel_requested"),
        tags=read.read("tags", _decode_tags, ()),
        metadata=read.read("metadata", _decode_metadata, {}),
        trace=read.text("trace"),
        schedule=read.text("schedule"),
        keep_result=read.flag("keep_result", True),
        result=read.text_or_none("result"),
        errors=read.read("errors", _decode_errors, ()),
        waits_for=tuple(JobId(parent) for parent in parents),
        held_by=tuple(JobId(one) for one in parents if waits_for[one] is EdgeState.HELD),
        rate_limit=read.text_or_none("rate_limit") if cause is Cause.RATE_LIMITED else None,
        struck_by=name_of(read.text_or_none("rate_limit")) if cause is Cause.STRUCK else None,
        follow_up=is_following(place),
        limit_name=read.text_or_none("limit_name") or "",
        limit_key=read.text("limit_key"),
    )
    return msgspec.structs.replace(found, unreadable=read.problems) if read.problems else found


def job_summary(row: JobRow) -> JobSummary:
    """Return the line of a job in a list."""
    read = Fields({**row._mapping})
    errors: tuple[ErrorRecord, ...] = ()
    if row.errors != "[]":
        errors = read.read("errors", _decode_errors, errors)
    found = JobSummary(
        id=JobId(row.id),
        queue=read.text("queue"),
        kind=read.text("kind"),
        status=read.member("status", JobStatus.PENDING),
        cause=read.member("cause", Cause.ENQUEUED),
        priority=read.number("priority"),
        attempt=read.number("attempt"),
        max_attempts=read.number_or_none("max_attempts"),
        enqueued_at=read.instant("enqueued_at"),
        due_at=read.instant("run_at"),
        finished_at=read.instant_or_none("finished_at"),
        hold=read.member_or_none("hold", Hold),
        host_id=HostId(read.text("host_id")),
        started_at=read.instant_or_none("started_at"),
        tags=read.read("tags", _decode_tags, ()),
        last_error=f"{errors[-1].type}: {errors[-1].message}" if errors else "",
    )
    return msgspec.structs.replace(found, unreadable=read.problems) if read.problems else found
