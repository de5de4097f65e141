"""Pods, their leases, slots, and the leader."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import HostId, JobId, WorkerId
from forge_jobs.model.jobs import Claim
from forge_jobs.model.queues import MAX_WORKERS_LIMIT, QueueState


def check_concurrency(count: int) -> int:
    """``count`` when a process can run so many handlers at once.

    :raises InvalidInput: the count is no whole number, or out of range
    """
    fits = isinstance(count, int) and not isinstance(count, bool)
    if not fits or not 1 <= count <= MAX_WORKERS_LIMIT:
        raise InvalidInput("concurrency", f"is {count!r}", f"give 1 to {MAX_WORKERS_LIMIT}")
    return count


class PodLease(Struct, frozen=True):
    """A pod's right to claim, given at registration.

    A lease that ran out never comes back: the pod registers again and gets another ``epoch``,
    with no grants. So a pod that slept can never claim by slots that went to others.
    """

    host_id: HostId
    epoch: str


class Pod(Struct, frozen=True, kw_only=True):
    """The self-description of a pod at the registration.

    :param label: for people, see ``FORGE_WORKER_PREFIX``. "" for none
    :param queues: queues that the pod declares
    :param kinds: kinds that the pod has handlers for, aliases included
    :param version: the deployed version, "" when unknown
    :param concurrency: how many handlers the pod runs at once, over all queues. None: as many as
        the pod has slots
    :param routes: kind -> queue, as the pod's handler or router names it. Kinds without such a
        queue are left out
    """

    host_id: HostId
    label: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    version: str
    process_id: int
    concurrency: int | None = None
    routes: Mapping[str, str] = {}


KINDS_KEPT = timedelta(days=400)
"""How long the description of a kind stays that no pod publishes any more."""


class PublishedKind(Struct, frozen=True, kw_only=True):
    """A kind as a pod has described the kind.

    :param document: JSON text of a ``KindEntry``, opaque to the stores
    :param published_at: when a pod with the kind last joined
    """

    kind: str
    document: str
    published_at: datetime


class StoreCall(Struct, frozen=True, array_like=True):
    """A pod's calls of one verb of its store in the last minute. Stored as a list, to be small.

    :param name: of the verb, as "exchange"
    :param errors: calls that the store did not answer, or answered with an error of its own
    :param p50_ms: half of the calls took no longer, within 5 %, as is ``p99_ms``. The time in which
        they waited for a connection of the pool is left out
    """

    name: str
    count: int
    errors: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0


MOST_RATES = 50
"""Rate limits that a pod tells of, those with most tokens. So its minute has a bounded size."""


class RateGauge(Struct, frozen=True, array_like=True):
    """Tokens of a rate limit that a pod asked for in the last minute. Stored as a list.

    :param scope: the rate limit, all its keys together
    :param taken: tokens that jobs and callers of the pod got, reserved ones among them
    :param refused: tokens that a job or a caller asked for and did not get
    """

    scope: str
    taken: int = 0
    refused: int = 0


class OutboxGauge(Struct, frozen=True, kw_only=True):
    """An outbox that a pod relays, as the pod has measured it. Instants are by the store's clock.

    :param name: of the destination
    :param waiting_since: when the oldest record that waits was written down. None: none waits
    :param set_aside: records that the destination refuses
    :param aside_since: when the oldest of these was written down
    :param relayed_at: when a pass over the outbox went well for the last time. None: none has yet
    """

    name: str
    waiting: int = 0
    waiting_since: datetime | None = None
    set_aside: int = 0
    aside_since: datetime | None = None
    relayed_at: datetime | None = None


class PodGauges(Struct, frozen=True, kw_only=True):
    """The pod's own measurements of the last minute. Counts are since it opened its store.

    A number that could not be measured is zero.

    :param listening: wake-ups of other pods arrive at once. False: the pod polls
    :param silences: how often the listener was interrupted
    :param overruns: handlers that went on past the timeout of their job
    :param unreplicated: writes that fewer replicas confirmed in time than were asked for
    :param clock_skew_ms: how far the pod's wall clock is ahead of the store's. Negative: behind
    :param blocked_since: when the event loop of the pod stopped to turn, by the store's clock. None
        while the loop turns
    :param blocked_in: the function where the loop stands. "" while the loop turns
    :param pool_size: connections that calls of the pod may use at once. 0: calls need not wait
    :param pool_in_use: of these, in use when measured
    :param pool_waits: calls that had to wait for a connection
    :param kept: one line for each reason for which the database did not let jobs go that are past
        their retention, in the last pass
    :param calls: of the store by verb, in the last minute. Of the 16 that took most time together
    :param outboxes: that the pod relays. An outbox whose database does not answer is left out
    :param rates: rate limits that the pod asked for tokens, of the 50 with most tokens
    """

    cpu_percent: float = 0.0
    memory_bytes: int = 0
    disk_free_bytes: int = 0
    store_latency_ms: float = 0.0
    """Mean round trip of the pod's store calls."""
    loop_lag_ms: float = 0.0
    running: int = 0
    listening: bool = True
    silences: int = 0
    unreplicated: int = 0
    overruns: int = 0
    kept: tuple[str, ...] = ()
    clock_skew_ms: float = 0.0
    pool_size: int = 0
    pool_in_use: int = 0
    pool_waits: int = 0
    blocked_since: datetime | None = None
    blocked_in: str = ""
    calls: tuple[StoreCall, ...] = ()
    outboxes: tuple[OutboxGauge, ...] = ()
    rates: tuple[RateGauge, ...] = ()


