"""The contract between the runtime and a store: four protocols, and the bundle of them.

A fourth backend can be written from this page. ``tests/conformance`` is its executable form:
each "must" below has a test there, run against every backend.

Rules for every method
----------------------
**One atomic step.** A call happens wholly or not at all, unless its text says "per item".
Items of one call are independent in their outcome, and outcomes come in the order of the items.

**The runtime decides, the store applies.** What happens to a job next arrives as a value
(:class:`~forge_jobs.model.transitions.Transition`). A store must check only the conditions that
need its transaction: ownership, uniqueness, compare-and-set, a live lease.

**One clock.** Every comparison of times must use the store's own clock, once per call.
Callers pass durations; the only instants they pass are those a user gave, and those computed
from the ``now`` a store returned. A store opened with ``clock=`` uses that clock instead.
Boundaries: a job is due when ``run_at <= now``; a lease has run out when ``until <= now``; a
claim is stale when ``heartbeat_at + stale_after <= now``; a job has expired when
``expires_at <= now``.

**Fenced and repeatable.** What concerns a claimed job acts only where the job is in_progress
under the same token. Any call may be repeated after :class:`Unavailable`.

**Errors.** Only :class:`~forge_jobs.errors.StorageError` and its subclasses leave a method.
Driver exceptions never escape, nor do driver texts, paths, host names or credentials.
Names and payloads have been checked by the caller with ``model.names`` and ``model.payloads``; a
store must keep what passed those checks byte for byte.

**Never cancelled half way.** A caller must not cancel a call; it may stop waiting for one. Every
call has a time limit of the store's own, after which it raises ``Unavailable``.

**Exact counts.** Each change of a job must add to the counter of its queue, minute (of the
store's clock) and pod, in the same step. Counter names: ``enqueued``, ``deduplicated``,
``claimed``, and the ``Cause`` of each transition, revival and operator's change. A change that
was refused counts nothing.

**Wake-ups** shorten a wait and nothing else: see :meth:`JobStore.wait_for_work`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from forge_jobs.errors import InvalidInput
from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import (
    BulkOutcome,
    Claim,
    ClaimedJob,
    EnqueueOutcome,
    Job,
    JobFilter,
    NewJob,
    Page,
)
from forge_jobs.model.metrics import LatencySample, MetricBucket, PodMinute
from forge_jobs.model.processes import (
    Allocation,
    AllocationChange,
    Beat,
    HeldClaim,
    Leadership,
    Pod,
    PodGauges,
    PodLease,
    PodState,
    WorkerState,
)
from forge_jobs.model.queues import (
    QueueChange,
    QueueCounts,
    QueueSettings,
    QueueState,
    RateLimit,
    RateLimitState,
    TokenGrant,
    Wake,
)
from forge_jobs.model.schedules import DueSchedules, Firing, Schedule, ScheduleSpec
from forge_jobs.model.transitions import (
    Delivery,
    Demand,
    Exchange,
    Finalization,
    Handover,
    Revival,
    StaleClaim,
)


class JobStore(Protocol):
    """Jobs: their whole life, and what is told about it."""

    store_id: str
    """Equal for the views of one store; a bundle of different ones is refused."""

    # -- in ----------------------------------------------------------------------------------

    async def enqueue(
        self, requests: Sequence[NewJob], *, connection: object | None = None
    ) -> list[EnqueueOutcome]:
        """Store the requests; when it returns they are durable by the store's own rules.

        All or nothing, in order, so of two requests with one unique key the earlier wins.

        A request whose ``unique`` key is held by an active job of its queue is dropped
        (``keep``: the outcome names the holder) or fails the call (``error``). The check must
        hold against any number of concurrent callers.

        A request whose id is already stored is a repeat: it stores nothing and reports the
        job as its own, not as a duplicate. This must be looked at before the unique key.

        ``after``: the job is blocked until its parents have settled. Parents that have
        already ended settle their edge by a handover at once; parents must exist or be in the
        same call, earlier.

        A job with ``run_at`` or ``delay`` is pending and due then. An unknown queue is created with
        default settings. Wakes whoever waits for the queues of due jobs, after the commit.

        :param connection: store in the caller's open transaction instead: an SQLAlchemy
            Connection, AsyncConnection, Session or AsyncSession of the same database. The jobs
            commit, roll back and wake with it.
        :raises Conflict: an id is stored with another fingerprint (both not empty) or, when
            either is empty, another kind, queue or payload; or a held key in mode ``error``.
            The text names the id or key
        :raises NotFound: a parent does not exist
        :raises InvalidInput: ``connection`` is not of this database, or this store has none
        """
        ...

    # -- claims ------------------------------------------------------------------------------

    async def claim(
        self,
        queue: str,
        worker_ids: Sequence[str],
        limit: int,
        kinds: frozenset[str],
        lease: PodLease,
    ) -> list[ClaimedJob]:
        """Take up to ``limit`` due jobs of ``queue`` and mark them in_progress.

        Lowest priority first, then due time, then id: no due job that could be claimed may
        sort before one that was. Due: pending or failed, not held, ``run_at`` has come,
        not expired. Attempt and token grow by one; the claim's heartbeat starts now.
        Gives nothing when the queue is paused or cooling down, and nothing when ``lease`` has run
        out or its epoch is not the pod's. No job must go to two callers.

        A due job whose kind is not in ``kinds`` is passed over; when no pod with a live lease
        publishes its kind it must be put on hold (``unknown_kind``), so that later claims do
        not meet it again, until a pod that knows the kind registers.

        The first claims carry ``worker_ids``, in order; claims beyond them are held ahead. A
        job with a crash on record is only claimed for a worker id, never ahead.

        :param limit: at least 1, at most 1,000; fewer come back when fewer are due
        """
        ...

    async def finalize(self, finalizations: Sequence[Finalization]) -> list[bool]:
        """End claims. Per item: False when the claim is not the job's current one.

        A False item changes nothing: not the row, not the queue's cool-down, no counter.
        The token of an applied item is kept as ``settled_token``; a repeat with that token
        is True and changes nothing, whatever has become of the job since.

        Applies the transition: status, cause, due time (now + delay), result (replaces an older
        one, also by None), error (stamped with now, appended, the newest 32 stay), the attempt
        (one less when handed back), snooze and crash counts, cool-down of the queue.
        A job that was asked to cancel ends as cancelled (cause cancelled) instead, unless its
        transition is done: a result that arrives after success was reported stands.
        A terminal job frees its unique key, drops what retention does not keep, and hands its
        end over to waiting children.
        """
        ...

    async def exchange(
        self, queue: str, finalizations: Sequence[Finalization], demand: Demand, lease: PodLease
    ) -> Exchange:
        """:meth:`finalize`, then :meth:`claim`, in one round trip where the store can.

        What the finalizations free may be claimed by the same call. A repeat after
        ``Unavailable`` is safe: claims of the lost reply come up as ``Beat.unknown``.

        :param demand: ``limit`` 0 asks for no claim
        """
        ...

    async def record_start(self, claims: Sequence[Claim]) -> list[bool]:
        """Record, before it happens, that a handler starts. Per item: False when the claim is lost.

        Needed only for jobs with a crash on record: only a recorded start counts as a
        further crash. For all others :meth:`heartbeat` brings the news soon enough.
        """
        ...

    async def heartbeat(
        self, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta
    ) -> Beat:
        """Renew the pod's lease and all its claims; bring back what supervisors need.

        A claim that is current is renewed although a rival holds its row's lock, and its start is
        recorded when it carries a worker id. A lost claim changes nothing. A lease that ran
        out, or of another epoch, is not renewed (``lease_held`` False), but claims are. A
        lease must be renewed to now + ``lease_for``. Must never wait for another transaction's
        row lock: a locked row counts as held.
        """
        ...

    async def release(self, claims: Sequence[Claim]) -> list[bool]:
        """Hand unstarted claims back: pending, due as before, attempt not used, cause released.

        Per item as in :meth:`finalize`, repeatable by ``settled_token`` too. A job that was asked
        to cancel becomes cancelled. Wakes the queue.
        """
        ...

    async def stale_claims(self, stale_after: timedelta, limit: int) -> list[StaleClaim]:
        """Claims without a beat for ``stale_after``, the most silent first. Changes nothing."""
        ...

    async def revive(self, revivals: Sequence[Revival], stale_after: timedelta) -> list[bool]:
        """Apply a transition to stale claims. Per item: False when it is not stale any more.

        Staleness and token must be checked again by the write itself. ``settled_token`` is
        not set, so a late result of the old owner is refused. A job that was asked to cancel
        becomes cancelled, whatever its transition.
        """
        ...

    # -- operators ---------------------------------------------------------------------------

    async def cancel(
        self, which: JobFilter, *, cursor: str | None = None, limit: int = 500
    ) -> BulkOutcome:
        """Cancel waiting jobs; ask the owners of running ones (``requested``).

        Refuses what has ended (``finished``). The flag of a running job is durable, reaches its
        owner by wake-up or beat, and never outlives that life: a requeue clears it.

        Visits matching jobs in id order, at most ``limit`` per call; going on with ``cursor``
        ends although every visited job was refused. Ids in ``which.ids`` that do not exist
        are refused as ``not_found``.
        """
        ...

    async def delete(
        self, which: JobFilter, *, cursor: str | None = None, limit: int = 500
    ) -> BulkOutcome:
        """Remove jobs for good. Refuses running ones. Bounded as :meth:`cancel`.

        Children of a deleted job that had not ended are told that it was cancelled.
        """
        ...

    async def requeue(
        self, which: JobFilter, *, cursor: str | None = None, limit: int = 500
    ) -> BulkOutcome:
        """Give failed, dead and cancelled jobs their whole budget again, due now.

        Attempt, crashes and snoozes from zero, cancel flag cleared; the token goes on. Refuses done
        (``finished``), running, and waiting ones. The unique key is checked again: of two
        jobs with one key, one is requeued and the other refused (``key_taken``).
        """
        ...

    async def run_now(
        self, which: JobFilter, *, cursor: str | None = None, limit: int = 500
    ) -> BulkOutcome:
        """Make pending and failed jobs due now; attempts stay. Refuses all others."""
        ...

    async def expire(self, limit: int) -> int:
        """Cancel (cause expired) waiting jobs whose ``expires_at`` has come; how many."""
        ...

    # -- children ----------------------------------------------------------------------------

    async def handovers(self, limit: int) -> list[Handover]:
        """News of ended parents not yet delivered to their children, oldest first."""
        ...

    async def deliver(self, deliveries: Sequence[Delivery]) -> int:
        """Apply news to children, each once; how many were applied. Repeats apply nothing.

        A child whose last edge settles becomes pending, due at its ``run_at`` or now. A cancelled
        child is itself an ended parent. An edge on ``hold`` keeps the child blocked for good.
        """
        ...

    # -- reads -------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> dict[JobId, Job]:
        """The jobs that exist among ``ids``, whole."""
        ...

    async def counts(self, queues: Sequence[str] | None = None) -> dict[str, QueueCounts]:
        """Per queue, every known queue when ``queues`` is None."""
        ...

    async def wait_for_work(self, queues: frozenset[str], at_most: timedelta) -> Wake:
        """Wait until something may have changed, an empty Wake after ``at_most``.

        A hint that arises between two calls must not be lost: the next call returns at once.
        Bound to one caller at a time. Unlike the others this call may be cancelled at any moment.
        """
        ...

    def ring(self, wake: Wake) -> None:
        """Wake this process's own :meth:`wait_for_work`; callable from any thread.

        For callers who committed a transaction that the store did not see end.
        """
        ...

    # -- bookkeeping -------------------------------------------------------------------------

    async def append_events(self, events: Sequence[TimelineEvent]) -> None:
        """Append to the timeline."""
        ...

    async def events(
        self, *, job_id: JobId | None = None, queue: str | None = None, limit: int = 100
    ) -> list[TimelineEvent]:
        """The newest events, newest first."""
        ...

    async def add_latencies(self, host_id: HostId, samples: Sequence[LatencySample]) -> None:
        """Add one pod's histograms to their minutes."""
        ...

    async def metrics(self, queue: str, since: datetime, until: datetime) -> list[MetricBucket]:
        """Minutes of one queue with anything in them, from ``since`` to before ``until``, oldest
        first, summed over pods; the same before and after a roll-up."""
        ...

    async def roll_up(self, limit: int) -> int:
        """Fold per-pod counters and histograms of closed minutes into one row per queue and
        minute, oldest first, at most ``limit`` rows folded; how many. Sums never change."""
        ...

    async def cleanup(self, limit: int) -> int:
        """Remove what retention no longer keeps: finished jobs by age and count, results past
        their own time, events and minutes older than 30 days. At most ``limit`` jobs a call, oldest
        first; how many rows went. A job that ended less than a minute ago stays as a row."""
        ...

    # Last, because the name hides the builtin from the annotations below it.

    async def list(self, which: JobFilter, *, cursor: str | None = None, limit: int = 50) -> Page:
        """Matching jobs, newest id first. Pages neither skip nor repeat jobs that stay.

        :param limit: 1 to 1,000
        :raises InvalidInput: the cursor is not one this method returned
        """
        ...


