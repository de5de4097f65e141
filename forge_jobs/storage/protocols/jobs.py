"""The job store. The rules for every method are at the top of the package."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from forge_jobs.model.filters import MOST_COUNTED, Count, JobFilter, JobOrder, Page
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim, EnqueueOutcome, Job, NewJob
from forge_jobs.model.processes import Beat, HeldClaim, PodLease
from forge_jobs.model.queues import Wake
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
from forge_jobs.storage.protocols.letters import LetterStore
from forge_jobs.storage.protocols.looking import LookedAtJobs
from forge_jobs.storage.protocols.operators import OperatedStore
from forge_jobs.storage.protocols.progress import ProgressStore
from forge_jobs.storage.protocols.sweeps import SweptStore


class JobStore(
    OperatedStore,
    BookkeepingStore,
    ProgressStore,
    LetterStore,
    SweptStore,
    LookedAtJobs,
    Protocol,
):
    """Jobs from enqueue to removal, with their events and metrics."""

    store_id: str
    """Equal for the views of one store. ``Storage`` refuses views of different stores."""

    enqueue_at_once: int
    """How many jobs one :meth:`enqueue` should store: at least 200."""

    exchange_at_once: int
    """How many claims one :meth:`exchange` should end, and how many it should make: at least 200.

    A larger call is accepted too, and may be several steps, one after the other.
    """

    # -- in ----------------------------------------------------------------------------------

    async def enqueue(
        self, requests: Sequence[NewJob], *, connection: object | None = None
    ) -> list[EnqueueOutcome]:
        """Store the requests. When the call returns they are durable by the store's own rules.

        All or nothing, in order, so of two requests with one unique key the earlier wins. Only
        where the queues of one call lie on different servers is the call all or nothing per queue.
        Every queue's part must be found acceptable before any is stored, so a refusal leaves some
        of the call stored only when another caller comes in between. A call with over 500 parents
        that dies may leave stored jobs unlinked, which a repeat links, or :meth:`sweep`.

        ``unique``: what becomes of a request whose key an active job of the same queue holds. All
        of it must hold against any number of concurrent callers.

        - ``keep``, ``cooldown``: dropped. The outcome names the holder
        - ``error``: the call fails
        - ``replace``, ``debounce``, ``keep-last``: a waiting job gets the content, is on hold no
          more, and loses checkpoint and steps, which are of the content before. The outcome names
          that job. While the holder runs, ``replace`` drops the request. In the other two modes
          the request becomes the holder's follow-up: a job that is blocked until the holder has
          ended, in whichever way. The next requests change that follow-up

        A holder that waits and has expired first ends as :meth:`expire` ends one, in the same step.
        The request is decided without that holder. A call that fails ends none. A holder that the
        same call stored or changed stays the holder, also when its request came too late.

        Without an active holder the request is stored, in mode ``cooldown`` unless a request in
        that mode was stored less than its ``window`` ago, whatever has become of its job. Only a
        stored request opens a window. A changed job is due as the request asks, in ``debounce`` at
        most ``at_most`` after the job's enqueue, and keeps its place where both are due.

        A request whose content another job took is a repeat for ``REPLACEMENT_KEPT``. A request
        whose id is already stored is a repeat: nothing is stored, and the outcome reports
        the job as the caller's own, not as a duplicate. A store must look for repeats before
        looking at unique keys.

        ``after``: the job is blocked until the parents have settled. Parents that have already
        ended settle their edge by a handover at once. Parents must exist or be in the same call,
        earlier.

        A job with ``run_at`` or ``delay`` is pending and due then. An unknown queue is created with
        default settings. Wakes the waiters of the queues of due jobs, after the commit. What is
        ``struck`` waits on hold or ends at once, see ``Struck``.

        :param connection: store in the caller's open transaction instead: an SQLAlchemy Connection,
            AsyncConnection, Session or AsyncSession of the same database, or a connection of the
            store's own driver in a transaction. The jobs commit, roll back and wake with it. After
            ``Conflict``, ``NotFound`` and ``InvalidInput`` it is as before. Else roll back
        :raises Conflict: an id is stored with another fingerprint (both not empty) or, when either
            is empty, another kind, queue or payload. Or a key in mode ``error`` is held. The text
            names the id or key
        :raises NotFound: a parent does not exist
        :raises Locked: another caller's open transaction held a key or id of the call, or the row
            of a new queue, for longer than others should be kept waiting
        :raises InvalidInput: ``connection`` is not of this database, or this store has none
        """
        ...

    # -- claims ------------------------------------------------------------------------------

    async def finalize(
        self, finalizations: Sequence[Finalization], *, connection: object | None = None
    ) -> Sequence[bool | None]:
        """End claims. Per item: True when the end is stored, False when the claim is not the job's
        current one, None when the end has to be sent again later.

        A claim is the job's current one when its queue, token and pod are those of the last claim.
        That holds for every call that names a claim. A False item changes nothing: not the row, not
        the queue's cool-down, no counter.

        None: a caller's open transaction holds a row that this end needs, for which the call must
        not wait. Nothing has changed, and nothing is refused.

        The token of an applied item is kept as ``settled_token``. A repeat with that token is True
        and changes nothing, in any later status of the job. Only the last such token is kept, and
        only with the job: a repeat is False once a newer claim has ended or an operator has deleted
        the job. Until the next claim the pod of the repeat is compared too, and a repeat of another
        pod is False.

        Applies the transition: status, cause, due time (now + delay, and where the delay is None
        the due time of the claim, or now when that lies ahead), result (replaces an older one, also
        by None), error (stamped with now, appended, the newest 32 stay), the attempt (one less when
        handed back), snooze and crash counts, cool-down of the queue.

        Of two cool-downs the later end counts, and the higher level. A stored level counts until
        the cool-down has been over for the queue's ``quiet`` time. Then the given level replaces
        the stored one, also by a lower one.

        A job that was asked to cancel ends as cancelled (cause cancelled) instead, unless the
        transition is done: a result that arrives after success was reported stands. The rest of the
        transition stands too: the error is appended, attempt, snoozes and crashes count as given,
        the cool-down applies. Only the result is not stored. A terminal job frees its unique key,
        drops what retention does not keep, and hands its end over to waiting children. A dead job
        leaves a letter where its queue asks for one: see :class:`LetterStore`.

        With ``again`` the job begins a new occurrence in the same step: payload and metadata are
        the given ones, the whole budget is there again (attempt, crashes and snoozes are zero), and
        checkpoint and steps are gone. Id, unique key, children, errors, tags, priority and
        ``expires_at`` stay. A job that was asked to cancel begins none. A repeat of the request
        that stored the job stays a repeat, whatever the payload is by now.

        :param connection: end the claims in the caller's open transaction instead, as
            :meth:`enqueue` does. Until the transaction has ended the jobs are locked: the reaper
            does not revive them, and beats count their claims as held. After a rollback the claims
            are as they were
        :raises InvalidInput: ``connection`` is not of this database, or this store has none
        """
        ...

    async def exchange(
        self, queue: str, finalizations: Sequence[Finalization], demand: Demand, lease: PodLease
    ) -> Exchange:
        """End claims as :meth:`finalize` does, then claim due jobs of ``queue``.

        In one round trip where the store can. The same call may claim what the finalizations free,
        and a finalization that is answered None must not prevent the claims. A repeat after
        ``Unavailable`` is safe: claims of the lost reply come up as ``Beat.unknown``.

        Takes up to ``demand.limit`` due jobs and marks them in_progress, the lowest priority first,
        then by due time, then by id: no due job that could be claimed may sort before one that was.
        Due: pending or failed, not held, ``run_at`` has come, not expired. The attempt grows by one
        and the claim's heartbeat starts now. The token becomes the store's time in microseconds,
        and at least one more than the job's last. From ``enqueued_at`` on a job's token never goes
        back, and a store that lost its last writes gives no token twice while its clock goes on.

        Claims nothing when the queue is paused or cooling down, and nothing when ``lease`` has run
        out, the lease's epoch is not the pod's, or the pod does not declare the queue. No job must
        go to two callers.

        A due job whose kind is not in ``demand.kinds`` is skipped. When no pod with a live lease
        publishes the kind, the job must be put on hold (``unknown_kind``), so that later claims do
        not meet it again, until a pod that knows the kind registers. A store may use the published
        kinds of up to a second ago. A job that has expired may be put on hold as well: it is
        cancelled all the same. For jobs beyond a limit see ``ConfigStore.ensure_limits``.

        The number of jobs that a claim reads must be bounded by its claims and its kinds, not by
        the jobs that it may not take. Payloads of one call are ``demand.max_bytes`` together at
        most, or those of a single job that is larger.

        The first claims carry ``demand.worker_ids``, in order. Claims beyond them are held ahead. A
        job with a crash on record is only claimed for a worker id, never ahead.

        A claim records no start, also not one for a worker: ``started_at`` is None until a beat or
        :meth:`record_start` records the start.

        A job whose record cannot be read must not fail the call: the job is put on hold
        (``unreadable``), and the others are claimed.

        :param demand: ``limit`` at most 1,000, and 0 asks for no claim. Fewer jobs come back when
            fewer are due
        """
        ...

    async def record_start(self, claims: Sequence[Claim]) -> list[bool]:
        """Record that a handler is about to start. Per item: False when the claim is lost.

        Needed only for jobs with a crash on record: only a recorded start counts as a further
        crash. For all other jobs :meth:`heartbeat` records the start soon enough.
        """
        ...

    async def heartbeat(
        self, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta
    ) -> Beat:
        """Renew the pod's lease and all its claims, and return what supervisors need.

        A claim belongs to the pod that made it. A claim that another pod lists is reported lost to
        that pod and is not renewed, with any token.

        A current claim is renewed, and its start is recorded when the claim carries a worker id. A
        lost claim changes nothing. A lease that ran out, or of another epoch, is not renewed
        (``lease_held`` False), but claims are. A lease must be renewed to now + ``lease_for``.

        Must never wait for a caller's open transaction. A claim whose job such a transaction has
        locked counts as held, is not revived while locked, and is renewed by the first beat after.
        Beats count meanwhile: once unlocked, the claim is as stale as the last of them.
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
        """Return claims without a beat for ``stale_after``, the most silent first. Changes nothing.

        Must return the time of each clock used for the comparison, also when no claim is stale: by
        these times a reaper notices that a clock of the store has stepped.

        :param limit: how many claims come back at most
        """
        ...

    async def revive(self, revivals: Sequence[Revival], stale_after: timedelta) -> list[bool]:
        """Apply a transition to stale claims. Per item: False when the claim is not stale any more.

        The write itself must check staleness and token again. A job that another transaction has
        locked is in use, so not stale. ``settled_token`` is not set, so a late result of the old
        owner is refused. A job that was asked to cancel becomes cancelled under any transition.
        """
        ...

    # -- what time does ----------------------------------------------------------------------

    async def bring_back_jobs(self, limit: int) -> int:
        """Make jobs due whose time lies ahead only because the store's clock was set back.

        Means jobs that were due when they became pending, of each queue and priority the earliest
        first, in their order. Wakes their queues. Jobs that a limit or a strike holds stay on hold,
        and do not wait once they are taken off. Turns of keys with a share come in their order.
        Jobs that wait for a requested time, for a retry or for the end of a snooze go on waiting.
        So do jobs with a turn at a rate limit no further away than ``LONGEST_TURN``, and a job less
        than a second ahead may. Not one atomic step.

        :param limit: how many jobs become due at most
        :returns: how many jobs became due
        """
        ...

    async def expire(self, limit: int) -> int:
        """Cancel waiting jobs whose ``expires_at`` has come (cause expired).

        Their children get a handover as for any other end.

        :param limit: how many jobs to cancel at most
        :returns: how many jobs were cancelled
        """
        ...

    # -- children ----------------------------------------------------------------------------

    async def handovers(self, limit: int) -> list[Handover]:
        """Return handovers of ended parents not yet delivered to children, oldest first. Changes
        nothing.

        A handover to a child that has ended or gone since may be among them, and one to a removed
        job of the same id. Delivering such a handover applies nothing.

        :param limit: how many handovers come back at most
        """
        ...

    async def deliver(self, deliveries: Sequence[Delivery]) -> int:
        """Apply handovers to children in this order, each once. Repeats apply nothing.

        A child whose last edge settles becomes pending, due at the child's ``run_at`` or now. A
        cancelled child is itself an ended parent. An edge on ``hold`` keeps the child blocked until
        :meth:`release_held`, or until the parent has been requeued and ended again: each end of a
        parent must make a handover for every child whose edge to that parent has not settled.

        A handover to a child that no longer waits counts only when that child is requeued.

        :returns: how many handovers were applied
        """
        ...

    # -- reads -------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> dict[JobId, Job]:
        """Return the jobs that exist among ``ids``, whole and in no order.

        A job whose record cannot be read is returned with the fields that can.

        :raises PartlyUnavailable: part of the store is silent. The error has the jobs of the rest
        """
        ...

    async def parents(self, ids: Sequence[JobId]) -> dict[JobId, tuple[JobId, ...]]:
        """Return the jobs that each of ``ids`` was enqueued after, in id order, settled or not.

        Without jobs that come after none, or are not stored. A parent may have been removed.

        :raises PartlyUnavailable: part of the store is silent. The error has the rest
        """
        ...

    async def count(
        self, which: JobFilter, *, at_most: int = MOST_COUNTED, cursor: str | None = None
    ) -> Count:
        """Count matching jobs, up to ``at_most``.

        The count is exact, or says that more match (``is_more``). A filter that no index answers is
        counted by the same bounded walk as :meth:`list`, newest id first. A call that reaches the
        bound says so (``looked_back_to``), and another one with that as ``cursor`` counts the rest.
        Queues that are silent are left out and named (``silent``).

        :param at_most: 1 to 1,000,000
        :param cursor: count only jobs with lower ids
        :raises InvalidInput: ``at_most`` is out of range, or the cursor no id
        """
        ...

    async def wait_for_work(
        self, queues: frozenset[str], at_most: timedelta, waiter: object | None = None
    ) -> Wake:
        """Wait until something may have changed, an empty Wake after ``at_most``.

        A wake-up that arises between two calls must not be lost: the next call returns at once.
        Every waiter must get every wake-up: no waiter takes one from another. The first call of a
        new waiter may return at once, since anything may have changed before. Bound to one caller
        at a time per waiter. Unlike the other calls this one may be cancelled at any moment.

        :param waiter: identifies the waiter, any object that can be weakly referenced. The waiter's
            wake-ups are forgotten together with the object. None: the bundle itself, for a program
            with a single waiter
        """
        ...

    def wake(self, wake: Wake) -> None:
        """Wake this process's own :meth:`wait_for_work`. Callable from any thread.

        For callers who committed a transaction that the store did not see end.
        """
        ...

    # Last, because the method's name hides the builtin from the annotations that follow.

    async def list(
        self,
        which: JobFilter,
        *,
        order: JobOrder = "id",
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Return matching jobs in the order of :data:`~forge_jobs.model.filters.JobOrder`.

        By ``id`` the newest come first. By ``finished`` only jobs that have ended come, the last to
        end first. By ``due`` only pending and failed jobs that are not on hold come, the earliest
        due time first. Of one time the order of ids decides, in the same direction.

        Pages neither skip nor repeat jobs that stay where they are in the order.

        A call must look at a bounded number of jobs. A call that reaches the bound reports the last
        job looked at (``looked_back_to``), and the page's ``cursor`` goes on from there. Queues
        that are silent are left out and named (``silent``).

        :param cursor: of the page before, in the same order. None for the first page
        :param limit: 1 to 1,000
        :raises InvalidInput: the cursor is not one this method returned in this order
        """
        ...
