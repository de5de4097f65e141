"""A snapshot of an installation at one moment: all that the rules of problems look at.

Readers fill the snapshot with a few reads of the store, or from the series that the store keeps.
Instants are of the store's clock. "Since" instants are when something began, so that a rule needs
no earlier snapshot. Parts that are not known are left out, and their rules find nothing.
"""

from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.model.processes import OutboxGauge
from forge_jobs.policy.judgement.objectives import Standing


class HeldKind(Struct, frozen=True, kw_only=True):
    """Jobs of a kind that no live pod knows.

    :param known_by: who knew the kind last, as "pods of version 7a11". "" when that is not known
    """

    kind: str
    jobs: int
    since: datetime
    known_by: str = ""


class Growth(Struct, frozen=True, kw_only=True):
    """A backlog that has grown without a break.

    :param since: the first minute of the growth
    :param a_minute: jobs
    :param arrivals: jobs that fell due in a minute
    :param ends: runs that ended in a minute
    """

    since: datetime
    a_minute: float
    arrivals: float
    ends: float


class QueueSeen(Struct, frozen=True, kw_only=True):
    """A queue.

    :param due: jobs that could run now but for slots, pauses and pods
    :param pods: live pods that declare the queue and take work
    :param unserved_since: when the last such pod went, or the queue was made. None while there is
        one
    :param served_by: who served the queue last, as "pods of version 7a11"
    :param ungranted_since: when pods began to wait for a first slot. None once there is one
    :param cooling_since: of the cool-down that lasts
    :param burning_since: when the objective began to be missed fast (``Standing.is_burning``)
    :param children: blocked jobs that a parent without success holds
    :param mended_by: the command by which that parent begins anew. "" for none
    :param key_holder: the job that has the unique key of that parent, which cannot be requeued
    """

    name: str
    due: int = 0
    oldest_due_at: datetime | None = None
    pods: int = 1
    max_workers: int = 1
    granted: int = 1
    unserved_since: datetime | None = None
    served_by: str = ""
    ungranted_since: datetime | None = None
    paused_since: datetime | None = None
    paused_by: str = ""
    cooling_since: datetime | None = None
    cooling_until: datetime | None = None
    growth: Growth | None = None
    standing: Standing | None = None
    burning_since: datetime | None = None
    held: tuple[HeldKind, ...] = ()
    children: int = 0
    children_since: datetime | None = None
    holding_parent: str = ""
    mended_by: str = ""
    key_holder: str = ""


class ErrorsSeen(Struct, frozen=True, kw_only=True):
    """A group of failures: one kind, type and message without its numbers.

    :param failures: in the last five minutes
    :param usual: failures in five minutes, over the day before
    :param first_at: of the burst
    :param dead: jobs that died of the group since then
    """

    queue: str
    kind: str
    type: str
    message: str
    failures: int
    usual: float
    first_at: datetime
    dead: int = 0


class CrashesSeen(Struct, frozen=True, kw_only=True):
    """Crashes of one kind within ten minutes.

    :param memory: what pods say of memory, as "killed by the kernel for memory". "" for nothing
    """

    queue: str
    kind: str
    crashes: int
    first_at: datetime
    memory: str = ""


class RunSeen(Struct, frozen=True, kw_only=True):
    """A job that runs.

    :param usual: 99 of 100 runs of the kind end within this. None while too few have ended
    """

    job_id: str
    queue: str
    kind: str
    pod: str
    started_at: datetime
    usual: timedelta | None = None
    cancel_requested_at: datetime | None = None


class StruckSeen(Struct, frozen=True, kw_only=True):
    """Jobs of a queue that a strike in force holds.

    :param jobs: a lower bound where there are very many
    :param since: when the oldest of them was due, or the strike was set where that was later
    :param by: who has set the strike
    """

    strike: str
    queue: str
    jobs: int
    since: datetime
    by: str = ""
    reason: str = ""


