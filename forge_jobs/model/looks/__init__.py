"""Looks: what the list of problems needs of a store, in two calls."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.filters import JobSummary
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Job, JobStatus
from forge_jobs.model.processes import Leadership, PodState, WorkerState
from forge_jobs.model.queues import QueueState, RateLimitState
from forge_jobs.model.schedules import Schedule

MOST_EVENTS = 1_000
"""Events of pods, leaders and schedules in a look: the newest. Jobs have others."""

MOST_BLOCKED, MOST_CRASHED, MOST_HELD, MOST_STARVED = 200, 100, 1_000, 200
"""Jobs of a sort in a look."""

CRASHED_WITHIN = timedelta(minutes=10)
"""For so long a crash is looked for. Queues whose last crash is older are not searched."""

MOST_RUNS, MOST_CANCELLED = 50, 3
"""Runs in a look: the longest, and of those that were asked to stop the longest."""


MOST_PARKED, MOST_FULL_KEYS = 10_000, 5
"""So many waiting jobs of a limit are counted, and so many full keys of a limit are in a look."""

AFTER_CRASHES = (JobStatus.PENDING, JobStatus.FAILED, JobStatus.IN_PROGRESS, JobStatus.DEAD)
"""The statuses of jobs that crashed and have not succeeded since."""


MOST_MARKS, MOST_STRUCK = 20, 10_000
"""Strikes in a look, and for each how many of its jobs are counted."""


class FleetLook(Struct, frozen=True, kw_only=True):
    """All but the jobs: what many pages and every list of problems begin with.

    :param leader: None before any pod led
    :param schedules: by name, without those that were deleted
    :param queues: by name
    :param limited: names of the queues that have limits by key
    :param limits: rate limits, by scope
    :param pods: as ``ProcStore.pods`` returns them
    :param events: of pods, leaders and schedules the newest ``MOST_EVENTS``, newest first
    :param may_strike: false where there is no strike. Costs no statement
    """

    now: datetime
    leader: Leadership | None
    schedules: tuple[Schedule, ...]
    queues: tuple[QueueState, ...]
    limits: tuple[RateLimitState, ...]
    pods: tuple[PodState, ...]
    events: tuple[TimelineEvent, ...]
    limited: tuple[str, ...] = ()
    may_strike: bool = True


class FullKey(Struct, frozen=True, kw_only=True):
    """A key of a limit of which as many jobs are in progress as may, and at which others wait.

    :param running: jobs in progress, those that a pod holds ahead among them
    :param waiting: jobs on hold, counted up to 1,000
    :param due_at: of the first job on hold
    :param claimed_at: when the newest of the jobs in progress was claimed
    :param kinds: of the jobs in progress, of a few
    """

    key: str
    running: int
    waiting: int
    due_at: datetime
    claimed_at: datetime
    kinds: tuple[str, ...]


class LimitLoad(Struct, frozen=True, kw_only=True):
    """A limit of a queue, with the jobs that count toward the limit.

    :param at_most: jobs of one key. 0 where the number cannot be read
    :param running: jobs of all keys in progress
    :param waiting: jobs on hold, counted up to ``MOST_PARKED``. Redis counts those of 1,000 keys
    :param oldest_due_at: due time of the oldest of these. Redis knows the first job of each key.
        None without one
    :param full: keys of which as many jobs are in progress as may
    :param full_keys: of those at which jobs wait ``MOST_FULL_KEYS``, the longest without a claim
        first
    """

    queue: str
    name: str
    at_most: int
    share: int | None = None
    running: int = 0
    waiting: int = 0
    oldest_due_at: datetime | None = None
    full: int = 0
    full_keys: tuple[FullKey, ...] = ()


class JobsAsked(Struct, frozen=True, kw_only=True):
    """The queues in which a look searches for each sort of job. What is empty costs nothing.

    :param blocked: for blocked jobs
    :param crashed: for jobs that crashed and have not succeeded since, if any job of the queue has
        crashed within ``CRASHED_WITHIN``
    :param held: for waiting jobs, on hold or not
    :param starved: for jobs that wait for a rate limit
    :param limited: for jobs within limits by key. Redis looks at 5,000 jobs in progress of a queue
    :param struck: for jobs that strikes hold
    :param runs: look at jobs that run
    """

    blocked: tuple[str, ...] = ()
    crashed: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    starved: tuple[str, ...] = ()
    limited: tuple[str, ...] = ()
    struck: tuple[str, ...] = ()
    runs: bool = False


class StruckLine(Struct, frozen=True, kw_only=True):
    """The jobs of a queue that a strike holds.

    :param mark: of the strike, see ``model.strikes.mark_of``
    :param jobs: exact up to ``MOST_STRUCK``, and at least as many beyond
    :param oldest_due_at: of the first ``MOST_STRUCK`` of them in the order of the queue, or of the
        first hundred
    """

    mark: str
    queue: str
    jobs: int
    oldest_due_at: datetime


class JobsLook(Struct, frozen=True, kw_only=True):
    """Jobs that may be a problem, a bounded number of each sort.

    :param blocked: the newest ``MOST_BLOCKED``
    :param parents: of these, those that are there
    :param crashed: the newest ``MOST_CRASHED``
    :param held: the newest ``MOST_HELD`` waiting jobs
    :param starved: ``MOST_STARVED``, those whose turn comes first
    :param limits: all limits by key of the queues, by queue and name
    :param struck: of the first ``MOST_MARKS`` strikes, by mark and queue
    :param runs: the longest ``MOST_RUNS``
    :param cancelled: of the runs that were asked to stop the longest ``MOST_CANCELLED``
    :param events: the newest of each of these jobs, newest first
    """

    blocked: tuple[Job, ...] = ()
    parents: Mapping[JobId, Job] = {}
    crashed: tuple[Job, ...] = ()
    held: tuple[JobSummary, ...] = ()
    starved: tuple[Job, ...] = ()
    limits: tuple[LimitLoad, ...] = ()
    struck: tuple[StruckLine, ...] = ()
    runs: tuple[WorkerState, ...] = ()
    cancelled: tuple[WorkerState, ...] = ()
    events: Mapping[JobId, tuple[TimelineEvent, ...]] = {}
