"""A JobContext without a pod, for tests that call a handler."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar, Unpack, cast

import msgspec

from forge_jobs.clients.results import with_types
from forge_jobs.clock import SystemClock
from forge_jobs.errors import InvalidInput, UndecodablePayload
from forge_jobs.handlers.context import NamedSteps, ParentJob, StopReason
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.outcomes import check_count
from forge_jobs.handlers.preparing import check_request, check_requests, prepare_many
from forge_jobs.handlers.requests import EnqueueOptions, EnqueueRequest
from forge_jobs.handlers.signatures import to_plain
from forge_jobs.handlers.spreading import spread_over
from forge_jobs.model.ids import JobId, WorkerId, new_job_id, new_worker_id
from forge_jobs.model.jobs import DEFAULT_MAX_ATTEMPTS, EnqueueOutcome
from forge_jobs.model.letters import DeadLetter
from forge_jobs.model.names import check_name
from forge_jobs.model.payloads import encode_json
from forge_jobs.runtime.progress.telling import checked
from forge_jobs.runtime.queue.context_calls import ContextCalls, LoopThread
from forge_jobs.runtime.queue.job_context import logger

T = TypeVar("T")

Enqueue = Callable[[list[EnqueueRequest]], Awaitable[list[EnqueueOutcome]]]


class FakeContext:
    """A :class:`~forge_jobs.JobContext` that records what a handler does with it.

    Made by :func:`fake_context`. Settable at any time: a test of a handler that polls
    ``cancel_requested`` sets :attr:`stop_reason`.

    :ivar enqueued: the requests that the handler has enqueued, with their options
    :ivar added_steps: what the handler gave to ``add_steps``
    :ivar acquired: how many tokens the handler took, by scope
    :ivar drained: the scopes that the handler drained
    :ivar finished_in: the connections that were given to ``finish_in``, and the results
    :ivar steps: the steps of ``once`` that are done
    :ivar progress: keeps what the handler reports, in ``progress.reports``
    :ivar extended_by: the sum of all ``extend_timeout`` calls
    """

    def __init__(
        self,
        *,
        kind: str = "test",
        queue: str = "default",
        job_id: str | None = None,
        attempt: int = 1,
        occurrence: int = 1,
        max_attempts: int | None = DEFAULT_MAX_ATTEMPTS,
        token: int | None = None,
        worker_id: str | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, str] | None = None,
        trace: Mapping[str, str] | None = None,
        stop_reason: StopReason | None = None,
        rate_limits: Mapping[str, int] | None = None,
        parents: Iterable[ParentJob] = (),
        checkpoint: object = None,
        steps: Iterable[str] = (),
        state: Mapping[str, Any] | None = None,
        client: Any = None,
        dead_letter: DeadLetter | None = None,
    ) -> None:
        self.job_id = JobId(new_job_id() if job_id is None else job_id)
        self.kind = kind
        self.queue = queue
        self.attempt = attempt
        self.occurrence = occurrence
        self.max_attempts = max_attempts
        self.token: int = SystemClock().time_us() if token is None else token
        self.worker_id = WorkerId(new_worker_id() if worker_id is None else worker_id)
        self.tags = tuple(tags)
        self.metadata: Mapping[str, str] = dict(metadata or {})
        self.trace: Mapping[str, str] = dict(trace or {})
        self.dead_letter = dead_letter
        self.stop_reason: StopReason | None = stop_reason
        self.enqueued: list[EnqueueRequest] = []
        self.added_steps: list[NamedSteps] = []
        self.acquired: dict[str, int] = {}
        self.drained: list[str] = []
        self.finished_in: list[tuple[object, object]] = []
        self.extended_by = timedelta(0)
        self.progress = FakeProgress()
        self.rate_limit = FakeRateLimits(self)
        self.sync = FakeSyncContext(self)
        self.steps = list(steps)
        self.state: Mapping[str, Any] = dict(state or {})
        self._client = client
        self._parents = tuple(parents)
        self._checkpoint = None if checkpoint is None else _encoded(checkpoint)
        self._tokens = None if rate_limits is None else dict(rate_limits)
        self._enqueue: Enqueue | None = None
        self._home: LoopThread | None = None
        self._calls: ContextCalls | None = None

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        names = ("job_id", "kind", "queue", "attempt", "worker_id")
        return logging.LoggerAdapter(logger, {name: getattr(self, name) for name in names})

    @property
    def client(self) -> Any:
        """The value of a parameter that is annotated ``JobClient``."""
        if self._client is None:
            raise InvalidInput(
                "client",
                "of the fake context is not there, and the handler asks for a JobClient",
                "write fake_context(client=...), or use run_inline of the fixture forge_kit",
            )
        return self._client

    @property
    def cancel_requested(self) -> bool:
        return self.stop_reason is not None

    def extend_timeout(self, by: timedelta | float) -> None:
        self.extended_by += check_duration("by", by)

    def finish_in(self, connection: object, result: object = None) -> Coroutine[Any, Any, None]:
        return self._call("finish_in", lambda: self._finish(connection, result))

    def enqueue(
        self, request: EnqueueRequest[T], **options: Unpack[EnqueueOptions]
    ) -> Coroutine[Any, Any, EnqueueOutcome[T]]:
        return self._call("enqueue", lambda: self._enqueue_one(request, options))

    def enqueue_many(
        self, requests: Iterable[EnqueueRequest[T]], *, spread: timedelta | float | None = None
    ) -> Coroutine[Any, Any, list[EnqueueOutcome[T]]]:
        return self._call("enqueue_many", lambda: self._enqueue_all(requests, spread))

    def add_steps(self, steps: NamedSteps) -> Coroutine[Any, Any, dict[str, EnqueueOutcome]]:
        return self._call("add_steps", lambda: self._add_steps(steps))

    def parents(self) -> Coroutine[Any, Any, tuple[ParentJob, ...]]:
        return self._call("parents", self._read_parents)

    def checkpoint(self, value: object) -> Coroutine[Any, Any, None]:
        return self._call("checkpoint", lambda: self._save(value))

    def load_checkpoint(self, type: Any = Any, default: Any = None) -> Coroutine[Any, Any, Any]:
        return self._call("load_checkpoint", lambda: self._load(type, default))

    def once(self, connection: object, step: str) -> Coroutine[Any, Any, bool]:
        return self._call("once", lambda: self._note(step))

    # -- for run_inline ------------------------------------------------------------------------

    def begin(self, enqueue: Enqueue | None, client: Any = None) -> None:
        """Take note of the loop that the handler runs on, and of the way to a real store."""
        self._client = self._client or client
        self._home = LoopThread()
        self._calls = ContextCalls(self._home)
        self._enqueue = enqueue

    def unawaited(self) -> tuple[str, ...]:
        """Return the names of the calls that the handler has not awaited."""
        return () if self._calls is None else self._calls.unawaited()

    # -- the work of the calls -----------------------------------------------------------------

    def _call(
        self, name: str, begin: Callable[[], Coroutine[Any, Any, T]]
    ) -> Coroutine[Any, Any, T]:
        return begin() if self._calls is None else self._calls.call(name, begin)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` for a thread that blocks."""
        if self._home is not None:
            return self._home.wait_for(work)
        try:
            work.send(None)
        except StopIteration as finished:
            return cast("T", finished.value)
        finally:
            work.close()
        raise RuntimeError("a fake context has awaited something outside of an event loop")

    async def _finish(self, connection: object, result: object) -> None:
        self.finished_in.append((connection, result))

    async def _enqueue_one(
        self, request: EnqueueRequest[T], options: EnqueueOptions
    ) -> EnqueueOutcome[T]:
        check_request(request)
        [outcome] = await self._enqueue_all([request.options(**options)])
        return outcome

    async def _enqueue_all(
        self, requests: Iterable[EnqueueRequest[T]], spread: timedelta | float | None = None
    ) -> list[EnqueueOutcome[T]]:
        check_requests(requests)
        wanted = list(spread_over(requests, spread))
        outcomes: list[EnqueueOutcome] = (
            [EnqueueOutcome(job.id) for job in prepare_many(wanted)]
            if self._enqueue is None
            else await self._enqueue([*wanted])
        )
        self.enqueued += wanted
        return with_types(wanted, outcomes)

    async def _add_steps(self, steps: NamedSteps) -> dict[str, EnqueueOutcome]:
        self.added_steps.append(steps)
        return {name: EnqueueOutcome(new_job_id()) for name in steps.requests}

    async def _read_parents(self) -> tuple[ParentJob, ...]:
        return self._parents

    async def _save(self, value: object) -> None:
        self._checkpoint = _encoded(value)

    async def _load(self, kind: Any, default: Any) -> Any:
        if self._checkpoint is None:
            return default
        try:
            return msgspec.json.decode(self._checkpoint, type=kind)
        except msgspec.ValidationError as error:
            raise UndecodablePayload("checkpoint", str(error)) from None

    async def _note(self, step: str) -> bool:
        if check_name("step", step) in self.steps:
            return False
        self.steps.append(step)
        return True

    async def _acquire(self, scope: str, count: int) -> bool:
        check_count(count)
        if self._tokens is not None:
            left = self._tokens.get(scope)
            if left is None:
                known = ", ".join(map(repr, self._tokens)) or "none"
                raise InvalidInput(
                    "rate_limits",
                    f"of the fake context has no scope {scope!r}, only {known}",
                    f"write fake_context(rate_limits={{{scope!r}: 1}})",
                )
            if left < count:
                return False
            self._tokens[scope] = left - count
        self.acquired[scope] = self.acquired.get(scope, 0) + count
        return True

    async def _drain(self, scope: str) -> None:
        self.drained.append(scope)
        if self._tokens is not None:
            self._tokens[scope] = 0