class PodSeen(Struct, frozen=True, kw_only=True):
    """A pod.

    :param starts: how often a pod with this label began in the last ten minutes
    :param first_start_at: of these
    :param blocked_since: when its event loop stood still. None while the loop turns
    :param blocked_in: where, as "shop.pay in parse_all". "" when that is not known
    :param grace: how long the pod lets handlers go on after it was asked to stop
    :param polling_since: when wake-ups stopped to arrive. None when they do, or are not wanted
    :param skew: by how much its wall clock is ahead of the store's
    :param skewed_since: when the skew passed two seconds. None below that
    :param exhausted_since: when calls began to wait for a connection of the pool
    """

    name: str
    version: str = ""
    last_beat_at: datetime
    running: int = 0
    starts: int = 1
    first_start_at: datetime | None = None
    blocked_since: datetime | None = None
    blocked_in: str = ""
    draining_since: datetime | None = None
    grace: timedelta = timedelta(seconds=30)
    polling_since: datetime | None = None
    skew: timedelta = timedelta(0)
    skewed_since: datetime | None = None
    pool_size: int = 0
    exhausted_since: datetime | None = None


class LimitSeen(Struct, frozen=True, kw_only=True):
    """A rate limit for whose tokens jobs wait.

    :param oldest_since: since when the oldest of them waits
    """

    scope: str
    waiting: int
    oldest_since: datetime
    refill_a_minute: float


class FullKeySeen(Struct, frozen=True, kw_only=True):
    """A full key of a limit, at which jobs wait.

    :param limit: the name of the limit
    :param running: jobs that count toward the key
    :param since: no job of the key has started since, although one was due
    :param kinds: of the jobs in progress
    :param usual: 99 of 100 runs of these kinds end within this. None while too few have ended of
        one of them
    """

    queue: str
    limit: str
    key: str
    running: int
    waiting: int
    since: datetime
    kinds: tuple[str, ...] = ()
    usual: timedelta | None = None


class HeldKeySeen(Struct, frozen=True, kw_only=True):
    """A key of a limit at which jobs wait, while long runs hold permits of the key.

    :param running: jobs that count toward the key, 1,000 at most
    :param waiting: jobs on hold, counted up to 1,000
    :param long: runs that hold the key and take far longer than runs of their kind. Each says what
        is usual
    """

    queue: str
    limit: str
    key: str
    running: int
    waiting: int
    long: tuple[RunSeen, ...]


class ScheduleSeen(Struct, frozen=True, kw_only=True):
    """A schedule that is neither paused nor deleted.

    :param error: why the schedule is disabled. "" while it fires
    :param error_at: since when
    :param next_at: the next occurrence
    """

    name: str
    error: str = ""
    error_at: datetime | None = None
    next_at: datetime | None = None


class StoreSeen(Struct, frozen=True, kw_only=True):
    """The store.

    :param slow_since: when the p99 of the calls of all pods passed a second. None below
    :param slowest: the call that takes longest, as "exchange"
    :param slowest_p99: of that call
    :param used: bytes
    :param bound: bytes that are there at most. 0 without a bound
    :param full_since: when nine tenths of the bound were used. None below
    :param transaction_since: begin of the oldest open transaction. None without one
    :param rolled_up_to: begin of the first minute that is not rolled up although runs ended there.
        None without one
    """

    name: str = "store"
    slow_since: datetime | None = None
    slowest: str = ""
    slowest_p99: timedelta = timedelta(0)
    used: int = 0
    bound: int = 0
    full_since: datetime | None = None
    transaction_since: datetime | None = None
    rolled_up_to: datetime | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    """An installation at one moment.

    :param now: the store's time
    :param leaderless_since: when the lease of the last leader ran out. None while one leads
    """

    now: datetime
    queues: tuple[QueueSeen, ...] = ()
    errors: tuple[ErrorsSeen, ...] = ()
    crashes: tuple[CrashesSeen, ...] = ()
    runs: tuple[RunSeen, ...] = ()
    pods: tuple[PodSeen, ...] = ()
    leaderless_since: datetime | None = None
    limits: tuple[LimitSeen, ...] = ()
    keys: tuple[FullKeySeen, ...] = ()
    held_keys: tuple[HeldKeySeen, ...] = ()
    struck: tuple[StruckSeen, ...] = ()
    schedules: tuple[ScheduleSeen, ...] = ()
    outboxes: tuple[OutboxGauge, ...] = ()
    store: StoreSeen = StoreSeen()
