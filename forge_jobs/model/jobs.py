"""Jobs: what is asked for, what is stored, what a worker holds.

All records are frozen; instants are aware UTC datetimes, durations are timedeltas.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import HostId, JobId, WorkerId

ERROR_HISTORY = 32
"""How many error records a job keeps: the newest ones."""

MIN_PRIORITY, MAX_PRIORITY = -100, 100
"""Bounds of ``priority``. Few enough that a claim may look at each level in use."""

DEFAULT_MAX_ATTEMPTS = 5
MAX_MAX_ATTEMPTS = 1_000_000


class JobStatus(StrEnum):
    """Where a job is in its life. The stored text is the value."""

    BLOCKED = "blocked"
    """Waits for other jobs."""
    PENDING = "pending"
    """Due now, or scheduled."""
    IN_PROGRESS = "in_progress"
    """Claimed; a handler runs or is about to."""
    FAILED = "failed"
    """The last attempt failed; waits for its retry."""
    DONE = "done"
    DEAD = "dead"
    """Gave up."""
    CANCELLED = "cancelled"


ACTIVE = frozenset({JobStatus.BLOCKED, JobStatus.PENDING, JobStatus.IN_PROGRESS, JobStatus.FAILED})
TERMINAL = frozenset(JobStatus) - ACTIVE


class Cause(StrEnum):
    """Why a job is in its status, and what a finished attempt is counted as."""

    ENQUEUED = "enqueued"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The handler raised, or its arguments could not be decoded."""
    TIMED_OUT = "timed_out"
    REJECTED = "rejected"
    """The handler said ``Dead``."""
    THROTTLED = "throttled"
    SNOOZED = "snoozed"
    RATE_LIMITED = "rate_limited"
    """The handler waits for a token of a named rate limit; the run counts toward nothing."""
    INTERRUPTED = "interrupted"
    """Stopped by shutdown, scale-down or self-fencing; the attempt was handed back."""
    RELEASED = "released"
    """Handed back before it started."""
    CRASHED = "crashed"
    """The claim went stale: its process died or lost the store."""
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    PARENT_FAILED = "parent_failed"
    PARENTS_SETTLED = "parents_settled"
    REQUEUED = "requeued"


class Hold(StrEnum):
    """Why a waiting job is kept out of the ready index."""

    UNKNOWN_KIND = "unknown_kind"
    """No live pod knows its kind."""
    UNREADABLE = "unreadable"  # its record, when it was claimed


class Unique(Struct, frozen=True):
    """At most one active job of the queue per key.

    ``keep``: the request is dropped and the outcome names the holder.
    ``error``: :class:`~forge_jobs.errors.Conflict`, and nothing of the call is stored.
    """

    key: str
    mode: Literal["keep", "error"] = "keep"


class After(Struct, frozen=True):
    """An edge to a parent job, and what its failure means here.

    :param on_failure: when the parent ends dead or cancelled: ``cancel`` this job too,
        ``continue`` as if it had succeeded, or ``hold`` this job blocked for an operator
    """

    job_id: JobId
    on_failure: Literal["cancel", "continue", "hold"] = "cancel"


class NewJob(Struct, frozen=True, kw_only=True):
    """A request with every default filled in and every value checked.

    :param payload: JSON text of an object, returned byte for byte
    :param run_at: due from this instant; without it and ``delay``, one of which may be set, now
    :param max_attempts: at least 1; None means no bound
    :param metadata: JSON text of an object of strings
    :param trace: JSON text of the trace context headers, "" for none
    :param keep_result: store what the handler returns
    :param result_ttl: how long the result is kept; None: as long as the job
    :param fingerprint: hash of the content, set when the caller gave the id; another is a Conflict
    :param schedule: the schedule that fired it, "" for none
    """

    id: JobId
    queue: str
    kind: str
    payload: str
    priority: int = 0
    run_at: datetime | None = None
    delay: timedelta | None = None
    max_attempts: int | None = DEFAULT_MAX_ATTEMPTS
    unique: Unique | None = None
    after: tuple[After, ...] = ()
    timeout: timedelta | None = None
    tags: tuple[str, ...] = ()
    metadata: str = "{}"
    trace: str = ""
    expires_at: datetime | None = None
    keep_result: bool = True
    result_ttl: timedelta | None = None
    fingerprint: str = ""
    schedule: str = ""


