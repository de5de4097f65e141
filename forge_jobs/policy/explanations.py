"""What an explanation is made of: reasons, the readings they come from, and phrases."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from forge_jobs.model.processes import Allocation, Leadership, PodState, WorkerState
from forge_jobs.model.queues import QueueState

ZERO = timedelta(0)


class Reason(StrEnum):
    """The code of an explanation. Stable: scripts compare it."""

    BLOCKED_BY_PARENTS = "blocked_by_parents"
    BLOCKED_BY_FAILED_PARENT = "blocked_by_failed_parent"
    EXPIRED = "expired"
    """Its time ran out; the next clean-up pass cancels it."""
    UNKNOWN_KIND = "unknown_kind"
    UNREADABLE = "unreadable"
    """Its record cannot be read: it was spoilt, or another release has written it."""
    NOT_DUE = "not_due"
    WAITS_FOR_RETRY = "waits_for_retry"
    RATE_LIMITED = "rate_limited"
    """Its handler found no token of a rate limit, and it has a turn there."""
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
    """Nothing holds it back: it is claimed in its turn, in moments."""
    CANCELLING = "cancelling"
    HELD_AHEAD = "held_ahead"
    RUNNING = "running"
    OVERRUNNING = "overrunning"
    """It runs although its time is up."""
    OWNER_SILENT = "owner_silent"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a job is where it is.

    :param text: one line for people; names the kind and the queue
    :param since: since when this is so; of a job that is due and does not run, its due time
        where nothing later is recorded. None when neither is known
    :param forecast: when it changes by itself, None when that is not known
    :param help: the command that helps; "" when nothing has to be done
    :param blocked_by: ids of the jobs it waits for
    :param held_by: who has the slots it waits for, the longest-running first
    """

    reason: Reason
    text: str
    since: datetime | None = None
    forecast: datetime | None = None
    help: str = ""
    blocked_by: tuple[str, ...] = ()
    held_by: tuple[str, ...] = ()


class Situation(Struct, frozen=True, kw_only=True):
    """What surrounds a job, read at one moment; parts that do not exist are None or empty."""

    queue: QueueState | None
    allocation: Allocation | None
    pods: tuple[PodState, ...]
    leader: Leadership | None
    now: datetime
    workers: tuple[WorkerState, ...] = ()

    @property
    def live(self) -> tuple[PodState, ...]:
        """Pods whose lease still runs."""
        return tuple(pod for pod in self.pods if pod.lease_remaining > ZERO)


def name_of(pod: PodState) -> str:
    """What a pod is called by people: its label, or its id."""
    return pod.pod.label or pod.pod.host_id


def names_of(pods: Sequence[PodState]) -> str:
    """The pods in a few words."""
    names = ", ".join(name_of(pod) for pod in pods[:3])
    return f"{names} and {len(pods) - 3} more" if len(pods) > 3 else names


def count(number: int, noun: str) -> str:
    """A number of things, in the singular or the plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def at(instant: datetime) -> str:
    """An instant for people."""
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")
