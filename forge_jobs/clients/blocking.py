"""The blocking twin of ``JobClient``, for programs and threads without an event loop."""

import asyncio
import atexit
import contextvars
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar, Unpack, overload

from forge_jobs.clients.around import all_options_of, enqueued_within
from forge_jobs.clients.bulk import BulkTotals
from forge_jobs.clients.calls import ClientCalls
from forge_jobs.clients.following import LogFollower
from forge_jobs.clients.results import with_type, with_types
from forge_jobs.clients.routes import NotLookedUp
from forge_jobs.clients.strikes import with_strikes
from forge_jobs.clients.striking.calls import SyncStrikingCalls
from forge_jobs.clients.watching import Watch
from forge_jobs.errors import InvalidInput, StorageError, a_type
from forge_jobs.handlers.preparing import check_request, check_requests
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueOptions, EnqueueRequest
from forge_jobs.handlers.routing import Router
from forge_jobs.handlers.spreading import spread_over
from forge_jobs.model.filters import MOST_COUNTED, Count, JobFilter, JobOrder, Page
from forge_jobs.model.jobs import EnqueueOutcome, Job
from forge_jobs.model.progress import JobState, LogPage
from forge_jobs.policy.admission import Explanation
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.storage.protocols import Storage, check_storage

T = TypeVar("T")
R = TypeVar("R")


