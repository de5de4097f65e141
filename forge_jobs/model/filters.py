"""Which jobs are meant: filters, the pages that list jobs, and what bulk operations answer.

All records are frozen, as those of :mod:`forge_jobs.model.jobs`.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import Cause, Hold, JobStatus


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs are meant; every part that is set must match.

    Of ``ids``, ``queues``, ``kinds``, ``statuses`` and ``causes`` a single text stands for a tuple
    of one, and any collection of texts for a tuple of them.

    :param ids: None means any. An empty tuple means no job at all: a list that came out empty
        must never stand for every job there is. Of the other parts empty tuples mean any
    :param tag: one of the job's tags, whole
    :param schedule: the name of the schedule that fired the job
    :param enqueued_before: strictly before this instant, an aware datetime
    :param enqueued_after: at or after this instant, an aware datetime
    :raises InvalidInput: a part has another type, or names no status or cause that there is
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
                raise InvalidInput(name, f"is {a_type(text)}", "give a text")
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
    """One line of a list: a job without its payload, result and tracebacks.

    :param started_at: as in :class:`~forge_jobs.model.jobs.Job`
    :param unreadable: which stored fields cannot be read, and why; "" when all can
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


class Page(Struct, frozen=True):
    """One page of jobs, newest id first.

    A page may be short, or empty, and not be the last: go on for as long as there is a ``cursor``.

    :param cursor: pass it to get the next page; None on the last page
    :param looked_back_to: the last job that a call looked at before it gave up, since it looks at
        a bounded number: older jobs may match. None when the page is full or complete
    :param silent: queues that did not answer, so that none of their jobs are on the page
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
    """Requeueing what already waits for its turn, starting what waits for other jobs, releasing
    what no parent holds."""
    KEY_TAKEN = "key_taken"
    """Requeueing: another active job holds its unique key now."""
    PARENT_FAILED = "parent_failed"
    """Requeueing what comes after a job that is gone and had not succeeded."""
    LOCKED = "locked"
    """Somebody's open transaction holds the job, or what it needs: ask again later."""
    SILENT = "silent"
    """A part of the store that knows of what the job comes after does not answer: ask again."""
    REFERENCED = "referenced"
    """Deleting: a foreign key or a trigger of the user's refuses it, and the log says which."""


class BulkOutcome(Struct, frozen=True):
    """What one bounded batch of a bulk operation did.

    :param changed: jobs that are now as was asked for
    :param requested: running jobs whose owner was asked (cancel only)
    :param refused: jobs left as they were, and why
    :param cursor: pass it to go on; None when every matching job has been visited
    """

    changed: tuple[JobId, ...]
    requested: tuple[JobId, ...]
    refused: Mapping[JobId, Refusal]
    cursor: str | None