class EnqueueOutcome(Struct, frozen=True):
    """What became of one request.

    :param job_id: the stored job; the holder of the unique key when ``deduplicated``
    :param deduplicated: the request was dropped in favour of another active job. A repeat
        under the same id is not a duplicate: it reports the same outcome as the first time
    """

    job_id: JobId
    deduplicated: bool = False


class Claim(Struct, frozen=True):
    """Proof of ownership of one attempt, and the fence of every later write.

    The token is the store's time in microseconds, one more than the job's token before at least.
    So a lost claim is worthless for good: to a worker of the same name, after a requeue, when the
    job was deleted and stored again, and when the store lost the claim. If its clock goes back
    beside such a loss, two claims may have one number; ``host_id``, the owner, tells them apart.
    """

    queue: str
    job_id: JobId
    token: int
    host_id: HostId


class ClaimedJob(Struct, frozen=True, kw_only=True):
    """A claim with what its handler needs.

    :param attempt: of this run, from 1; handed-back runs do not count
    :param crashes: how many times its process died under it
    :param snoozes: how many times a run was handed back by snooze or throttle
    :param snoozed_since: when that happened first; None when it never has, or not since a requeue
    :param cancel_requested: a cancel arrived between enqueue and this claim
    """

    claim: Claim
    kind: str
    payload: str
    attempt: int
    max_attempts: int | None
    crashes: int
    snoozes: int
    priority: int
    timeout: timedelta | None
    tags: tuple[str, ...]
    metadata: str
    trace: str
    run_at: datetime
    enqueued_at: datetime
    keep_result: bool
    cancel_requested: bool = False
    schedule: str = ""
    snoozed_since: datetime | None = None


class ErrorRecord(Struct, frozen=True, kw_only=True):
    """One failure of one attempt. Texts are already cleaned and cut to size.

    :param at: filled in by the store
    """

    attempt: int
    cause: Cause
    type: str
    message: str
    traceback: str = ""
    host_id: str = ""
    at: datetime | None = None


class Job(Struct, frozen=True, kw_only=True):
    """A stored job, whole.

    :param cause: while in_progress that of the status before
    :param due_at: when it may be claimed; for a failed job the time of its retry
    :param token: of its last claim; of a job that was never claimed the value before the first,
        ``enqueued_at`` in microseconds
    :param claimed_at: of the last claim, as heartbeat_at, host_id and worker_id: all stay as they
        are when the claim ends
    :param host_id: the pod that holds it, or held it last; "" before the first claim
    :param started_at: when the last attempt is known to have started; None while its
        claim is only held ahead, and until a beat or a recorded start brings the news
    :param result: JSON text, None when there is none (yet, any more, or not asked for)
    :param payload: "" once a job that is not to be kept has ended
    :param rate_limit: the scope that it waits for when the cause is rate_limited, else None
    :param unreadable: which stored fields cannot be read, and why; here they are as in a new job
    """

    id: JobId
    queue: str
    kind: str
    payload: str
    status: JobStatus
    cause: Cause
    priority: int
    attempt: int
    max_attempts: int | None
    token: int
    crashes: int
    snoozes: int
    enqueued_at: datetime
    due_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    heartbeat_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    timeout: timedelta | None
    unique_key: str | None
    hold: Hold | None
    host_id: HostId
    worker_id: WorkerId
    cancel_requested: bool
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    trace: str
    schedule: str
    keep_result: bool
    result: str | None
    errors: tuple[ErrorRecord, ...]
    waits_for: tuple[JobId, ...]
    """While blocked: parents that have not settled yet, in id order."""
    held_by: tuple[JobId, ...] = ()
    """Those of ``waits_for`` that failed and hold the job, until they succeed or it is released."""
    rate_limit: str | None = None
    unreadable: str = ""