def run_without_loop(connection: object, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine of a store that works on ``connection`` in the calling thread, by hand.

    A store does all work on a synchronous connection in plain calls and awaits nothing, so the
    coroutine ends at the first step and needs no event loop. The statements must run in this
    thread: the connection belongs to it.

    :raises InvalidInput: the connection is an asynchronous one
    """
    # Asynchronous connections and sessions have one of these, SQLAlchemy's synchronous have not.
    # Refused beforehand: a statement that waits cannot be abandoned in the middle.
    if hasattr(connection, "run_sync") or hasattr(connection, "fetchrow"):
        raise InvalidInput(
            "connection",
            f"is {a_type(connection)}",
            "give a Connection or Session, or use the asynchronous client",
        )
    return run_by_hand(call())


def run_by_hand(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits nothing, in the calling thread."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        outcome: T = finished.value
        return outcome
    finally:
        coroutine.close()
    raise StorageError(
        "a call on a synchronous connection had to wait, which no store may do there; use the "
        "asynchronous client with an AsyncConnection"
    )


class SyncJobClient(SyncStrikingCalls):
    """``JobClient`` in blocking calls, from any thread. The same names, errors and meanings.

    Calls run on an event loop in a separate thread, started by the first call and closed at the
    latest when the program ends.

    :param open_storage: opens the storage inside that loop, for example
        ``lambda: open_storage("sqlite:///jobs.db")``. Closed with the client
    """

    def __init__(
        self,
        open_storage: Callable[[], Awaitable[Storage]],
        handlers: HandlerRegistry | None = None,
        *,
        router: Router | None = None,
        encryption: Encryption | None = None,
        repeat_for: timedelta | float = 10.0,
    ) -> None:
        if not callable(open_storage):
            problem = f"is {a_type(open_storage)}"
            if inspect.iscoroutine(open_storage):
                open_storage.close()
            fix = 'give a function that opens one, as lambda: open_storage("sqlite:///jobs.db")'
            raise InvalidInput("open_storage", problem, fix)
        self._open_storage = open_storage
        self._handlers = handlers
        self._router = router
        self._encryption = encryption
        self._repeat_for = repeat_for
        self._lock = threading.Lock()
        self._loop: _LoopThread | None = None
        self._is_closed = False

    def enqueue(
        self,
        request: EnqueueRequest[R],
        *,
        connection: object | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> EnqueueOutcome[R]:
        """Store one job and return its id and whether it is new. As ``JobClient.enqueue``.

        :param connection: a synchronous SQLAlchemy connection or session. Its statements run in
            the calling thread
        """
        check_request(request)
        request = request.options(**options)
        within = self._enqueued_within([request], connection)
        if within is not None:
            return with_type(request, within[0])
        if connection is not None:
            return self._enqueue_on(connection, [request])[0]
        return self._call(lambda client: client.enqueue(request))

    def enqueue_many(
        self,
        requests: Iterable[EnqueueRequest[R]],
        *,
        spread: timedelta | float | None = None,
        connection: object | None = None,
    ) -> list[EnqueueOutcome[R]]:
        """Store many jobs, outcomes in their order. As ``JobClient.enqueue_many``."""
        check_requests(requests)
        wanted = spread_over(requests, spread)
        within = self._enqueued_within(wanted, connection)
        if within is not None:
            return with_types(wanted, within)
        if connection is not None:
            return self._enqueue_on(connection, wanted)
        return self._call(lambda client: client.enqueue_many(wanted))

    def get(self, job_id: str) -> Job | None:
        """Return the whole job, None when there is none. As ``JobClient.get``."""
        return self._call(lambda client: client.get(job_id))

    @overload
    def result(self, job_id: EnqueueOutcome[R], timeout: timedelta | float) -> R: ...
    @overload
    def result(self, job_id: str, timeout: timedelta | float) -> Any: ...
    @overload
    def result(
        self, job_id: str | EnqueueOutcome, timeout: timedelta | float, type: type[R]
    ) -> R: ...
    def result(self, job_id: Any, timeout: timedelta | float, type: Any = None) -> Any:
        """Wait for the end, and return the result or raise. As ``JobClient.result``."""
        return self._call(lambda client: client.result(job_id, timeout, type))

    def decrypted(self, job: Job) -> Job:
        """Return the job with payload and result in clear. As ``JobClient.decrypted``."""

        async def decrypt(client: ClientCalls) -> Job:
            return client.decrypted(job)

        return self._call(decrypt)

    def state(self, job_id: str) -> JobState | None:
        """Return status, attempt and progress of a job. As ``JobClient.state``."""
        return self._call(lambda client: client.state(job_id))

    def log(
        self, job_id: str, *, attempt: int | None = None, after: int = 0, limit: int = 1000
    ) -> LogPage:
        """Return lines of ``ctx.log``, the oldest first. As ``JobClient.log``."""
        return self._call(
            lambda client: client.log(job_id, attempt=attempt, after=after, limit=limit)
        )

    def watch(self, job_id: str | None = None, *, queue: str | None = None) -> Iterator[JobState]:
        """Follow a job: ``for state in client.watch(job_id)``. As ``JobClient.watch``."""

        async def begin(client: ClientCalls) -> Watch:
            return client.watch(job_id, queue=queue)

        return self._states(self._call(begin))

    def _states(self, watch: Watch) -> Iterator[JobState]:
        while (state := self._call(lambda _: watch.next_state())) is not None:
            yield state

    def follow_log(self, job_id: str, *, attempt: int | None = None) -> Iterator[LogPage]:
        """Follow lines: ``for page in client.follow_log(id)``. As ``JobClient.follow_log``."""

        async def begin(client: ClientCalls) -> LogFollower:
            return client.follow_log(job_id, attempt=attempt)

        return self._pages(self._call(begin))

    def _pages(self, follower: LogFollower) -> Iterator[LogPage]:
        while (page := self._call(lambda _: follower.next_page())) is not None:
            yield page

    def explain(self, job_id: str) -> Explanation:
        """Explain why a job does not run, or how it runs. As ``JobClient.explain``."""
        return self._call(lambda client: client.explain(job_id))

    def cancel(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Cancel waiting jobs, ask running ones to stop. As ``JobClient.cancel``."""
        return self._call(lambda client: client.cancel(which))

    def requeue(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Give ended jobs all attempts again, due now. As ``JobClient.requeue``."""
        return self._call(lambda client: client.requeue(which))

    def restore(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Take cancels back: the jobs wait again. As ``JobClient.restore``."""
        return self._call(lambda client: client.restore(which))

    def release_held(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Run jobs without the parents that hold them. As ``JobClient.release_held``."""
        return self._call(lambda client: client.release_held(which))

    def run_now(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Make scheduled and retrying jobs due now. As ``JobClient.run_now``."""
        return self._call(lambda client: client.run_now(which))

    def delete(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Remove jobs for good. Running ones are refused. As ``JobClient.delete``."""
        return self._call(lambda client: client.delete(which))

    def close(self) -> None:
        """Finish what is being enqueued, close the connections, end the thread. Twice is fine."""
        with self._lock:
            self._is_closed = True
            loop, self._loop = self._loop, None
        if loop is not None and loop.process_id == os.getpid():
            atexit.unregister(self.close)
            loop.stop()

    def __enter__(self) -> "SyncJobClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: Callable[[ClientCalls], Coroutine[Any, Any, T]]) -> T:
        return self._started().call(method)

    def _started(self) -> "_LoopThread":
        with self._lock:
            if self._is_closed:
                raise StorageError("this client is closed; make another SyncJobClient")
            # A forked child has the object but not the thread, and would wait for the thread for
            # good.
            if self._loop is None or self._loop.process_id != os.getpid():
                self._loop = _LoopThread(self._open_client, self._close_client)
                atexit.register(self.close)
            return self._loop

    async def _open_client(self) -> ClientCalls:
        return ClientCalls(
            check_storage(await self._open_storage()),
            self._handlers,
            router=self._router,
            encryption=self._encryption,
            repeat_for=self._repeat_for,
        )

    async def _close_client(self, client: ClientCalls) -> None:
        await client.aclose()
        await client.storage.aclose()

    def queue_of(self, kind: str) -> str:
        """Return the queue that an enqueue of this kind takes. As ``JobClient.queue_of``."""
        return self._call(lambda client: client.queue_of(kind))

    def _enqueue_on(
        self, connection: object, requests: Sequence[EnqueueRequest[R]]
    ) -> list[EnqueueOutcome[R]]:
        client = self._started().client
        try:
            jobs = client.prepare_many(requests)
        except NotLookedUp:
            jobs = self._call(lambda client: client.prepared(requests))
        store = client.storage.jobs
        outcomes = run_without_loop(connection, lambda: store.enqueue(jobs, connection=connection))
        return with_types(requests, with_strikes(jobs, outcomes))

    def _enqueued_within(
        self, requests: Sequence[EnqueueRequest], connection: object | None
    ) -> list[EnqueueOutcome] | None:
        """Enqueue where there is middleware around. None: there is none, and nothing is done.

        Plain middleware works in this thread, asynchronous middleware on the loop of the client, in
        one context.
        """
        self._started()  # holds the registry to be one
        around = all_options_of(requests, self._handlers)
        if around is None:
            return None
        context = contextvars.copy_context()

        async def on_loop(step: Callable[[], Awaitable[Any]]) -> Any:
            async def task() -> Any:
                return await step()

            async def in_context(_: ClientCalls) -> Any:
                return await asyncio.get_running_loop().create_task(task(), context=context)

            return self._call(in_context)

        async def store(changed: Sequence[EnqueueRequest], outcomes: list[EnqueueOutcome]) -> None:
            if connection is not None:
                outcomes += self._enqueue_on(connection, changed)
            else:
                self._call(lambda client: client.store(changed, outcomes))

        return run_by_hand(enqueued_within(around, requests, store, on_loop))

    def count(
        self,
        which: JobFilter | None = None,
        *,
        at_most: int = MOST_COUNTED,
        cursor: str | None = None,
    ) -> Count:
        """Count matching jobs, exactly or up to a bound. As ``JobClient.count``."""
        return self._call(lambda client: client.count(which, at_most=at_most, cursor=cursor))

    # Last, because the name hides the builtin from the annotations below.

    def list(
        self,
        which: JobFilter | None = None,
        *,
        order: JobOrder = "id",
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Return a page of matching jobs. As ``JobClient.list``."""
        return self._call(
            lambda client: client.list(which, order=order, cursor=cursor, limit=limit)
        )


class _LoopThread:
    """A thread with an event loop, and the client in that thread."""

    def __init__(
        self,
        open_client: Callable[[], Awaitable[ClientCalls]],
        close_client: Callable[[ClientCalls], Awaitable[None]],
    ) -> None:
        self._open_client = open_client
        self._close_client = close_client
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, ClientCalls]] = Future()
        # A daemon, so that a program that forgets to close can end. Then atexit closes the client.
        self._thread = threading.Thread(target=self._run, name="forge-jobs-client", daemon=True)
        self._thread.start()
        self.process_id = os.getpid()
        try:
            self.loop, self._stop, self.client = self._ready.result()
        except BaseException:
            self._thread.join()
            raise

    def call(self, method: Callable[[ClientCalls], Coroutine[Any, Any, T]]) -> T:
        """Run a method of the client in the thread, and wait here for its result."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a blocking call from the client's own thread would wait for itself; in enqueue "
                "middleware and callbacks await the asynchronous client"
            )
        return asyncio.run_coroutine_threadsafe(method(self.client), self.loop).result()

    def stop(self) -> None:
        """Let calls that were submitted finish their batch, then end the thread."""
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        stop = asyncio.Event()
        client = await self._open_client()
        try:
            self._ready.set_result((asyncio.get_running_loop(), stop, client))
            await stop.wait()
        finally:
            await self._close_client(client)
