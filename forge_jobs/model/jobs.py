"""Jobs: what is asked for, what is stored, what a worker holds.

All records are frozen. Instants are aware UTC datetimes with microseconds, durations are
timedeltas. Which jobs a list or a bulk operation means is in :mod:`forge_jobs.model.filters`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Literal

from msgspec import Struct

from forge_jobs.model.ids import HostId, JobId, WorkerId
from forge_jobs.model.strikes import Struck
from forge_jobs.model.unique.keys import UniqueMode

ERROR_HISTORY = 32
"""How many error records a job keeps: the newest ones."""

MIN_PRIORITY, MAX_PRIORITY = -100, 100
"""Bounds of ``priority``. Few enough that a claim may look at each level in use."""

# A bare EnqueueOutcome means any result, also where a type checker asks for all parameters. Type
# checkers alone need the default, which Python has from 3.13 on.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Result_co = TypeVar("Result_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Result_co = TypeVar("Result_co", covariant=True)

DEFAULT_MAX_ATTEMPTS = 5
MAX_MAX_ATTEMPTS = 1_000_000


class JobStatus(StrEnum):
    """The stages in the life of a job. The stored text is the value."""

    BLOCKED = "blocked"
    """Waits for other jobs."""
    PENDING = "pending"
    """Due now, or scheduled."""
    IN_PROGRESS = "in_progress"
    """Claimed. A handler runs or is about to."""
    FAILED = "failed"
    """The last attempt failed, and the job waits for its retry. People read "retrying"."""
    DONE = "done"
    """The handler succeeded."""
    DEAD = "dead"
    """Gave up."""
    CANCELLED = "cancelled"
    """Stopped on request, expired before a run, or given up with a job that this job waited for."""

    @property
    def in_words(self) -> str:
        """The status as people read it: ``failed`` is "retrying"."""
        return "retrying" if self is JobStatus.FAILED else self.value


ACTIVE = frozenset({JobStatus.BLOCKED, JobStatus.PENDING, JobStatus.IN_PROGRESS, JobStatus.FAILED})
TERMINAL = frozenset(JobStatus) - ACTIVE


class Cause(StrEnum):
    """Why a job is in its status. Finished attempts are counted by cause."""

    ENQUEUED = "enqueued"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The handler raised, or the arguments could not be decoded."""
    TIMED_OUT = "timed_out"
    REJECTED = "rejected"
    """The handler said ``Dead``."""
    THROTTLED = "throttled"
    SNOOZED = "snoozed"
    RATE_LIMITED = "rate_limited"
    """The handler waits for a token of a named rate limit. The run counts toward nothing."""
    KEY_MISSING = "key_missing"
    """The pod lacks a key of the job, or of the result of a parent. The run counts toward
    nothing."""
    INTERRUPTED = "interrupted"
    """Stopped by shutdown, scale-down or self-fencing. The attempt was handed back."""
    RELEASED = "released"
    """Handed back before the handler started."""
    CRASHED = "crashed"
    """The claim went stale: the process died or lost the store."""
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DROPPED = "dropped"
    """No token of the handler's rate limit was there, and the handler drops such jobs."""
    STRUCK = "struck"
    """A strike of an operator meant the job before its handler started, or the store did not say
    which strikes there are."""
    PARENT_FAILED = "parent_failed"
    PARENTS_SETTLED = "parents_settled"
    REQUEUED = "requeued"
    RESTORED = "restored"
    """An operator took a cancel back."""


class Hold(StrEnum):
    """Why a waiting job is kept out of the ready index."""

    UNKNOWN_KIND = "unknown_kind"
    """No live pod knows the kind."""
    UNREADABLE = "unreadable"
    """The record could not be read at the claim."""
    LIMIT = "limit"
    """As many jobs of its limit and key run as may. Ready again once one of them has ended."""
    STRUCK = "struck"
    """A strike of an operator means the job. Ready again once that strike is lifted or edited."""


