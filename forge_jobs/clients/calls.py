"""Enqueue and look up from anywhere, without running anything."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar, Unpack

from forge_jobs import stop_points
from forge_jobs.clients.around import all_options_of, enqueued_within
from forge_jobs.clients.bulk import BulkTotals, in_batches
from forge_jobs.clients.forecasts import explained
from forge_jobs.clients.results import (
    AwaitedJobs,
    decrypted_job,
    with_type,
    with_types,
)
from forge_jobs.clients.routes import NotLookedUp, PublishedRoutes
from forge_jobs.clients.strikes import Strikes, are_struck, with_strikes
from forge_jobs.clients.striking.calls import StrikingCalls
from forge_jobs.clients.watching import Watches
from forge_jobs.clock import Clock, SystemClock
from forge_jobs.errors import NotFound, StorageError
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.preparing import (
    check_request,
    check_requests,
    prepare,
    prepare_many,
)
from forge_jobs.handlers.registry import HandlerRegistry, check_registry
from forge_jobs.handlers.requests import CheckedJson, EnqueueOptions, EnqueueRequest
from forge_jobs.handlers.routing import Elsewhere, Router, checked_router
from forge_jobs.handlers.spreading import spread_over
from forge_jobs.home_loop import HomeLoop
from forge_jobs.lanes import MAX_ITEMS, Lane
from forge_jobs.model.filters import BulkOutcome, JobFilter
from forge_jobs.model.ids import check_job_id
from forge_jobs.model.jobs import EnqueueOutcome, Job, NewJob
from forge_jobs.policy.admission import Explanation
from forge_jobs.privacy.encryption import Encryption, check_encryption
from forge_jobs.storage.batches import check_batch
from forge_jobs.storage.protocols import JobStore, Storage, check_storage

_CLOSED = "this client is closed; make another JobClient"
_ROW_BYTES = 400
"""The size of a stored job beside its payload, roughly: bounds the size of one store call."""

R = TypeVar("R")
_Unit = tuple[NewJob, ...]


class ClientCalls(StrikingCalls):
    """The methods of every client, in the event loop of its first use. See ``JobClient``."""

    def __init__(
        self,
        storage: Storage,
        handlers: HandlerRegistry | None = None,
        *,
        router: Router | None = None,
        encryption: Encryption | None = None,
        repeat_for: timedelta | float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        self.storage = check_storage(storage)
        self._handlers = None if handlers is None else check_registry(handlers)
        self._router = None if router is None else checked_router(router)
        self._encryption = check_encryption(encryption)
        if self._encryption is None and self._handlers is not None:
            self._encryption = self._handlers.encryption
        self._repeat_for = check_duration("repeat_for", repeat_for)
        self._clock = clock or SystemClock()
        self._routes = PublishedRoutes(
            storage.procs.routes, handlers, repeat_for=self._repeat_for, clock=self._clock
        )
        self.known_strikes = Strikes(storage.config)
        # Two where no call waits for a disk: while one's call is under way, callers of the other
        # prepare theirs. Where calls do wait, one for all of them is worth more.
        self._plain = [self._lane(None) for _ in range(1 if storage.is_durable else 2)]
        # Apart from the others: a key held by an open transaction stalls only those
        # who ask for keys. Sorted, so that two processes take their keys in one order.
        self._keyed = self._lane(_least_key)
        # In a store of several parts each queue has its own lane, so that none waits for another's
        # part.
        self._of_queues: dict[str, Lane[_Unit, list[EnqueueOutcome]]] = {}
        self._awaited = AwaitedJobs(
            storage.jobs,
            repeat_for=self._repeat_for,
            clock=self._clock,
            is_parted=storage.is_parted,
        )
        self._watches = Watches(storage.jobs, is_parted=storage.is_parted)
        self._home = HomeLoop("this client")
        self._is_closed = False

    def _lane(self, sort_key: Callable[[_Unit], Any] | None) -> Lane[_Unit, list[EnqueueOutcome]]:
        return Lane(
            self._store,
            size_of=_size_of,
            count_of=len,
            max_items=min(MAX_ITEMS, self.storage.jobs.enqueue_at_once),
            sort_key=sort_key,
            repeat_for=self._repeat_for,
            clock=self._clock,
        )

    # -- in ----------------------------------------------------------------------------------

    async def enqueue(
        self,
        request: EnqueueRequest[R],
        *,
        connection: object | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> EnqueueOutcome[R]:
        """Store one job. At the return the job is durable by the store's own rules.

        When the wait is cancelled, the job may be stored nevertheless. Repeats while the store is
        unavailable store one job: the id is chosen before.

        :param connection: an SQLAlchemy connection or session of the same database, or one of
            asyncpg's own: the job commits and rolls back with that transaction
        :param options: put on the request, see ``EnqueueOptions``
        :raises InvalidInput: a value is wrong. Names the option and the fix
        :raises Conflict: the id is stored with other content, or the key of a
            ``Unique(mode="error")`` is held
        :raises NotFound: a job named in ``after`` does not exist
        :raises Unavailable: the store could not be reached for ``repeat_for``
        :raises WrongEventLoop: this client belongs to another event loop
        """
        check_request(request)
        if options:
            request = request.options(**options)
        self._home.here()
        if (around := all_options_of((request,), self._handlers)) is not None:
            store = partial(self.store, connection=connection)
            return with_type(request, (await enqueued_within(around, (request,), store))[0])
        if self.known_strikes.is_due:
            await self.known_strikes.refresh()
        if self.known_strikes.judge is not None:
            outcomes: list[EnqueueOutcome] = []
            await self.store((request,), outcomes, connection)
            return with_type(request, outcomes[0])
        try:
            job = prepare(
                request, self._handlers, self._router, self._routes.asked, self._encryption
            )
        except NotLookedUp:
            await self._routes.look_up()
            job = self.prepare(request)
        [outcome] = await self._submit((job,), connection)
        return outcome if request.result_type is Any else with_type(request, outcome)

    async def enqueue_many(
        self,
        requests: Iterable[EnqueueRequest[R]],
        *,
        spread: timedelta | float | None = None,
        connection: object | None = None,
    ) -> list[EnqueueOutcome[R]]:
        """Store many, outcomes in their order.

        All or none for up to 200 jobs. More may be stored in steps of at least that many, in
        order, and an error leaves the earlier steps stored. Every request is checked before
        anything is stored. Errors and ``connection`` as in :meth:`enqueue`.

        :param spread: the jobs are due evenly over this window, a timedelta or seconds, in the
            order of the list. Each has a step of the window, and a moment in the step that follows
            from the job's id
        """
        self._home.here()
        check_requests(requests)
        wanted = spread_over(requests, spread)
        if (around := all_options_of(wanted, self._handlers)) is not None:
            store = partial(self.store, connection=connection)
            return with_types(wanted, await enqueued_within(around, wanted, store))
        outcomes: list[EnqueueOutcome] = []
        await self.store(wanted, outcomes, connection)
        return with_types(wanted, outcomes)

    async def store(
        self,
        requests: Sequence[EnqueueRequest],
        outcomes: list[EnqueueOutcome],
        connection: object | None = None,
    ) -> None:
        """:meth:`enqueue_many` without middleware, outcomes added step by step."""
        jobs = await self.prepared(requests)
        step = self.storage.jobs.enqueue_at_once
        if len(jobs) > step:
            check_batch(jobs)
        for start in range(0, len(jobs), step):
            part = jobs[start : start + step]
            outcomes += with_strikes(part, await self._submit(part, connection))

    def prepare(self, request: EnqueueRequest, **options: Unpack[EnqueueOptions]) -> NewJob:
        """The job that :meth:`enqueue` would store: defaults filled in, every value checked.

        The store is not asked: published queues count as far as this client has read them.

        :raises InvalidInput: a value is wrong
        """
        check_request(request)
        request = request.options(**options)
        known, judge = self._routes.as_known, self.known_strikes.judge
        return prepare(request, self._handlers, self._router, known, self._encryption, judge=judge)

    def prepare_many(self, requests: Sequence[EnqueueRequest]) -> tuple[NewJob, ...]:
        """The jobs that :meth:`enqueue_many` would store. For any thread.

        :raises NotLookedUp: the store has to be asked first, see :meth:`prepared`
        """
        if not self.known_strikes.is_due:
            jobs = self._prepared(requests, self._routes.asked)
            if not are_struck(jobs):
                return jobs
        raise NotLookedUp

    def _prepared(self, requests: Sequence[EnqueueRequest], known: Elsewhere) -> tuple[NewJob, ...]:
        judge, encryption = self.known_strikes.judge, self._encryption
        return prepare_many(requests, self._handlers, self._router, known, encryption, judge=judge)

    async def prepared(self, requests: Iterable[EnqueueRequest]) -> tuple[NewJob, ...]:
        """:meth:`prepare_many`, with a look at what pods publish where that is due.

        A job is struck by what the store says now, never by a strike that has been lifted.
        """
        self._home.here()
        check_requests(requests)
        wanted = tuple(requests)
        if self.known_strikes.is_due:
            await self.known_strikes.refresh()
        try:
            jobs = self._prepared(wanted, self._routes.asked)
        except NotLookedUp:
            await self._routes.look_up()
            jobs = self._prepared(wanted, self._routes.as_known)
        if self.known_strikes.judge is not None and are_struck(jobs):
            await self.known_strikes.read_again()
            jobs = self._prepared(wanted, self._routes.as_known)
        return jobs

    async def queue_of(self, kind: str) -> str:
        """The queue that :meth:`enqueue` takes for a kind where the request names none.

        :raises InvalidInput: the kind is no name, or seems misspelt
        """
        [job] = await self.prepared([EnqueueRequest(kind, CheckedJson("{}"))])
        return job.queue

    # No coroutine of its own: a caller that waits has one frame less to be woken through.
    def _submit(self, unit: _Unit, connection: object | None) -> Awaitable[list[EnqueueOutcome]]:
        self._check_open()
        if connection is not None:
            # The caller's transaction cannot share a call with others.
            return self.storage.jobs.enqueue(unit, connection=connection)
        if self.storage.is_parted:
            return self._lane_of(unit).submit(unit)
        for job in unit:
            if job.unique is not None:
                return self._keyed.submit(unit)
        return min(self._plain, key=_callers).submit(unit)

    def _lane_of(self, unit: _Unit) -> Lane[_Unit, list[EnqueueOutcome]]:
        """The lane of the unit's queue, or queues."""
        queues = " ".join(sorted({job.queue for job in unit}))
        lane = self._of_queues.get(queues)
        if lane is None:
            lane = self._of_queues[queues] = self._lane(None)
        return lane

    async def _store(self, units: Sequence[_Unit]) -> list[list[EnqueueOutcome]]:
        if stop_points.ARMED:
            await stop_points.reach("enqueue:before")
        outcomes = await self.storage.jobs.enqueue([job for unit in units for job in unit])
        if stop_points.ARMED:
            await stop_points.reach("enqueue:committed")
        if len(units) == 1:
            return [outcomes]
        if len(units) == len(outcomes):
            return [[outcome] for outcome in outcomes]
        each = iter(outcomes)
        return [[next(each) for _ in unit] for unit in units]

    # -- reads -------------------------------------------------------------------------------

    async def get(self, job_id: str) -> Job | None:
        """The whole job, None when there is none."""
        wanted = check_job_id(job_id, "job_id")
        return (await self._jobs.get([wanted])).get(wanted)

    def decrypted(self, job: Job) -> Job:
        """The job with payload and result decrypted, as far as they are encrypted.

        :raises KeyMissing: this client does not have the key
        :raises DecryptionFailed: the encrypted text was changed, or is another job's
        """
        return decrypted_job(job, self._encryption)

    async def explain(self, job_id: str) -> Explanation:
        """Explain why the job does not run, or how it runs.

        :raises NotFound: there is no such job
        """
        job = await self.get(job_id)
        if job is None:
            raise NotFound(
                f"there is no job {job_id}; its retention is over, or the store is another"
            )
        return await explained(self.storage, job)

    # -- changes -----------------------------------------------------------------------------

    async def cancel(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Cancel waiting jobs and ask running ones to stop. See ``JobStore.cancel``.

        :param which: one id, several, or all that match, in bounded batches
        """
        return await self._operate(self._jobs.cancel, which)

    async def requeue(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Give failed, dead and cancelled jobs their whole budget again, due now.

        A job that comes after others waits again for those that are not done.
        """
        return await self._operate(self._jobs.requeue, which)

    async def restore(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Take cancels back: jobs wait again with their old time and attempts. Refused where
        children know of the cancel, or another job has the key. See ``JobStore.restore``."""
        return await self._operate(self._jobs.restore, which)

    async def release_held(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Let blocked jobs run without the parents that hold them (``After(..., "hold")``)."""
        return await self._operate(self._jobs.release_held, which)

    async def run_now(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Make scheduled jobs, and those that wait for a retry, due now."""
        return await self._operate(self._jobs.run_now, which)

    async def delete(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Remove jobs for good. Running ones are refused."""
        return await self._operate(self._jobs.delete, which)

    async def _operate(
        self,
        verb: Callable[..., Awaitable[BulkOutcome]],
        which: str | Iterable[str] | JobFilter,
    ) -> BulkTotals:
        try:
            return await in_batches(verb, which)
        finally:
            # Also after an error: some batches may have been applied.
            self.storage.jobs.announce_changes(None)

    # -- end ---------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until everything handed to :meth:`enqueue` so far is stored, or has failed."""
        for lane in (*self._plain, self._keyed, *self._of_queues.values()):
            await lane.flush()

    async def aclose(self) -> None:
        """Take nothing new, finish what is being enqueued. Closing twice is fine."""
        self._home.here()
        self._is_closed = True
        self._awaited.end(StorageError(_CLOSED))
        self._watches.end(StorageError(_CLOSED))
        await self.flush()
        await self.known_strikes.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageError(_CLOSED)

    @property
    def _jobs(self) -> JobStore:
        """The jobs of the store, for a call in the event loop of this client.

        :raises WrongEventLoop: another loop runs here
        """
        self._home.here()
        return self.storage.jobs


_callers = attrgetter("callers")


def _size_of(unit: _Unit) -> int:
    size = 0
    for job in unit:
        size += len(job.payload) + _ROW_BYTES
    return size


def _least_key(unit: _Unit) -> tuple[str, str]:
    return min((job.queue, job.unique.key) for job in unit if job.unique is not None)