class ProcStore(Protocol):
    """Pods with leases, slot targets and grants, workers."""

    store_id: str

    async def register(self, pod: Pod, lease_for: timedelta) -> PodLease:
        """Admit a pod, or admit it again after its lease ran out: a new epoch, no grants.

        Frees held jobs whose kind it knows and declares its queues (created with default settings
        when unknown). Wakes the coordinator.
        """
        ...

    async def set_draining(self, lease: PodLease) -> None:
        """The pod takes no new work: its targets count as zero. Wakes the coordinator."""
        ...

    async def unregister(self, lease: PodLease) -> None:
        """Forget the pod and void its grants. No-op for another epoch. Wakes the coordinator."""
        ...

    async def pods(self) -> list[PodState]:
        """Every pod not yet dropped, oldest first; those with a lease that ran out too."""
        ...

    async def workers(self, host_id: HostId | None = None) -> list[WorkerState]:
        """Workers whose start is known, of one pod or all."""
        ...

    async def drop_dead_pods(self, dead_for: timedelta, limit: int) -> list[HostId]:
        """Forget pods whose lease ran out at least ``dead_for`` ago and that hold no claim."""
        ...

    async def allocations(self) -> list[Allocation]:
        """Every queue that a pod with a live lease declares, or that has jobs waiting, by name.

        Grants of a pod whose lease ran out do not appear: they are void.
        """
        ...

    async def allocate(self, changes: Sequence[AllocationChange]) -> list[bool]:
        """Write targets and raise grants. Per item False, and nothing written, when the version has
        moved on, a pod's lease ran out since, a grant would sink, or the sum of grants would
        exceed the queue's ``max_workers`` as stored now.

        An exception to the last: grants that do not rise may exceed a lowered maximum.
        Void grants are removed in the same step. A change that would write what is there
        writes nothing and is True. Wakes beats when anything was written.
        """
        ...

    async def lower_grants(self, lease: PodLease, grants: Mapping[str, int]) -> None:
        """The pod gives slots back: each grant becomes at most the given number. Never raises
        one. Wakes the coordinator when any sank."""
        ...

    async def record_gauges(self, lease: PodLease, minute: datetime, gauges: PodGauges) -> None:
        """The pod's own measurements of one minute."""
        ...

    async def gauges(self, since: datetime, until: datetime) -> list[PodMinute]:
        """Pod minutes in [``since``, ``until``), oldest first."""
        ...