class FakeProgress:
    """Keeps the progress that a handler reports.

    :ivar reports: current, total and message of each call
    """

    def __init__(self) -> None:
        self.reports: list[tuple[float, float | None, str]] = []

    def set(self, current: float, total: float | None = None, message: str = "") -> None:
        """Keep a report.

        :raises InvalidInput: ``ctx.progress.set`` of a run would refuse the arguments
        """
        checked(current, total, message)
        self.reports.append((current, total, message))


class FakeRateLimits:
    """The rate limits of a fake context: without end, unless the test has given numbers."""

    def __init__(self, context: FakeContext) -> None:
        self._context = context

    def acquire(
        self, scope: str, count: int = 1, *, wait: timedelta | float | None = None
    ) -> Coroutine[Any, Any, bool]:
        context = self._context
        return context._call("rate_limit.acquire", lambda: context._acquire(scope, count))

    def drain(self, scope: str) -> Coroutine[Any, Any, None]:
        context = self._context
        return context._call("rate_limit.drain", lambda: context._drain(scope))


class FakeSyncRateLimits:
    """:class:`FakeRateLimits` for ``def`` handlers."""

    def __init__(self, context: FakeContext) -> None:
        self._context = context

    def acquire(self, scope: str, count: int = 1, *, wait: timedelta | float | None = None) -> bool:
        return self._context.wait_for(self._context._acquire(scope, count))

    def drain(self, scope: str) -> None:
        self._context.wait_for(self._context._drain(scope))


