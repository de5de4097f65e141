"""Filters that select jobs, pages that list them, and the answers of bulk operations.

All records are frozen, as those of :mod:`forge_jobs.model.jobs`.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import TERMINAL, Cause, Hold, JobStatus
from forge_jobs.model.queries.matching import is_deep
from forge_jobs.model.queries.terms import Choice, Compared, InPayload, Term


class JobFilter(Struct, frozen=True, kw_only=True):
    """Selects jobs. A job must match every part that is set.

    Of ``ids``, ``queues``, ``kinds``, ``statuses`` and ``causes`` a single text stands for a tuple
    of one, and any collection of texts for a tuple of them.

    :param ids: None means any. An empty tuple means no job at all: a list that came out empty
        must never stand for every job there is. Of the other parts empty tuples mean any
    :param tag: one of the job's tags, whole
    :param schedule: the name of the schedule that fired the job
    :param enqueued_before: strictly before this instant, an aware datetime
    :param enqueued_after: at or after this instant, an aware datetime
    :param terms: further terms of the filter language, as in ``parse_query(text).terms``: what is
        excluded, times, attempts, pods, errors and payloads. Durations count back from the store's
        time of the call
    :raises InvalidInput: a part has a wrong type, or an unknown status or cause
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
    terms: tuple[Term, ...] = ()

    @property
    def deep(self) -> tuple[Term, ...]:
        """The terms about errors and payloads, for which each job has to be read."""
        return tuple(term for term in self.terms if is_deep(term))

    def __post_init__(self) -> None:
        for name, members in _SEVERAL.items():
            given = getattr(self, name)
            if given is not None:
                force_setattr(self, name, _several(name, given, members))
        for name in ("tag", "unique_key", "schedule"):
            if not isinstance(text := getattr(self, name), str | None):
                raise InvalidInput(name, f"is {a_type(text)}", "give a text")
        for name in ("enqueued_before", "enqueued_after"):
            at = getattr(self, name)
            if at is not None and (not isinstance(at, datetime) or at.utcoffset() is None):
                fix = "give an aware datetime, such as datetime(2030, 1, 31, tzinfo=UTC)"
                raise InvalidInput(name, f"is {at!r}", fix)
        if not (isinstance(self.terms, tuple) and all(isinstance(e, _TERMS) for e in self.terms)):
            raise InvalidInput("terms", "are no terms", "give parse_query(...).terms")


_TERMS = (Choice, Compared, InPayload)
_SEVERAL: Mapping[str, type[StrEnum] | None] = {
    "ids": None,
    "queues": None,
    "kinds": None,
    "statuses": JobStatus,
    "causes": Cause,
}


def _several(name: str, given: object, members: type[StrEnum] | None) -> tuple[str, ...]:
    """The texts of a part of a filter, or the members of an enum."""
    values = (given,) if isinstance(given, str) else given
    if not isinstance(values, Iterable):
        raise InvalidInput(name, f"is {a_type(values)}", "give a tuple of texts")
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


class JobSummary(Struct, frozen=True, kw_only=True):
    """A line of a list: a job without its payload, result and tracebacks.

    :param started_at: as in :class:`~forge_jobs.model.jobs.Job`
    :param unreadable: which stored fields cannot be read, and why. "" when all can
    """

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
    last_error: str
    """Type and message of the newest error, "" when there is none."""
    unreadable: str = ""


JobOrder = Literal["id", "finished", "due"]
"""The order of a list of jobs.

``id``: the newest id first. ``finished``: jobs that have ended, the last to end first. ``due``:
jobs that wait for their time or for a worker (pending or failed, and not on hold), the earliest due
time first. A list by ``finished`` or ``due`` holds no other jobs.
"""

MOST_COUNTED = 50_000
"""How far a count goes, unless the caller says otherwise."""


class Page(Struct, frozen=True):
    """A page of jobs in the order that was asked for.

    A page may be short, or even empty, before the last one: go on while there is a ``cursor``.

    :param cursor: pass it, with the same filter and order, to get the next page. None on the last
        page
    :param looked_back_to: the last job that the call looked at when it reached the limit. Jobs
        beyond may match. None when the page is full or complete
    :param silent: queues that did not answer, so that none of their jobs are on the page
    """

    jobs: tuple[JobSummary, ...]
    cursor: str | None
    looked_back_to: JobId | None = None
    silent: tuple[str, ...] = ()


