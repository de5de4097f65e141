"""The blocking twin of ``Outbox``, for programs and threads without an event loop."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar, Unpack

from forge_jobs.clients.blocking import SyncJobClient, run_without_loop
from forge_jobs.clients.calls import ClientCalls
from forge_jobs.clients.outbox.outbox import Outbox, given
from forge_jobs.clients.outbox.relay import OutboxReport
from forge_jobs.clients.results import with_types
from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.requests import EnqueueOptions, EnqueueRequest
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import EnqueueOutcome
from forge_jobs.model.letters.outbox import OutboxRecord, OutboxState
from forge_jobs.storage.protocols import Storage

R = TypeVar("R")


class _Client(SyncJobClient):
    """Enqueues into an outbox, and calls it on the event loop of a thread."""

    outbox: Outbox

    def __init__(self, open_outbox: Callable[[], Awaitable[Outbox]]) -> None:
        super().__init__(self._open_destination)
        self._open_outbox = open_outbox

    async def _open_destination(self) -> Storage:
        outbox = await self._open_outbox()
        if not isinstance(outbox, Outbox):
            fix = "return an Outbox(here, there)"
            raise InvalidInput("open_outbox", f"gives {a_type(outbox)}", fix)
        self.outbox, self._handlers = outbox, outbox.handlers
        return outbox.there

    async def _open_client(self) -> ClientCalls:
        await self._open_destination()
        return self.outbox.writer

    async def _close_client(self, client: ClientCalls) -> None:
        try:
            await super()._close_client(client)
        finally:
            await self.outbox.here.aclose()

    def _enqueue_on(
        self, connection: object, requests: Sequence[EnqueueRequest[R]]
    ) -> list[EnqueueOutcome[R]]:
        self._started()
        writer = self.outbox.writer
        jobs = writer.prepare_many(requests)
        return with_types(
            requests, run_without_loop(connection, lambda: writer.write(jobs, connection))
        )

    def call(self, method: Callable[[Outbox], Awaitable[R]]) -> R:
        """Run a method of the outbox in the thread, and wait here for its result."""

        async def on_loop(_: ClientCalls) -> R:
            return await method(self.outbox)

        return self._call(on_loop)


class SyncOutbox:
    """``Outbox`` in blocking calls, from any thread. The same names, errors and meanings.

    Other calls than the enqueues run on an event loop in a separate thread, started by the first
    call and closed at the latest when the program ends.

    :param open_outbox: opens the two storages inside that loop and returns the outbox. Both
        storages are closed with this object
    """

    def __init__(self, open_outbox: Callable[[], Awaitable[Outbox]]) -> None:
        if not callable(open_outbox):
            fix = "give an asynchronous function that returns Outbox(here, there)"
            raise InvalidInput("open_outbox", f"is {a_type(open_outbox)}", fix)
        self._client = _Client(open_outbox)

    def enqueue(
        self,
        connection: object,
        request: EnqueueRequest[R],
        **options: Unpack[EnqueueOptions],
    ) -> EnqueueOutcome[R]:
        """Write one job down in the caller's transaction. As ``Outbox.enqueue``.

        :param connection: a synchronous SQLAlchemy connection or session of the database. Its
            statements run in the calling thread
        """
        return self._client.enqueue(request, connection=given(connection), **options)

    def enqueue_many(
        self,
        connection: object,
        requests: Iterable[EnqueueRequest[R]],
        *,
        spread: timedelta | float | None = None,
    ) -> list[EnqueueOutcome[R]]:
        """Write many down, outcomes in their order. As ``Outbox.enqueue_many``."""
        return self._client.enqueue_many(requests, spread=spread, connection=given(connection))

    def relay_once(self) -> OutboxReport:
        """Store records that wait on the destination. As ``Outbox.relay_once``."""
        return self._client.call(lambda outbox: outbox.relay_once())

    def records(self, limit: int = 100) -> list[OutboxRecord]:
        """Return records, those set aside first. As ``Outbox.records``."""
        return self._client.call(lambda outbox: outbox.records(limit))

    def state(self) -> OutboxState:
        """Return how many records wait and are set aside. As ``Outbox.state``."""
        return self._client.call(lambda outbox: outbox.state())

    def retry(self, *job_ids: str) -> list[JobId]:
        """Relay records again that were set aside. As ``Outbox.retry``."""
        return self._client.call(lambda outbox: outbox.retry(*job_ids))

    def discard(self, *job_ids: str) -> list[JobId]:
        """Remove records that were set aside, for good. As ``Outbox.discard``."""
        return self._client.call(lambda outbox: outbox.discard(*job_ids))

    def close(self) -> None:
        """Close both storages, and end the thread. Twice is fine."""
        self._client.close()

    def __enter__(self) -> "SyncOutbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