class FakeSyncContext:
    """The blocking side of a fake context."""

    def __init__(self, context: FakeContext) -> None:
        self._context = context
        self.rate_limit = FakeSyncRateLimits(context)

    def finish_in(self, connection: object, result: object = None) -> None:
        self._context.wait_for(self._context._finish(connection, result))

    def enqueue(
        self, request: EnqueueRequest[T], **options: Unpack[EnqueueOptions]
    ) -> EnqueueOutcome[T]:
        return self._context.wait_for(self._context._enqueue_one(request, options))

    def enqueue_many(
        self, requests: Iterable[EnqueueRequest[T]], *, spread: timedelta | float | None = None
    ) -> list[EnqueueOutcome[T]]:
        return self._context.wait_for(self._context._enqueue_all(requests, spread))

    def add_steps(self, steps: NamedSteps) -> dict[str, EnqueueOutcome]:
        return self._context.wait_for(self._context._add_steps(steps))

    def parents(self) -> tuple[ParentJob, ...]:
        return self._context._parents

    def checkpoint(self, value: object) -> None:
        self._context.wait_for(self._context._save(value))

    def load_checkpoint(self, type: Any = Any, default: Any = None) -> Any:
        return self._context.wait_for(self._context._load(type, default))

    def once(self, connection: object, step: str) -> bool:
        return self._context.wait_for(self._context._note(step))


def _encoded(value: object) -> str:
    try:
        return encode_json("checkpoint", value)
    except InvalidInput:
        return encode_json("checkpoint", to_plain(value))


def fake_context(**attributes: Any) -> FakeContext:
    """Return a context for a handler that a test calls: ``await sync(fake_context(attempt=2), 7)``.

    The context needs no store, no pod and no event loop. Requests that the handler enqueues are
    kept in ``context.enqueued``, and every rate limit has tokens unless ``rate_limits`` says how
    many.

    :param attributes: kind, queue, job_id, attempt, occurrence, max_attempts, token, worker_id,
        tags, metadata, trace, stop_reason, rate_limits (scope -> tokens), parents (any objects with
        the attributes of ``ParentJob``), checkpoint (of an earlier run), steps (of ``once``, done
        already), state (of the lifespans), client (for a parameter of the type ``JobClient``), and
        dead_letter
    """
    return FakeContext(**attributes)
