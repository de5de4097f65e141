"""The parts of an explanation: reasons, the readings they come from, and phrases."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from forge_jobs.model.edges import GROUP_KIND, WORKFLOW_KIND
from forge_jobs.model.jobs import Job
from forge_jobs.model.metrics import Histogram
from forge_jobs.model.processes import Allocation, Leadership, PodState, WorkerState
from forge_jobs.model.queues import LimitState, LinePlace, QueueState
from forge_jobs.model.strikes import Strike

ZERO = timedelta(0)


class Reason(StrEnum):
    """The code of an explanation. Stable: scripts compare it."""

    BLOCKED_BY_PARENTS = "blocked_by_parents"
    BLOCKED_BY_FAILED_PARENT = "blocked_by_failed_parent"
    EXPIRED = "expired"
    """Past its ``expires_at``. The next clean-up pass cancels the job."""
    NOT_RELAYED = "not_relayed"
    """The job is in an outbox of this database, and not stored on the destination yet."""
    SET_ASIDE = "set_aside"
    """The destination of the outbox refuses the job, which waits for a person."""
    UNKNOWN_KIND = "unknown_kind"
    UNREADABLE = "unreadable"
    """The record cannot be read: spoilt, or written by another release."""
    NOT_DUE = "not_due"
    WAITS_FOR_RETRY = "waits_for_retry"
    RATE_LIMITED = "rate_limited"
    """The handler found no token of a rate limit, and the job has a turn there."""
    KEY_MISSING = "key_missing"
    """The pod that claimed the job lacks the key of the payload."""
    STRUCK = "struck"
    """A strike of an operator holds the job."""
    LIMITED = "limited"
    """As many jobs of its limit and key run as may."""
    QUEUE_UNKNOWN = "queue_unknown"
    PAUSED = "paused"
    COOLING_DOWN = "cooling_down"
    MAX_WORKERS_ZERO = "max_workers_zero"
    NO_POD = "no_pod"
    """No pod with a live lease declares the queue."""
    ONLY_DRAINING_PODS = "only_draining_pods"
    NO_LEADER = "no_leader"
    """Pods declare the queue, and no coordinator is there to grant them slots."""
    NO_SLOTS = "no_slots"
    """Pods declare the queue, and slots are not granted yet."""
    NO_POD_WITH_KIND = "no_pod_with_kind"
    """The pods that have slots do not know the kind."""
    SLOTS_BUSY = "slots_busy"
    READY = "ready"
    """Nothing holds the job back: a pod with a free slot is about to claim it."""
    CANCELLING = "cancelling"
    HELD_AHEAD = "held_ahead"
    RUNNING = "running"
    OVERRUNNING = "overrunning"
    """The job runs past the timeout."""
    OWNER_SILENT = "owner_silent"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Explanation(Struct, frozen=True, kw_only=True):
    """The reason for the state of a job.

    :param text: one line for people. Names the kind and the queue
    :param since: when the reason began to hold for this job: the pause, the cool-down, the last
        beat or stop of a pod, the lost lease, the end of the parent, the wish to cancel, the last
        enqueue, retry or hand-back. Of a job that is due, its due time where nothing later is
        recorded: ``unknown_kind``, ``unreadable``, ``queue_unknown``, ``max_workers_zero``,
        ``no_pod_with_kind``, ``slots_busy`` and ``ready`` begin there. None where events that tell
        have gone, or were lost with a pod
    :param forecast: when the state changes by itself, None when that is not known
    :param help: the command that helps. "" when nothing has to be done
    :param blocked_by: ids of the jobs that this job waits for
    :param held_by: holders of the slots or permits that the job waits for, the longest-running
        first
    :param ahead: due jobs that come before one that waits for a slot, 50,000 at most, or jobs of
        the key before one that waits for a permit, 1,000 at most
    :param starts_after: nine of ten such jobs start between this and ``starts_before``. None where
        no run ended lately
    :param rests_on: what the forecast rests on, for people
    :param opens_at: an estimate of when a permit of the key comes free: half of the runs of such
        jobs end by then. May have passed. None where no run ended in the last day
    :param opens_by: when a permit of the key is free at the latest, by the timeouts of the holders.
        None where too few have one. A handler that ignores its timeout goes on
    """

    reason: Reason
    text: str
    since: datetime | None = None
    forecast: datetime | None = None
    help: str = ""
    blocked_by: tuple[str, ...] = ()
    held_by: tuple[str, ...] = ()
    ahead: int | None = None
    starts_after: datetime | None = None
    starts_before: datetime | None = None
    rests_on: str = ""
    opens_at: datetime | None = None
    opens_by: datetime | None = None


class KeyTurn(Struct, frozen=True, kw_only=True):
    """The place of a key among others of its limit that take turns.

    :param fewer: keys with fewer jobs in progress, which come first
    :param same: other keys with as many. Of these the one comes first whose turn is the longest ago
    """

    fewer: int
    same: int


class KeySeen(Struct, frozen=True, kw_only=True):
    """The key of a limit at which a job waits.

    :param holders: the first jobs that count toward the key, the longest claimed first
    :param running: how many jobs count toward the key, 1,000 at most
    :param place: of the job among those that wait at the key. None when it waits there no more
    :param runs: how long runs of such jobs took in the last day, by kind
    :param turn: of the key. None without a share
    """

    holders: tuple[Job, ...] = ()
    running: int = 0
    place: LinePlace | None = None
    runs: Mapping[str, Histogram] = {}
    turn: KeyTurn | None = None


class Situation(Struct, frozen=True, kw_only=True):
    """The surroundings of a job at one moment. Parts that do not exist are None or empty."""

    queue: QueueState | None
    allocation: Allocation | None
    pods: tuple[PodState, ...]
    leader: Leadership | None
    now: datetime
    workers: tuple[WorkerState, ...] = ()
    limits: tuple[LimitState, ...] = ()
    key: KeySeen = KeySeen()
    strikes: tuple[Strike, ...] = ()

    @property
    def live(self) -> tuple[PodState, ...]:
        """Pods whose lease still runs."""
        return tuple(pod for pod in self.pods if pod.lease_remaining > ZERO)


def name_of(pod: PodState) -> str:
    """The name of a pod for people: the label, or the id."""
    return pod.pod.label or pod.pod.host_id


def names_of(pods: Sequence[PodState]) -> str:
    """The pods in a few words."""
    names = ", ".join(name_of(pod) for pod in pods[:3])
    return f"{names} and {len(pods) - 3} more" if len(pods) > 3 else names


def how_known(kind: str) -> str:
    """Return what makes a pod know a kind of this package, as the end of a text. "" for others."""
    if kind in (GROUP_KIND, WORKFLOW_KIND):
        return "; pods know this kind by handlers.include(group_handlers())"
    return ""


def count(number: int, noun: str) -> str:
    """A number of things, in the singular or the plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def at(instant: datetime) -> str:
    """An instant for people."""
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")