class Unique(Struct, frozen=True):
    """A unique key, and the rule for a request while another job of the queue has the key.

    ``keep``: while a job with the key is active, the request is dropped. The outcome names the job.
    ``error``: likewise a :class:`~forge_jobs.errors.Conflict`. Nothing of the call is stored.
    ``replace``: a waiting job gets the request's content. While the job runs, as ``keep``.
    ``cooldown``: as ``keep``, and for ``window`` after the request that was stored, also when that
    job has ended.
    ``debounce``: the job runs once no request has come for ``window``, with the content of the
    latest. While the job runs, as ``keep-last``.
    ``keep-last``: a waiting job gets the request's content. While the job runs, one follow-up is
    kept, with the content of the latest request. The follow-up may run once the job has ended.

    :param key: "" with ``by``
    :param window: a timedelta or seconds, for cooldown and debounce
    :param at_most: debounce: requests move the due time no further than this long after the first.
        None: without a bound
    :param by: the key is derived from these fields of the payload
    """

    key: str = ""
    mode: UniqueMode = "keep"
    window: timedelta | float | None = None
    at_most: timedelta | float | None = None
    by: tuple[str, ...] = ()


class After(Struct, frozen=True):
    """An edge to a parent job, and what the parent's failure means for this job.

    :param on_failure: when the parent ends dead or cancelled: ``cancel`` this job too,
        ``continue`` as after a success, ``hold`` this job blocked for an operator, or ``note`` how
        the parent ended and go on, as groups do. The others are those of a :class:`Line`, and
        requests cannot give them
    """

    job_id: JobId
    on_failure: Literal["cancel", "continue", "hold", "note", "wait", "skip", "stop"] = "cancel"


class Line(Struct, frozen=True):
    """The sequence of a job: jobs of a queue with one key run one after the other.

    :param key: of the sequence in the queue
    :param on_failure: what it means for the next job that this one's predecessor ended without
        success: ``wait`` for an operator after a dead one, ``skip`` it, or ``stop`` after a
        cancelled one too
    """

    key: str
    on_failure: Literal["wait", "skip", "stop"] = "wait"


class NewJob(Struct, frozen=True, kw_only=True):
    """A request with every default filled in and every value checked: what a store takes.

    :param payload: JSON text of an object, returned byte for byte. ``MAX_PAYLOAD_BYTES`` at most
    :param priority: ``MIN_PRIORITY`` to ``MAX_PRIORITY``. The lowest is claimed first
    :param run_at: due from this instant. At most one of ``run_at`` and ``delay`` is set. With
        neither the job is due at once
    :param delay: due this long after the store's time of the call
    :param max_attempts: 1 to ``MAX_MAX_ATTEMPTS``. None means no bound
    :param timeout: how long one run of the handler may take. None means no bound
    :param metadata: JSON text of an object of strings
    :param trace: JSON text of the trace context headers, "" for none
    :param keep_result: store what the handler returns
    :param result_ttl: how long the result is kept. None: as long as the job
    :param fingerprint: hash of the request's content, set when the caller gave the id. A repeat
        with another fingerprint is a Conflict. "" for an id that was made for this request
    :param schedule: the schedule that fired the job, "" for none
    :param limit_name: the limit that the job counts toward, "" for none. Without a stored limit of
        this name in the queue there is no bound
    :param limit_key: jobs of each key of a limit are counted by themselves
    :param sequence: the job waits for the end of the job of the queue that was stored before with
        the same key. None: for none
    :param struck: by a strike, at the enqueue. None: by none that the caller knew
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
    limit_name: str = ""
    limit_key: str = ""
    sequence: Line | None = None
    struck: Struck | None = None


class EnqueueOutcome(Struct, Generic[Result_co], frozen=True, dict=True):
    """The answer to one request. ``client.result(outcome, timeout)`` waits for the result.

    :param job_id: the job that does what was asked for: the stored one, or the job that took the
        request's content when ``replaced``. The holder of the unique key when ``deduplicated``
    :param deduplicated: the request was dropped in favour of another job. A repeat under the same
        id is not a duplicate: the repeat gets the outcome of the first time
    :param replaced: no job was stored. A waiting job with the unique key has the request's content
    :param follow_up: the job waits for the end of the job that holds the unique key
    :param struck_by: the strike that means the job, as the client knew at the enqueue. The strike
        holds or cancels the job, at once or before the run
    """

    job_id: JobId
    deduplicated: bool = False
    replaced: bool = False
    follow_up: bool = False
    struck_by: str | None = None

    @property
    def result_type(self) -> Any:
        """The type that the result is read as: the return type of the request's handler.

        ``Any``, which means JSON types, for a request by kind, and for copies of an outcome.
        """
        # No field: a type has no place where an outcome is compared, or written as JSON.
        return self.__dict__.get("_result_type", Any)


class Claim(Struct, frozen=True):
    """Proof of ownership of one attempt, and the fence of every later write.

    A lost claim stays worthless: for a worker of the same name, after a requeue, after the job
    was deleted and stored again under the same id, and after the store lost the claim.

    :param token: the store's time of the claim in microseconds, and at least one more than the
        job's token before. Where the store lost a claim and the clock went back, two claims may
        have one number
    :param host_id: the pod that owns the claim. Stores compare it too, to tell such claims apart
    """

    queue: str
    job_id: JobId
    token: int
    host_id: HostId


class ClaimedJob(Struct, frozen=True, kw_only=True):
    """A claim with all that its handler needs.

    :param attempt: of this run, from 1. Handed-back runs do not count
    :param crashes: how many times the process died during a run of the job
    :param snoozes: how many times a run was handed back by snooze or throttle
    :param snoozed_since: time of the first such hand-back. None before one, and after a requeue
    :param timeout: how long this run may take. None means no bound
    :param run_at: when the job was due
    :param cancel_requested: a cancel arrived between enqueue and this claim
    :param rate_limit: the rate limit whose turn the job waited for until this claim. "" for none
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
    rate_limit: str = ""


