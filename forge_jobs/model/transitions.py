"""The next step of a claimed job, as a value: computed by ``policy``, applied by a store."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.model.edges import EdgeState
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Claim, ClaimedJob, ErrorRecord, Hold, JobStatus

_ZERO = timedelta(0)
_NOTED = ("dead", "cancelled")
_DIGITS = 19

OCCURRENCE = "forge_jobs.occurrence"
"""The key of a job's metadata with the number of the occurrence. Missing in the first one."""


class Cooldown(Struct, frozen=True):
    """A pause of a whole queue after its upstream throttled.

    Of the stored pause and the new one a store keeps the later end and the higher level, so
    workers that are throttled together raise the level once. A stored level counts until its
    pause has been over for the queue's ``quiet`` time.

    :param length: from the store's now
    :param level: how many throttles in a row this one is, from 1. Input of the next length
    """

    length: timedelta
    level: int


class Occurrence(Struct, frozen=True, kw_only=True):
    """The content of a job's next occurrence, after a handler said ``Again``.

    Only payload and metadata change. The other fields are those of the claim, for a store that
    keeps them in one text with the metadata.

    :param payload: JSON text of an object
    :param metadata: JSON text of an object of strings
    """

    payload: str
    metadata: str
    max_attempts: int | None
    timeout: timedelta | None
    keep_result: bool
    trace: str


def occurrence_of(metadata: Mapping[str, str]) -> int:
    """Return which occurrence of the job the metadata belong to, from 1."""
    text = metadata.get(OCCURRENCE, "")
    return int(text) if text.isdecimal() and len(text) < _DIGITS else 1


def struck_record(message: str, *, attempt: int = 0, host_id: str = "") -> ErrorRecord:
    """Return the error record of a job that a strike cancels.

    :param attempt: of the run that was not allowed. 0: cancelled at the enqueue
    """
    return ErrorRecord(
        attempt=attempt, cause=Cause.STRUCK, type="Struck", message=message, host_id=host_id
    )


class Transition(Struct, frozen=True, kw_only=True):
    """Where a claimed job goes.

    :param status: anything but in_progress and blocked
    :param delay: pending and failed: due again this long after the store's now. None: the job
        keeps its due time, and so its place in the queue. Due now when that time lies ahead
    :param hand_back: the attempt did not count
    :param count_snooze: one more of the bounded hand-backs
    :param count_crash: one more crash
    :param error: appended to the history, of which the newest ``ERROR_HISTORY`` stay
    :param result: JSON text of what the handler returned, replacing an older one. None: none
    :param cooldown: pauses the queue
    :param rate_limit: the scope that the job waits for, kept for explanations. With the cause
        struck the mark of the strike, see ``model.strikes.mark_of``
    :param hold: pending: the job waits on this hold, which is ``struck`` or None
    :param again: pending: the job begins anew under the same id. Payload and metadata are replaced,
        attempt, crashes and snoozes count from zero, checkpoint and steps are forgotten
    """

    status: JobStatus
    cause: Cause
    delay: timedelta | None = _ZERO
    hand_back: bool = False
    count_snooze: bool = False
    count_crash: bool = False
    error: ErrorRecord | None = None
    result: str | None = None
    cooldown: Cooldown | None = None
    rate_limit: str | None = None
    again: Occurrence | None = None
    hold: Hold | None = None


class Finalization(Struct, frozen=True):
    """The end of one claim."""

    claim: Claim
    transition: Transition


class StaleClaim(Struct, frozen=True, kw_only=True):
    """A claim without heartbeats, with all that decides the fate of the job.

    :param started: a start was recorded, so a handler may have run
    """

    claim: Claim
    kind: str
    attempt: int
    max_attempts: int | None
    crashes: int
    started: bool
    cancel_requested: bool


class StaleClaims(list[StaleClaim]):
    """Stale claims, and the time at which they were found stale.

    :param read_at: the store's time of the reading, by the name of the clock: one for a store of
        one clock, one for each queue where queues lie on servers with clocks of their own
    """

    def __init__(
        self, claims: Iterable[StaleClaim] = (), *, read_at: Mapping[str, datetime]
    ) -> None:
        super().__init__(claims)
        self.read_at = read_at


class Revival(Struct, frozen=True):
    """The transition of a job whose claim is stale."""

    claim: Claim
    transition: Transition


class Handover(Struct, frozen=True, kw_only=True):
    """A notice of the end of one parent for one child, still to be delivered.

    :param id: opaque. Unique among the handovers that wait
    :param parent_status: done, dead or cancelled
    """

    id: str
    queue: str
    """The child's queue."""
    child_id: JobId
    parent_id: JobId
    parent_status: JobStatus
    on_failure: str


class Delivery(Struct, frozen=True):
    """The effect of a handover on its child.

    :param action: ``settle`` the edge (the child becomes pending with its last one),
        ``dead`` or ``cancelled`` (the same, and the edge keeps the word), ``cancel`` the child
        (cause parent_failed), or ``hold`` it blocked
    """

    handover: Handover
    action: str

    @property
    def edge(self) -> EdgeState:
        """The state of the edge from now on."""
        if self.action in _NOTED:
            return EdgeState(self.action)
        return EdgeState.SETTLED if self.action == "settle" else EdgeState.HELD


CLAIM_BYTES = 4 * 1024 * 1024
"""Payloads that one claim brings at most, unless a single one is larger."""


class Demand(Struct, frozen=True, kw_only=True):
    """The request of a supervisor for jobs of a queue: see ``JobStore.exchange``.

    :param max_bytes: of all payloads together. The first job comes whatever its size
    """

    worker_ids: tuple[str, ...]
    limit: int
    kinds: frozenset[str]
    max_bytes: int = CLAIM_BYTES


class Exchange(Struct, frozen=True):
    """The answer to one round trip of a supervisor.

    :param settled: per finalization, in order. None: send it again later. See
        ``JobStore.finalize``
    :param claimed: in the order in which they are to start: that of the queue, and of the turns
        where keys have a share. The first ones carry the worker ids
    :param next_due_in: when fewer were claimed than asked for: how long until the next job
        of the queue falls due, None when none is scheduled. Zero when due jobs were left for their
        size. Only a hint.
    :param goes_on: the call has put jobs of full keys on hold, and due jobs may stand behind them.
        So a further claim is no busy loop: each such call leaves fewer jobs to look at
    """

    settled: tuple[bool | None, ...]
    claimed: tuple[ClaimedJob, ...]
    next_due_in: timedelta | None
    goes_on: bool = False