class ConfigStore(Protocol):
    """Queue settings, pauses, cool-downs, rate limits."""

    store_id: str

    async def ensure_queue(self, name: str, settings: QueueSettings) -> QueueState:
        """Declare a queue from code: settings an operator has set stay as they are."""
        ...

    async def set_queue(self, name: str, change: QueueChange) -> QueueState:
        """An operator's edit; creates the queue. Wakes beats and the coordinator."""
        ...

    async def set_paused(self, name: str, paused: bool) -> QueueState:
        """Pause or resume: running jobs finish, nothing new is claimed. Wakes beats.

        :raises NotFound: no such queue
        """
        ...

    async def clear_cooldown(self, name: str) -> QueueState:
        """End a cool-down and forget its level.

        :raises NotFound: no such queue
        """
        ...

    async def queues(self) -> list[QueueState]:
        """Every known queue, by name."""
        ...

    async def ensure_rate_limit(self, scope: str, limit: RateLimit) -> None:
        """Declare a bucket from code; one that an operator has set stays as it is."""
        ...

    async def set_rate_limit(self, scope: str, limit: RateLimit) -> None:
        """An operator's edit. Tokens already taken stay taken."""
        ...

    async def rate_limits(self) -> list[RateLimitState]:
        """Every bucket, by scope."""
        ...

    async def take_tokens(self, scope: str, count: int) -> TokenGrant:
        """Take ``count`` tokens, or none.

        Must be exact for any number of concurrent callers, and must not stay short
        of tokens for longer than the bucket's period after the store's clock stepped back.

        :raises NotFound: no such bucket
        :raises InvalidInput: ``count`` below 1 or above the capacity
        """
        ...

    async def drain_tokens(self, scope: str) -> None:
        """Empty the bucket: the upstream said that the budget is used up.

        :raises NotFound: no such bucket
        """
        ...


