"""The job store. The rules for every method are at the top of the package."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from forge_jobs.model.filters import JobFilter, Page
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim, ClaimedJob, EnqueueOutcome, Job, NewJob
from forge_jobs.model.processes import Beat, HeldClaim, PodLease
from forge_jobs.model.queues import QueueCounts, Wake
from forge_jobs.model.transitions import (
    Delivery,
    Demand,
    Exchange,
    Finalization,
    Handover,
    Revival,
    StaleClaims,
)
from forge_jobs.storage.protocols.bookkeeping import BookkeepingStore
from forge_jobs.storage.protocols.operators import OperatedStore
from forge_jobs.storage.protocols.sweeps import SweptStore


class JobStore(OperatedStore, BookkeepingStore, SweptStore, Protocol):
    """Jobs from enqueue to removal, with their events and metrics."""

    store_id: str
    """Equal for the views of one store; a bundle of different ones is refused."""

    enqueue_at_once: int
    """How many jobs one :meth:`enqueue` should bring: at least 500."""

    exchange_at_once: int
    """How many claims one :meth:`exchange` should end, and as many make: at least 500. More are
    taken too, and may be several steps, one after the other."""

    # -- in ----------------------------------------------------------------------------------

    async def enqueue(
        self, requests: Sequence[NewJob], *, connection: object | None = None
    ) -> list[EnqueueOutcome]:
        """Store the requests; when it returns they are durable by the store's own rules.

        All or nothing, in order, so of two requests with one unique key the earlier wins.
        Only where the queues of one call lie on different servers is it all or nothing per queue:
        every queue's part must be found acceptable before any is stored, so a refusal leaves some
        of the call stored only when another caller comes in between.

        A request whose ``unique`` key is held by an active job of its queue is dropped
        (``keep``: the outcome names the holder) or fails the call (``error``). The check must
        hold against any number of concurrent callers.

        A request whose id is already stored is a repeat: it stores nothing and reports the
        job as its own, not as a duplicate. This must be looked at before the unique key.

        ``after``: the job is blocked until its parents have settled. Parents that have
        already ended settle their edge by a handover at once; parents must exist or be in the
        same call, earlier.

        A job with ``run_at`` or ``delay`` is pending and due then. An unknown queue is created
        with default settings. Wakes whoever waits for the queues of due jobs, after the commit.

        :param connection: store in the caller's open transaction instead: an SQLAlchemy
            Connection, AsyncConnection, Session or AsyncSession of the same database, or a
            connection of the store's own driver inside a transaction. The jobs commit, roll back
            and wake with it. A call that fails leaves the transaction as it was, and usable.
        :raises Conflict: an id is stored with another fingerprint (both not empty) or, when
            either is empty, another kind, queue or payload; or a held key in mode ``error``.
            The text names the id or key
        :raises NotFound: a parent does not exist
        :raises Locked: somebody's open transaction held a key or id of the call, or began its
            queue, for longer than others should be kept waiting
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
        not expired. The attempt grows by one; the claim's heartbeat starts now. The token becomes
        the store's time in microseconds, and at least one more than it was: from ``enqueued_at`` on
        it never goes back, and a store that lost its last writes gives no token twice while its
        clock goes on.

        Gives nothing when the queue is paused or cooling down, and nothing when ``lease`` has run
        out, its epoch is not the pod's, or the pod does not declare the queue. No job must go to
        two callers.

        A due job whose kind is not in ``kinds`` is passed over. When no pod with a live lease
        publishes its kind it must be put on hold (``unknown_kind``), so that later claims do
        not meet it again, until a pod that knows the kind registers. What pods published up to a
        second ago may be taken for what they publish now. A job that has expired may be put on
        hold as well: it is cancelled all the same.

        The number of jobs that a claim reads must be bounded by its claims and its kinds, not by
        the jobs that it may not take. Payloads of one claim are ``CLAIM_BYTES`` together at most,
        or those of a single job that is larger.

        The first claims carry ``worker_ids``, in order; claims beyond them are held ahead. A
        job with a crash on record is only claimed for a worker id, never ahead.

        A claim records no start, also not one for a worker: ``started_at`` is None until a
        beat or :meth:`record_start` brings the news.

        A job whose record cannot be read must not fail the call: it is put on hold
        (``unreadable``), and the others are claimed.

        :param limit: at least 1, at most 1,000; fewer come back when fewer are due
        """
        ...

    async def finalize(
        self, finalizations: Sequence[Finalization], *, connection: object | None = None
    ) -> Sequence[bool | None]:
        """End claims. Per item: True when the end is stored, False when the claim is not the job's
        current one, None when the end has to be sent again later.

        A claim is the job's current one when its queue, token and pod are those of the last claim.
        That holds for every call that names a claim. A False item changes nothing: not the row, not
        the queue's cool-down, no counter.

        None: somebody's open transaction holds a row that this end needs, for which the call must
        not wait. Nothing has changed, and nothing is refused.

        The token of an applied item is kept as ``settled_token``; a repeat with that token
        is True and changes nothing, whatever has become of the job since. Only the last such
        token is kept, and only with the job: a repeat is False once a newer claim has ended or
        an operator has deleted the job. Until the next claim the pod of the repeat is compared
        too, and a repeat of another pod is False.

        Applies the transition: status, cause, due time (now + delay; where the delay is None the
        one that the job was claimed with, or now when that lies ahead), result (replaces an older
        one, also by None), error (stamped with now, appended, the newest 32 stay), the attempt
        (one less when handed back), snooze and crash counts, cool-down of the queue.

        Of two cool-downs the later end counts, and the higher level: what is stored counts
        until its pause has been over for the queue's ``quiet`` time, then the given level replaces
        it, also by a lower one.

        A job that was asked to cancel ends as cancelled (cause cancelled) instead, unless its
        transition is done: a result that arrives after success was reported stands. The rest
        of the transition stands too: its error is appended, attempt, snoozes and crashes count
        as it says, its cool-down applies. Only its result is not stored.
        A terminal job frees its unique key, drops what retention does not keep, and hands its
        end over to waiting children.

        :param connection: end them in the caller's open transaction instead, as :meth:`enqueue`
            does. Until it has ended the jobs are locked: nobody revives them, and beats count
            their claims as held. After a rollback the claims are as they were
        :raises InvalidInput: ``connection`` is not of this database, or this store has none
        """
        ...

    async def exchange(
        self, queue: str, finalizations: Sequence[Finalization], demand: Demand, lease: PodLease
    ) -> Exchange:
        """:meth:`finalize`, then :meth:`claim`, in one round trip where the store can.

        What the finalizations free may be claimed by the same call, and one that is answered None
        must not keep it from claiming. A repeat after ``Unavailable`` is safe: claims of the lost
        reply come up as ``Beat.unknown``.

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

        A claim belongs to the pod that made it: one that another pod lists is lost to it, and
        is not renewed by it, whatever its token.

        A claim that is current is renewed, and its start is recorded when it carries a worker
        id. A lost claim changes nothing. A lease that ran out, or of another epoch, is not
        renewed (``lease_held`` False), but claims are. A lease must be renewed to now +
        ``lease_for``.

        Must never wait for a caller's open transaction: a claim whose job such a one has
        locked counts as held, is not revived while it is locked, and is renewed by the first
        beat after. Beats count meanwhile: once unlocked it is as stale as the last of them.
        """
        ...

    async def release(self, claims: Sequence[Claim]) -> Sequence[bool | None]:
        """Hand unstarted claims back.

        The jobs are pending again with the cause released, due as before (delay None), and their
        attempt is not used. A job that was asked to cancel becomes cancelled. Per item as in
        :meth:`finalize`, repeatable by ``settled_token`` too. Wakes the queue.
        """
        ...

    async def stale_claims(self, stale_after: timedelta, limit: int) -> StaleClaims:
        """Claims without a beat for ``stale_after``, the most silent first. Changes nothing.

        Must say the time of each clock with which it compared, also when no claim is stale: a
        reaper knows by that when a clock of the store has stepped.

        :param limit: how many claims come back at most
        """
        ...

    async def revive(self, revivals: Sequence[Revival], stale_after: timedelta) -> list[bool]:
        """Apply a transition to stale claims. Per item: False when it is not stale any more.

        Staleness and token must be checked again by the write itself. A job that another
        transaction has locked is in use, so not stale. ``settled_token`` is
        not set, so a late result of the old owner is refused. A job that was asked to cancel
        becomes cancelled, whatever its transition.
        """
        ...

    # -- what time does ----------------------------------------------------------------------

    async def bring_back_jobs(self, limit: int) -> int:
        """Make jobs due whose time lies ahead only because the store's clock was set back.

        Means jobs that were due when they became pending. At most ``limit``, of each queue and
        priority the earliest first, in their order; how many. Wakes their queues.

        Jobs that waited for a time that was asked for, for a retry or for the end of a snooze,
        go on waiting. So do those with a turn at a rate limit no further away than
        ``LONGEST_TURN``, and a job less than a second ahead may. Not one atomic step.
        """
        ...

    async def expire(self, limit: int) -> int:
        """Cancel waiting jobs whose ``expires_at`` has come (cause expired).

        At most ``limit``; how many. Their children hear of it as of any other end.
        """
        ...

    # -- children ----------------------------------------------------------------------------

    async def handovers(self, limit: int) -> list[Handover]:
        """News of ended parents not yet delivered to their children, oldest first, at most
        ``limit``. Changes nothing.

        News for a child that has ended or gone since may be among them; delivering it applies
        nothing.
        """
        ...

    async def deliver(self, deliveries: Sequence[Delivery]) -> int:
        """Apply news to children, each once; how many were applied. Repeats apply nothing.

        A child whose last edge settles becomes pending, due at its ``run_at`` or now. A cancelled
        child is itself an ended parent. An edge on ``hold`` keeps the child blocked, until
        :meth:`release_held`, or until its parent has been requeued and ended again: each end of a
        parent must be news for every child whose edge to it has not settled.

        News for a child that has ended itself count only when that child is requeued.
        """
        ...

    # -- reads -------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> dict[JobId, Job]:
        """The jobs that exist among ``ids``, whole.

        A job whose record cannot be read is among them, with the fields that can.

        :raises PartlyUnavailable: part of the store is silent; the error has the jobs of the rest
        """
        ...

    async def counts(self, queues: Sequence[str] | None = None) -> dict[str, QueueCounts]:
        """How many jobs of each status each queue has; every known queue when ``queues`` is None.

        A queue that was named and is not known has none. Every key of ``by_status`` is there.
        """
        ...

    async def wait_for_work(
        self, queues: frozenset[str], at_most: timedelta, waiter: object | None = None
    ) -> Wake:
        """Wait until something may have changed, an empty Wake after ``at_most``.

        A hint that arises between two calls must not be lost: the next call returns at once.
        Every waiter must get every hint: what one takes is not taken from another. The first
        call of a new waiter may return at once, since anything may have changed before.
        Bound to one caller at a time per waiter. Unlike the others this call may be cancelled at
        any moment.

        :param waiter: who waits, any object that can be weakly referenced; its hints are
            forgotten with it. None: the bundle itself, for a program with a single waiter
        """
        ...

    def ring(self, wake: Wake) -> None:
        """Wake this process's own :meth:`wait_for_work`; callable from any thread.

        For callers who committed a transaction that the store did not see end.
        """
        ...

    # Last, because the name hides the builtin from the annotations below it.

    async def list(self, which: JobFilter, *, cursor: str | None = None, limit: int = 50) -> Page:
        """Matching jobs, newest id first. Pages neither skip nor repeat jobs that stay.

        A call must look at a bounded number of jobs. One that reaches the bound says how far it
        came (``looked_back_to``), and its ``cursor`` goes on from there. Queues that are silent are
        left out and named (``silent``).

        :param cursor: of the page before; None for the first page
        :param limit: 1 to 1,000
        :raises InvalidInput: the cursor is not one this method returned
        """
        ...
