"""The test kit: one store, one registry and one clock, and what tests ask of them."""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack, overload

from forge_jobs.clients.client import JobClient
from forge_jobs.clients.results import decrypted_job
from forge_jobs.clock import SystemClock
from forge_jobs.errors import InvalidInput, KeyMissing
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueOptions, EnqueueRequest
from forge_jobs.model.jobs import EnqueueOutcome, Job, JobStatus
from forge_jobs.privacy.encryption import is_encrypted
from forge_jobs.runtime.shared.threads import HandlerThread
from forge_jobs.storage.protocols import Storage, check_storage
from forge_jobs.testing.kit import matching
from forge_jobs.testing.kit.background import CallingThread, background
from forge_jobs.testing.kit.clock import TravelClock
from forge_jobs.testing.kit.context import FakeContext
from forge_jobs.testing.kit.draining import Drain, Drained
from forge_jobs.testing.kit.inline import run_once
from forge_jobs.testing.kit.passing import pass_time
from forge_jobs.testing.kit.program import ProgramUnderTest

T = TypeVar("T")

AT_MOST = 100
"""Jobs that a drain runs unless the test says otherwise."""

_What = Handler[..., Any] | EnqueueRequest
_Thread = Callable[[], HandlerThread] | None


class Kit(ProgramUnderTest):
    """Runs handlers, runs what is due, and looks at what was enqueued.

    The methods are awaited on any event loop. :attr:`sync` has the same methods for tests without
    one.

    :param storage: the store of the test
    :param handlers: the registry, or a function that returns the registry when first needed
    :param clock: the clock that the store was opened with. None: :meth:`advance` is refused
    :param url: where other programs find the store. "" where they cannot
    """

    def __init__(
        self,
        storage: Storage,
        handlers: HandlerRegistry | Callable[[], HandlerRegistry],
        *,
        clock: TravelClock | None = None,
        url: str = "",
    ) -> None:
        super().__init__(handlers)
        self.storage = check_storage(storage)
        self.url = url
        self.sync = SyncKit(self)
        self._clock = clock

    async def enqueue(
        self, request: EnqueueRequest[T], **options: Unpack[EnqueueOptions]
    ) -> EnqueueOutcome[T]:
        """Enqueue a job, as ``JobClient.enqueue`` does."""
        [outcome] = await self._enqueue([request.options(**options)])
        return outcome

    @overload
    async def run_inline(
        self,
        handler: Handler[..., Coroutine[Any, Any, T]],
        /,
        *arguments: Any,
        context: FakeContext | None = None,
        **keywords: Any,
    ) -> T: ...
    @overload
    async def run_inline(
        self,
        handler: Handler[..., T] | EnqueueRequest[T],
        /,
        *arguments: Any,
        context: FakeContext | None = None,
        **keywords: Any,
    ) -> T: ...
    async def run_inline(
        self,
        handler: _What,
        /,
        *arguments: Any,
        context: FakeContext | None = None,
        **keywords: Any,
    ) -> Any:
        """Run a handler once, as a worker would, and return what the handler returns.

        The arguments become a payload and are decoded from the payload. The timeout holds, and the
        result must be one that can be stored. No job is stored and nothing is retried. Requests
        that the handler enqueues are stored. ``Again`` is returned, also where it was raised.

        :param handler: a handler and its arguments, or a request of a kind in the registry. Give a
            request where the handler has an argument named ``context``
        :param context: for a handler that takes one. None: a new ``fake_context()``
        :raises Exception: what the handler raised, outcomes such as ``Snoozed`` included. An
            outcome that was returned is raised too, but for ``Again``
        """
        return await self._run_inline(handler, arguments, keywords, context, None)

    async def drain(
        self,
        *,
        queues: Collection[str] | str | None = None,
        at_most: int = AT_MOST,
        reraise: bool = False,
    ) -> Drained:
        """Run every job that is due, also those that the jobs enqueue, and report the runs.

        Jobs run one at a time: queue by queue, and in each queue in the order of a worker. Due
        schedules fire first. What is due later, such as a retry, stays until :meth:`advance`.
        Retries have the longest pause of their policy, whatever the jitter.

        :param queues: only these. None: all
        :param at_most: how many jobs may run
        :param reraise: raise what a handler raised, at the first failure. Otherwise failures are
            stored, as by a worker, and reported
        :raises TooManyRuns: ``at_most`` jobs have run, and another is due
        """
        return await self._drain(queues, at_most, reraise=reraise, thread=None)

    async def advance(
        self,
        by: timedelta | float = 0,
        /,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Let time pass at once for the store, and return the store's new time.

        The store is then as if no pod had run for so long, and a coordinator had just started:
        schedules have fired by their catch-up rule, waiting jobs past their end are cancelled, and
        ended jobs past their retention are gone. No job runs: :meth:`drain` runs what is due.

        Only the store's clock moves, and goes on from there. Real waits, such as timeouts of
        handlers and of ``client.result``, take as long as ever.

        :param by: a timedelta or seconds, to which the named units are added
        :raises InvalidInput: the sum is negative or more than a century, or the kit was made
            without the clock of the store
        """
        if self._clock is None:
            raise InvalidInput(
                "clock",
                "is not known to the kit, so advance cannot move the time of the store",
                "open the store with open_storage(url, clock=clock) and write Kit(..., clock=clock)"
                " with one clock = TravelClock()",
            )
        step = check_duration("advance", by)
        step += timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        return await pass_time(self.storage, self.handlers, self._clock, step)

    async def assert_enqueued(
        self,
        kind: Handler[..., Any] | str | None = None,
        /,
        *,
        payload: Mapping[str, Any] | None = None,
        count: int | None = None,
        status: JobStatus | str | None = None,
        due_in: timedelta | float | None = None,
        **fields: Any,
    ) -> list[Job]:
        """Check that such a job is stored, in whatever status, and return all that fit.

        :param kind: a handler, or the name of a kind. None: any
        :param payload: arguments that must be there with these values. Others may be there too, at
            any depth
        :param count: how many must fit. None: at least one. 0: none
        :param due_in: from the store's now, give or take a second, a timedelta or seconds
        :param fields: further attributes of the job, such as ``queue``, ``priority``, ``tags``,
            ``metadata``, ``unique_key``
        :raises AssertionError: other jobs are stored. The text lists them
        """
        wanted = matching.expected(kind, payload, status, due_in, fields)
        now = await self.storage.cron.now()
        fitting, others = await matching.find(self.storage.jobs, wanted, now, self._decrypted)
        if len(fitting) != count if count is not None else not fitting:
            raise AssertionError(matching.missing(wanted, count, fitting, others, now))
        return fitting

    def _decrypted(self, job: Job) -> Job:
        """Return a job as the program reads the job. Without the key, as the job is stored."""
        if not (is_encrypted(job.payload) or is_encrypted(job.result or "")):
            return job
        registry = self._registry()
        handler = registry.get(job.kind)
        encryption = registry.encryption if handler is None else handler.options.encryption
        with suppress(KeyMissing):
            return decrypted_job(job, encryption)
        return job

    # -- the work of both sides ----------------------------------------------------------------

    async def _enqueue(self, requests: Iterable[EnqueueRequest[T]]) -> list[EnqueueOutcome[T]]:
        client = JobClient(self.storage, self._known_handlers())
        try:
            return await client.enqueue_many(requests)
        finally:
            await client.aclose()

    def _known_handlers(self) -> HandlerRegistry | None:
        return self._handlers if isinstance(self._handlers, HandlerRegistry) else None

    async def _run_inline(
        self,
        what: _What,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        context: FakeContext | None,
        thread: _Thread,
    ) -> Any:
        if isinstance(what, Handler):
            what = self._stand_ins.of(what)
        return await run_once(
            what,
            arguments,
            keywords,
            context=context,
            handlers=self.handlers if isinstance(what, EnqueueRequest) else None,
            enqueue=self._enqueue,
            thread=thread,
            storage=self.storage,
        )

    async def _drain(
        self,
        queues: Collection[str] | str | None,
        at_most: int,
        *,
        reraise: bool,
        thread: _Thread,
    ) -> Drained:
        only = [queues] if isinstance(queues, str) else queues
        clock = self._clock or SystemClock()
        drain = Drain(self.storage, self.handlers, clock=clock, thread=thread)
        return await drain.run(only, at_most, reraise=reraise)


class SyncKit:
    """The methods of :class:`Kit` in blocking calls, for tests without an event loop.

    ``def`` handlers run on the thread of the caller, ``async def`` handlers on the loop of the kit.
    """

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    def enqueue(
        self, request: EnqueueRequest[T], **options: Unpack[EnqueueOptions]
    ) -> EnqueueOutcome[T]:
        """See :meth:`Kit.enqueue`."""
        return background().run(self._kit.enqueue(request, **options))

    @overload
    def run_inline(
        self,
        handler: Handler[..., Coroutine[Any, Any, T]],
        /,
        *arguments: Any,
        context: FakeContext | None = None,
        **keywords: Any,
    ) -> T: ...
    @overload
    def run_inline(
        self,
        handler: Handler[..., T] | EnqueueRequest[T],
        /,
        *arguments: Any,
        context: FakeContext | None = None,
        **keywords: Any,
    ) -> T: ...
    def run_inline(
        self,
        handler: _What,
        /,
        *arguments: Any,
        context: FakeContext | None = None,
        **keywords: Any,
    ) -> Any:
        """See :meth:`Kit.run_inline`."""
        kit, given = self._kit, (handler, arguments, keywords, context)
        return _on_this_thread(lambda thread: kit._run_inline(*given, thread))

    def drain(
        self,
        *,
        queues: Collection[str] | str | None = None,
        at_most: int = AT_MOST,
        reraise: bool = False,
    ) -> Drained:
        """See :meth:`Kit.drain`."""
        kit = self._kit
        return _on_this_thread(
            lambda thread: kit._drain(queues, at_most, reraise=reraise, thread=thread)
        )

    def advance(self, by: timedelta | float = 0, /, **units: float) -> datetime:
        """See :meth:`Kit.advance`."""
        return background().run(self._kit.advance(by, **units))

    def assert_enqueued(
        self, kind: Handler[..., Any] | str | None = None, /, **expected: Any
    ) -> list[Job]:
        """See :meth:`Kit.assert_enqueued`."""
        return background().run(self._kit.assert_enqueued(kind, **expected))


def _on_this_thread(work: Callable[[_Thread], Coroutine[Any, Any, T]]) -> T:
    here = CallingThread()
    return here.wait_for(work(lambda: here))


@overload
async def run_inline(
    handler: Handler[..., Coroutine[Any, Any, T]],
    /,
    *arguments: Any,
    context: FakeContext | None = None,
    **keywords: Any,
) -> T: ...
@overload
async def run_inline(
    handler: Handler[..., T],
    /,
    *arguments: Any,
    context: FakeContext | None = None,
    **keywords: Any,
) -> T: ...
async def run_inline(
    handler: Handler[..., Any],
    /,
    *arguments: Any,
    context: FakeContext | None = None,
    **keywords: Any,
) -> Any:
    """Run a handler once without any store: see :meth:`Kit.run_inline`.

    Requests that the handler enqueues are kept in ``context.enqueued`` alone.
    """
    return await run_once(
        handler, arguments, keywords, context=context, handlers=None, enqueue=None, thread=None
    )