class CronStore(Protocol):
    """The leader lease and schedules."""

    store_id: str

    async def lead(self, host_id: HostId, lease_for: timedelta) -> Leadership:
        """Take the leader lease when it is free or has run out, renew it when held, and say how
        it stands. The term grows with every change of holder, also back to an earlier one and
        also when the old holder's lease simply ran out and it takes it again."""
        ...

    async def resign(self, host_id: HostId, term: int) -> None:
        """Give the lease up; no-op for another holder or term. Wakes coordinators elsewhere."""
        ...

    async def leader(self) -> Leadership | None:
        """The lease as it stands; None before anyone led."""
        ...

    async def now(self) -> datetime:
        """The store's time."""
        ...

    async def ensure_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        """Declare a schedule from code. One that an operator edited or deleted stays as it is;
        one that is there with the same spec too, its next occurrence included."""
        ...

    async def put_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        """An operator's edit: create or replace; un-pauses nothing, clears ``error``."""
        ...

    async def pause_schedule(self, name: str, paused: bool, next_at: datetime | None) -> Schedule:
        """Pause (``next_at`` is ignored), or resume with the given next occurrence.

        :raises NotFound: no such schedule
        """
        ...

    async def delete_schedule(self, name: str) -> None:
        """Remove it; a later :meth:`ensure_schedule` does not bring it back, an edit does.

        :raises NotFound: no such schedule
        """
        ...

    async def schedules(self) -> list[Schedule]:
        """All that are not deleted, by name."""
        ...

    async def get_schedule(self, name: str) -> Schedule | None:
        """One schedule, None when there is none or it was deleted."""
        ...

    async def due_schedules(self, limit: int) -> DueSchedules:
        """Schedules whose next occurrence has come."""
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        """Advance each schedule and enqueue its jobs, in one step per item. Per item False, and
        nothing written, when the version has moved on.

        Jobs go in as by ``JobStore.enqueue``: a duplicate of a unique key counts as skipped,
        a repeat of an id as neither.
        """
        ...

    async def trigger(self, name: str, job: NewJob) -> EnqueueOutcome:
        """Enqueue a job of the schedule out of turn; the next occurrence stays. Counts as
        fired or skipped like any other.

        :raises NotFound: no such schedule
        """
        ...