class Count(Struct, frozen=True):
    """How many jobs match. As a text: ``37``, ``50,000+`` when more match. As a condition: false
    where no job matches, so ``while await client.count(which):`` waits for the last one.

    :param number: the jobs that were found, ``at_most`` of the call at the most
    :param is_more: more than ``number`` jobs match, which the call did not count
    :param looked_back_to: the last job that the call looked at when it reached the limit of a walk.
        Older jobs may match. Pass it as ``cursor`` to count these
    :param silent: queues that did not answer, so that none of their jobs are counted
    """

    number: int
    is_more: bool = False
    looked_back_to: JobId | None = None
    silent: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """True when exactly ``number`` jobs match."""
        return not (self.is_more or self.looked_back_to or self.silent)

    def __bool__(self) -> bool:
        """False when it is known that no job matches."""
        return self.number > 0 or not self.is_exact

    def __str__(self) -> str:
        return f"{self.number:,}{'' if self.is_exact else '+'}"


class Refusal(StrEnum):
    """The reason why a bulk operation left a job unchanged."""

    NOT_FOUND = "not_found"
    RUNNING = "running"
    """Deleting, requeueing or restoring a job that a worker holds."""
    FINISHED = "finished"
    """Cancelling or starting what has ended, requeueing what succeeded, restoring what no operator
    cancelled."""
    WAITING = "waiting"
    """Requeueing or restoring a job that already waits, starting a job that waits for others,
    releasing a job that no parent holds."""
    KEY_TAKEN = "key_taken"
    """Requeueing or restoring: another active job holds the unique key now."""
    PARENT_FAILED = "parent_failed"
    """Requeueing or restoring what comes after a job that is gone and had not succeeded."""
    CHILDREN_KNOW = "children_know"
    """Restoring a job of whose end children know: they went on, or ended with the job."""
    EXPIRED = "expired"
    """Restoring a job whose ``expires_at`` has passed."""
    LOCKED = "locked"
    """An open transaction holds the job, or a record that the call needs: ask again later."""
    SILENT = "silent"
    """A part of the store that knows of what the job comes after does not answer: ask again."""
    REFERENCED = "referenced"
    """Deleting: a foreign key or a trigger of the user refuses. The log names the constraint."""


_FINISHED: Mapping[str, Refusal] = dict.fromkeys(TERMINAL, Refusal.FINISHED)
_RUNNING: Mapping[str, Refusal] = {JobStatus.IN_PROGRESS: Refusal.RUNNING}


class Refused(NamedTuple):
    """The statuses in which an operator's verb leaves a job as it is.

    :ivar unless: a job with this hold is not refused, whatever the status
    """

    by_status: Mapping[str, Refusal]
    unless: Hold | None = None

    def refusal(self, status: str, hold: str | None) -> Refusal | None:
        """Return why a job is refused. Statuses of later releases are not refused."""
        if hold is not None and hold == self.unless:
            return None
        return self.by_status.get(status)


REFUSED: Mapping[str, Refused] = {
    "cancel": Refused(_FINISHED),
    "delete": Refused(_RUNNING),
    "requeue": Refused(
        {
            JobStatus.BLOCKED: Refusal.WAITING,
            JobStatus.PENDING: Refusal.WAITING,
            **_RUNNING,
            JobStatus.DONE: Refusal.FINISHED,
        },
        unless=Hold.UNREADABLE,
    ),
    "release_held": Refused(
        {
            JobStatus.PENDING: Refusal.WAITING,
            JobStatus.FAILED: Refusal.WAITING,
            **_RUNNING,
            **_FINISHED,
        }
    ),
    "run_now": Refused({JobStatus.BLOCKED: Refusal.WAITING, **_RUNNING, **_FINISHED}),
    "restore": Refused(
        {
            JobStatus.BLOCKED: Refusal.WAITING,
            JobStatus.PENDING: Refusal.WAITING,
            JobStatus.FAILED: Refusal.WAITING,
            **_RUNNING,
            JobStatus.DONE: Refusal.FINISHED,
            JobStatus.DEAD: Refusal.FINISHED,
        }
    ),
}
"""The refusals for the status of a job alone, per verb of an operator, in all stores.

What else a verb refuses (a taken key, a parent that failed, children that know, a job that no
parent holds) is found by the store's step.
"""


class BulkOutcome(Struct, frozen=True):
    """The result of one bounded batch of a bulk operation.

    :param changed: jobs that are now as was asked for
    :param requested: running jobs whose owner was asked (cancel only)
    :param refused: jobs left as they were, and why
    :param cursor: pass it to continue. None when all matching jobs have been visited
    """

    changed: tuple[JobId, ...]
    requested: tuple[JobId, ...]
    refused: Mapping[JobId, Refusal]
    cursor: str | None