class ErrorRecord(Struct, frozen=True, kw_only=True):
    """A failure of one attempt. Texts are already cleaned and cut to size.

    :param attempt: the run that failed, from 1
    :param at: the store's time of the call, filled in by the store. None before
    :param ran_for: how long the attempt took until the end, by the pod's own clock. None where the
        pod could not say, and from pods of earlier releases
    :param error_group: the id of the group of failures, see
        :class:`~forge_jobs.model.failures.ErrorGroup`. "" for what is no failure, and from pods of
        releases that know no groups
    """

    attempt: int
    cause: Cause
    type: str
    message: str
    traceback: str = ""
    host_id: str = ""
    at: datetime | None = None
    error_group: str = ""
    ran_for: timedelta | None = None


class Job(Struct, frozen=True, kw_only=True):
    """A stored job, whole.

    Instants are aware and in UTC, durations are timedeltas.

    :param status: see the glossary. ``failed`` waits for a retry, ``dead`` has given up
    :param cause: while in_progress that of the status before
    :param attempt: how many attempts have begun. Runs that were handed back do not count
    :param priority: -100 to 100, the lowest first
    :param due_at: when the job may be claimed. For a failed job the time of its retry
    :param token: of the last claim. Of a job that was never claimed the value before the first,
        ``enqueued_at`` in microseconds
    :param claimed_at: of the last claim, as heartbeat_at, host_id and worker_id: all stay as they
        are when the claim ends
    :param host_id: the pod that holds the job, or held it last. "" before the first claim
    :param started_at: when the last attempt is known to have started. None while the
        claim is held ahead, and until a heartbeat or a recorded start tells the store
    :param finished_at: when the job became done, dead or cancelled. None before
    :param timeout: how long one run may take. None means no bound
    :param unique_key: None without one. No longer held once the job has ended
    :param follow_up: the job was stored as the follow-up of another job with the unique key. While
        blocked, ``waits_for`` names that job
    :param errors: the newest ``ERROR_HISTORY``, oldest first
    :param result: JSON text, None when there is none (yet, any more, or not asked for)
    :param payload: "" once a job that is not to be kept has ended
    :param rate_limit: the scope that the job waits for when the cause is rate_limited, else None
    :param struck_by: the name of the strike when the cause is struck, else None
    :param unreadable: which stored fields cannot be read, and why. Here they are as in a new job
    :param limit_name: the limit that the job counts toward while in_progress, "" for none
    :param limit_key: the key of the limit
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
    """Parents among ``waits_for`` that ended without success and hold the job, until they
    succeed after a requeue or an operator releases the job."""
    rate_limit: str | None = None
    struck_by: str | None = None
    unreadable: str = ""
    follow_up: bool = False
    limit_name: str = ""
    limit_key: str = ""