class Storage:
    """The four views of one store.

    :param reopen: opens an independent bundle on the same store, for another event loop
    :param close: ends the bundle; calls in flight finish first
    :param name: the backend and what of its address may be shown, without credentials
    :param durability: one line for people: what a commit survives, and what it does not
    :raises InvalidInput: the views belong to different stores
    """

    def __init__(
        self,
        jobs: JobStore,
        procs: ProcStore,
        config: ConfigStore,
        cron: CronStore,
        *,
        reopen: Callable[[], Awaitable["Storage"]],
        close: Callable[[], Awaitable[None]],
        name: str,
        durability: str = "",
    ) -> None:
        if len({view.store_id for view in (jobs, procs, config, cron)}) != 1:
            raise InvalidInput(
                "storage",
                "bundles views of different stores",
                "open all four with one open_storage(url)",
            )
        self.jobs = jobs
        self.procs = procs
        self.config = config
        self.cron = cron
        self.name = name
        self.durability = durability
        self._reopen = reopen
        self._close = close

    async def reopen(self) -> "Storage":
        """An independent bundle on the same store, for use in another event loop."""
        return await self._reopen()

    async def aclose(self) -> None:
        """Close every connection. Closing twice is fine."""
        await self._close()

    async def __aenter__(self) -> "Storage":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Storage({self.name})"
