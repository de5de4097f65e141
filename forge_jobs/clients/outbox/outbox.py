"""Enqueues in a transaction of one database, into queues on another store."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeAlias, TypeVar, Unpack

from forge_jobs.clients.calls import ClientCalls
from forge_jobs.clients.outbox.judging import OutboxJudge
from forge_jobs.clients.outbox.relay import OutboxRelay, OutboxReport
from forge_jobs.clock import Clock, SystemClock
from forge_jobs.errors import InvalidInput, StorageClosed, StorageError
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueOptions, EnqueueRequest
from forge_jobs.handlers.routing import Router
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.model.letters.outbox import OutboxRecord, OutboxState
from forge_jobs.model.names import check_queue
from forge_jobs.outages import Outage, Pauses
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import Storage, check_storage
from forge_jobs.storage.protocols.letters import HasOutbox, OutboxStore
from forge_jobs.storage.wakeups import until_set

logger = reporter(__name__)

LOOK_EVERY = timedelta(seconds=1)
"""So long a record waits at most for a relay that no wake-up reached."""

_PAUSES = Pauses(0.5, 30.0)

R = TypeVar("R")


class OutboxWriter(ClientCalls):
    """A client of the destination that stores nothing there: jobs go into the outbox."""

    def __init__(self, records: OutboxStore, storage: Storage, **options: object) -> None:
        super().__init__(storage, **options)  # type: ignore[arg-type]
        self.records = records
        self.encryption = self._encryption
        # The destination may be away. So nothing is read there of what pods publish.
        self._routes.asked = self._routes.as_known
        self.known_strikes.is_due = False

    async def _submit(
        self, unit: tuple[NewJob, ...], connection: object | None
    ) -> list[EnqueueOutcome]:
        self._check_open()
        return await self.write(unit, connection)

    async def write(self, jobs: Sequence[NewJob], connection: object) -> list[EnqueueOutcome]:
        """Write jobs down in a transaction. Waits for nothing where the connection does not."""
        await self.records.write(jobs, connection)
        return [EnqueueOutcome(job.id) for job in jobs]


class Outbox:
    """Enqueues in your transaction on a SQL database, into queues on another store.

    The job is written down in the transaction, and commits or rolls back with it. A relay,
    :meth:`run`, stores it on the destination at least once under the same id, so the destination
    has it once. Belongs to the event loop of its first use, as ``JobClient`` does. Both
    storages stay open. ``SyncOutbox`` is the blocking twin.

    :param here: the storage of your database, SQLite or PostgreSQL
    :param there: the storage of the queues, any
    :param name: of the destination. Records stay under this name, so it is not to be changed while
        records wait. Each destination of one database has its own
    :param handlers: as of ``JobClient``, as are router and encryption. Queues that pods publish are
        not looked up: name the queue by the request, handler or router, otherwise it is ``default``
    :raises InvalidInput: ``here`` is no SQL database, or the name is no name
    """

    def __init__(
        self,
        here: Storage,
        there: Storage,
        handlers: HandlerRegistry | None = None,
        *,
        name: str = "jobs",
        router: Router | None = None,
        encryption: Encryption | None = None,
        clock: Clock | None = None,
    ) -> None:
        jobs = check_storage(here).jobs
        if not isinstance(jobs, HasOutbox):
            raise InvalidInput("here", "has no transactions", "give a SQLite or PostgreSQL storage")
        self._name = check_queue("name", name)
        self._records = jobs.outbox(self._name)
        self.here, self.there, self.handlers = here, there, handlers
        self.writer = OutboxWriter(
            self._records, there, handlers=handlers, router=router, encryption=encryption
        )
        clock = clock or SystemClock()
        judge = OutboxJudge(there, self.writer.encryption, clock)
        self._relay = OutboxRelay(self._records, there, judge, self._name, clock)

    async def enqueue(
        self,
        connection: object,
        request: EnqueueRequest[R],
        **options: Unpack[EnqueueOptions],
    ) -> EnqueueOutcome[R]:
        """Write one job down in the caller's transaction. The destination is not asked.

        So the outcome has the id only: what the destination decides about unique keys and parents
        is decided when the job is relayed.

        :param connection: an SQLAlchemy connection or session of the database, or one of asyncpg's
            own, as of ``JobClient.enqueue``
        :param options: put on the request, see ``EnqueueOptions``. A ``delay`` counts from now
        :raises InvalidInput: a value is wrong. Names the option and the fix
        :raises Unavailable: the database cannot be reached
        """
        return await self.writer.enqueue(request, connection=given(connection), **options)

    async def enqueue_many(
        self,
        connection: object,
        requests: Iterable[EnqueueRequest[R]],
        *,
        spread: timedelta | float | None = None,
    ) -> list[EnqueueOutcome[R]]:
        """Write many down, all or none with the transaction, outcomes in their order.

        Errors and ``connection`` as in :meth:`enqueue`, ``spread`` as of ``JobClient``.
        """
        return await self.writer.enqueue_many(requests, spread=spread, connection=given(connection))

    async def relay_once(self, *, is_stopping: Callable[[], bool] | None = None) -> OutboxReport:
        """Store records that wait on the destination, oldest first, and remove them.

        At most 10,000, and each once: ``more`` of the report tells that others may wait.
        A record that the destination refuses for what it is, as a job whose id is stored with other
        content, is set aside with the reason, and others go on.

        :param is_stopping: asked between two calls of a store. True ends the pass early
        :raises StorageError: the database or the destination is away. Nothing is lost
        """
        return await self._relay.relay_once(is_stopping=is_stopping or (lambda: False))

    async def run(self) -> None:
        """Relay until cancelled. Any number of processes may, and one keeps the order.

        Woken by a commit, where the database tells of it, otherwise looks every second. While a
        store is away the next try follows after growing pauses, of 30 seconds at most.

        :raises StorageClosed: this program has closed one of the storages
        """
        outage = Outage()
        failures = 0
        while True:
            try:
                report = await self.relay_once()
                if outage.is_over():
                    logger.info("the outbox for %r is relayed again", self._name)
                failures = 0
                if not report.more:
                    await self._records.wait(LOOK_EVERY)
            except StorageClosed:
                raise
            except StorageError as error:
                failures += 1
                if outage.is_new(type(error).__name__):
                    logger.warning(
                        "the outbox for %r is not relayed now; its records wait, and are tried "
                        "again every 30 seconds at least: %s",
                        self._name,
                        error,
                    )
                await until_set(asyncio.Event(), _PAUSES.after(failures))

    async def wait(self, at_most: timedelta) -> bool:
        """Wait until a commit or a retry may have brought records. False: none is known of.

        :raises StorageError: the database is away
        """
        return bool((await self._records.wait(at_most)).queues)

    async def records(self, limit: int = 100) -> list[OutboxRecord]:
        """Return records, those set aside first, then by number. Payloads are not among them.

        :raises InvalidInput: the limit is not 1 to 10,000
        """
        return await self._records.records(limit)

    async def state(self) -> OutboxState:
        """Return how many records wait and are set aside, and the age of the oldest that waits."""
        return await self._records.state()

    @property
    def name(self) -> str:
        """The name of the destination."""
        return self._name

    async def retry(self, *job_ids: str) -> list[JobId]:
        """Relay records again that were set aside, all when no id is given. Return their jobs."""
        return await self._records.retry(_checked(job_ids) or None)

    async def discard(self, *job_ids: str) -> list[JobId]:
        """Remove records that were set aside, for good. Return their jobs."""
        return await self._records.discard(_checked(job_ids))


OutboxSource: TypeAlias = Outbox | Callable[[], Awaitable[Outbox]]
"""An outbox, or a function that opens it. A call that raises ``StorageError`` may be repeated."""


def given(connection: object) -> object:
    """Return the connection of a caller.

    :raises InvalidInput: there is none
    """
    if connection is None:
        raise InvalidInput("connection", "is None", "give the session of your transaction")
    return connection


def _checked(job_ids: Iterable[str]) -> set[JobId]:
    return {check_job_id(each, "job_ids") for each in job_ids}