class PodState(Struct, frozen=True, kw_only=True):
    """A pod as the store knows the pod.

    :param started_at: time of the first registration
    :param lease_remaining: zero once the lease ran out
    :param draining: the pod takes no new work and gives its slots back
    :param quiet: the pod drains by request and does not stop
    :param slots: per queue, the pod's grant and target. Zeros or nothing once the lease
        ran out
    :param in_progress: claims that the pod holds, per queue with any
    :param unreadable: which stored fields cannot be read, and why. "" when all can
    """

    pod: Pod
    started_at: datetime
    last_beat_at: datetime
    lease_remaining: timedelta
    draining: bool
    slots: Mapping[str, "Slots"]
    in_progress: Mapping[str, int]
    gauges: PodGauges | None
    unreadable: str = ""
    quiet: bool = False

    @property
    def standing(self) -> str:
        """``live``, ``quiet``, ``draining``, or ``lost`` once the lease ran out."""
        if self.lease_remaining <= timedelta(0):
            return "lost"
        if self.quiet:
            return "quiet"
        return "draining" if self.draining else "live"

    @property
    def slots_in_words(self) -> str:
        """Granted slots per queue, with the target where they differ: ``gh 2, slack 1 of 3``."""
        return ", ".join(
            f"{queue} {each.grant}" + (f" of {each.target}" if each.target != each.grant else "")
            for queue, each in sorted(self.slots.items())
        )


class Slots(Struct, frozen=True):
    """The slots of one queue on one pod.

    :param target: how many slots the coordinator wants the pod to have
    :param grant: how many handlers the pod may run
    """

    target: int
    grant: int


class Allocation(Struct, frozen=True, kw_only=True):
    """The slots of one queue over the pods with a live lease, at one version.

    :param version: changes with every write of the allocation, for compare-and-set
    :param pods: every live pod that declares the queue, also those without slots
    :param draining: those of ``pods`` that give their slots back
    """

    queue: str
    version: int
    max_workers: int
    pods: Mapping[HostId, Slots]
    draining: frozenset[HostId]


class AllocationChange(Struct, frozen=True, kw_only=True):
    """The coordinator's wish for one queue.

    :param slots: the new slots of every pod of the allocation that was read. A grant is never
        below the one read
    """

    queue: str
    version: int
    slots: Mapping[HostId, Slots]


class Leadership(Struct, frozen=True, kw_only=True):
    """The current leader lease.

    :param term: grows by one with each change of holder, never goes back
    :param remaining: zero once the lease ran out
    :param fleet_version: differs whenever what ``ProcStore.allocations`` returns differs.
        So a coordinator that has seen the version need not read them again. "" in the answer of
        ``CronStore.lead`` to a pod that does not lead
    :param ended_for: how long ago the lease ran out or was given up. Zero while the lease lasts
    """

    host_id: HostId
    term: int
    remaining: timedelta
    fleet_version: str
    ended_for: timedelta = timedelta(0)


class HeldClaim(Struct, frozen=True):
    """A claim as its pod reports the claim.

    :param worker_id: "" while the claim is held ahead and no handler runs
    """

    claim: Claim
    worker_id: str = ""


class ClaimState(StrEnum):
    """The state in which a heartbeat found a claim."""

    HELD = "held"
    CANCEL_REQUESTED = "cancel_requested"
    """Still held, and a cancel waits for the handler."""
    LOST = "lost"


class QueueBeat(Struct, frozen=True, kw_only=True):
    """The state of one queue, for a pod that declares the queue.

    :param next_due_in: until the next waiting job falls due, zero when one is due now, None
        when none waits
    """

    slots: Slots
    state: QueueState
    next_due_in: timedelta | None


class Beat(Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat.

    :param lease_held: False: the lease had run out or the pod is unknown. Nothing was renewed,
        the pod's grants are void, the pod must register again. Claims are reported all the same.
    :param claims: per claim of the call
    :param unknown: claims the store holds for this pod that the call did not list. Without a held
        lease some may be missing: the beat of the new registration has them
    :param queues: per queue the pod declares
    :param handovers: handovers wait in the queues that the pod declares. A store may also
        report other queues. Without a held lease this means nothing, as ``queues``
    :param now: the store's time of the beat
    :param silent: queues for which this beat renews nothing: their part of the store is silent, or
        the lease ran out there, and who could give another is silent
    :param letters: letters wait to be stored in their queues, as ``handovers``
    :param requests: requests to the pod wait for an answer. See ``AskedStore``
    :param admitted: queues in whose part alone the lease had run out: the pod has a new one there,
        and no slots
    """

    lease_held: bool
    claims: Mapping[Claim, ClaimState]
    unknown: tuple[Claim, ...]
    queues: Mapping[str, QueueBeat]
    handovers: bool
    now: datetime
    silent: frozenset[str] = frozenset()
    admitted: frozenset[str] = frozenset()
    letters: bool = False
    requests: bool = False


class SetBack(Struct, frozen=True, kw_only=True):
    """Records left behind by a store clock that has been set back.

    :param leases: leases and beats that lay ahead of the store's time, and count from now on
    :param is_set_back: the clock was ahead of its present time, by these leases or by a counter.
        So jobs may be dated ahead too
    """

    leases: int
    is_set_back: bool


class WorkerState(Struct, frozen=True, kw_only=True):
    """A worker with a job in hand.

    :param cancel_requested: the owner of the job was asked to stop the job
    """

    worker_id: WorkerId
    host_id: HostId
    queue: str
    job_id: JobId
    kind: str
    started_at: datetime
    cancel_requested: bool = False