class JobSummary(Struct, frozen=True, kw_only=True):
    """One line of a list: a job without its payload, result and tracebacks."""

    id: JobId
    queue: str
    kind: str
    status: JobStatus
    cause: Cause
    priority: int
    attempt: int
    max_attempts: int | None
    enqueued_at: datetime
    due_at: datetime
    finished_at: datetime | None
    hold: Hold | None
    host_id: HostId
    started_at: datetime | None
    tags: tuple[str, ...]
    last_error: str  # its type and message, "" for none
    unreadable: str = ""


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs are meant; every part that is set must match.

    Of ``ids``, ``queues``, ``kinds``, ``statuses`` and ``causes`` a single text stands for a tuple
    of one, and any collection of texts for a tuple of them.

    :param ids: None means any. An empty tuple means no job at all: a list that came out empty
        must never stand for every job there is. Of the other parts empty tuples mean any
    :param enqueued_before: strictly before this instant; ``enqueued_after``: at or after it
    """

    ids: tuple[JobId, ...] | None = None
    queues: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    statuses: tuple[JobStatus, ...] = ()
    causes: tuple[Cause, ...] = ()
    tag: str | None = None
    unique_key: str | None = None
    schedule: str | None = None
    enqueued_before: datetime | None = None
    enqueued_after: datetime | None = None

    def __post_init__(self) -> None:
        for name, members in _SEVERAL.items():
            given = getattr(self, name)
            if given is not None:
                force_setattr(self, name, _several(name, given, members))
        for name in ("tag", "unique_key", "schedule"):
            if not isinstance(text := getattr(self, name), str | None):
                raise InvalidInput(name, f"is a {type(text).__name__}", "give a text")
        for name in ("enqueued_before", "enqueued_after"):
            at = getattr(self, name)
            if at is not None and (not isinstance(at, datetime) or at.utcoffset() is None):
                fix = "give an aware datetime, such as datetime(2030, 1, 31, tzinfo=UTC)"
                raise InvalidInput(name, f"is {at!r}", fix)


_SEVERAL: Mapping[str, type[StrEnum] | None] = {
    "ids": None,
    "queues": None,
    "kinds": None,
    "statuses": JobStatus,
    "causes": Cause,
}


def _several(name: str, given: object, members: type[StrEnum] | None) -> tuple[str, ...]:
    """The texts of one part of a filter, those of an enum as its members."""
    values = (given,) if isinstance(given, str) else given
    if not isinstance(values, Iterable):
        raise InvalidInput(name, f"is a {type(values).__name__}", "give a tuple of texts")
    return tuple(_one(name, value, members) for value in values)


def _one(name: str, value: object, members: type[StrEnum] | None) -> str:
    if not isinstance(value, str):
        raise InvalidInput(name, f"holds a {type(value).__name__}", "give a tuple of texts")
    if members is None:
        return value
    try:
        return members(value)
    except ValueError:
        fix = f"give any of {', '.join(members)}"
        raise InvalidInput(name, f"holds {value!r}", fix) from None


class Page(Struct, frozen=True):
    """One page of jobs, newest first; ``cursor`` gives the next one, None on the last.

    :param looked_back_to: where a call gave up, and older jobs may match
    :param silent: queues that did not answer
    """

    jobs: tuple[JobSummary, ...]
    cursor: str | None
    looked_back_to: JobId | None = None
    silent: tuple[str, ...] = ()


class Refusal(StrEnum):
    """Why a bulk operation left a job as it was."""

    NOT_FOUND = "not_found"
    RUNNING = "running"
    """Deleting or requeueing a job that a worker holds."""
    FINISHED = "finished"
    """Cancelling or starting what has ended, requeueing what succeeded."""
    WAITING = "waiting"
    """Requeueing what waits, starting what waits for other jobs, releasing what none holds."""
    KEY_TAKEN = "key_taken"  # Another active job holds its unique key now.
    PARENT_FAILED = "parent_failed"
    """Requeueing what comes after a job that is gone and had not succeeded."""
    LOCKED = "locked"
    """Somebody's open transaction holds the job, or what it needs: ask again later."""
    REFERENCED = "referenced"  # A foreign key or a trigger of yours lets nobody delete it.


class BulkOutcome(Struct, frozen=True):
    """What one bounded batch of a bulk operation did.

    :param requested: running jobs whose owner was asked (cancel only)
    :param refused: jobs left as they were, and why
    :param cursor: pass it to go on; None when every matching job has been visited
    """

    changed: tuple[JobId, ...]
    requested: tuple[JobId, ...]
    refused: Mapping[JobId, Refusal]
    cursor: str | None
