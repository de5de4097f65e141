"""Runs one handler once, as a worker would, and returns or raises what the handler did."""

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any

from forge_jobs.clients.client import JobClient
from forge_jobs.clock import SystemClock, from_us
from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.injection.running import ComposedRun, RunScope
from forge_jobs.handlers.outcomes import Again, Outcome
from forge_jobs.handlers.preparing import unencrypted
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import HostId, new_host_id
from forge_jobs.model.jobs import Cause, Claim, ClaimedJob, NewJob
from forge_jobs.policy.transitions import AttemptEnd
from forge_jobs.runtime.queue.execution import execute
from forge_jobs.runtime.queue.run import Run
from forge_jobs.runtime.shared.pod_values import PodValues
from forge_jobs.runtime.shared.threads import HandlerThread
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.kit.context import Enqueue, FakeContext

_PATIENCE = 1.0

Threads = Callable[[], HandlerThread]


async def run_once(
    what: Handler[..., Any] | EnqueueRequest,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    *,
    context: FakeContext | None,
    handlers: HandlerRegistry | None,
    enqueue: Enqueue | None,
    thread: Threads | None,
    storage: Storage | None = None,
) -> Any:
    """Run a handler once. See :func:`run_inline`.

    :param handlers: knows the handler of a request
    :param enqueue: the way of enqueued requests to a store. None: they are only recorded
    :param thread: gives the thread of a ``def`` handler. None: a new one
    :param storage: of the client that is injected. None: the context's own
    """
    handler, request = _resolved(what, arguments, keywords, handlers)
    # An encrypted payload could be read under the id of this job alone.
    job, _ = unencrypted(request, handlers)
    context = context or FakeContext(
        kind=job.kind,
        queue=job.queue,
        job_id=job.id,
        max_attempts=job.max_attempts,
        tags=job.tags,
        metadata=json.loads(job.metadata),
        trace=json.loads(job.trace or "{}"),
    )
    client = JobClient(storage, handlers) if storage is not None and handler.run else None
    context.begin(enqueue, client)
    values = PodValues(client)
    seen = _Seen()
    host_id = new_host_id()
    run = Run(
        _claimed(job, context, host_id),
        seen.watching(handler),
        context.worker_id,
        SystemClock().elapsed(),
        asyncio.get_running_loop(),
        patience=_PATIENCE,
    )
    started: list[HandlerThread] = []

    def a_thread() -> HandlerThread:
        if thread is not None:
            return thread()
        started.append(HandlerThread("forge-jobs-inline"))
        return started[0]

    try:
        end = await execute(run, host_id, lambda _: context, a_thread, values)
    finally:
        until = asyncio.get_running_loop().time() + _PATIENCE
        await values.close(lambda: until)
        if client is not None:
            await client.aclose()
        for each in started:
            each.close()
    assert end is not None
    return seen.outcome(end, handler)


def _resolved(
    what: object,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    handlers: HandlerRegistry | None,
) -> tuple[Handler[..., Any], EnqueueRequest]:
    if isinstance(what, Handler):
        return what, what.request(*arguments, **keywords)
    if not isinstance(what, EnqueueRequest):
        raise InvalidInput(
            "handler", f"is {a_type(what)}", "give a handler and its arguments, or a request"
        )
    if arguments or keywords:
        raise InvalidInput(
            "handler", "is a request and comes with arguments", "give the arguments to the request"
        )
    handler = None if handlers is None else handlers.get(what.kind)
    if handler is None:
        raise InvalidInput(
            "handler",
            f"is a request of kind {what.kind!r}, which the registry does not know",
            "give the handler and its arguments, or the registry by the fixture forge_handlers",
        )
    return handler, what


def _claimed(job: NewJob, context: FakeContext, host_id: HostId) -> ClaimedJob:
    now = from_us(context.token)
    return ClaimedJob(
        claim=Claim(context.queue, context.job_id, context.token, host_id),
        kind=context.kind,
        payload=job.payload,
        attempt=context.attempt,
        max_attempts=context.max_attempts,
        crashes=0,
        snoozes=0,
        priority=job.priority,
        timeout=job.timeout,
        tags=context.tags,
        metadata=job.metadata,
        trace=job.trace,
        run_at=now,
        enqueued_at=now,
        keep_result=job.keep_result,
    )


class _Seen:
    """Keeps the value or the exception of a handler, of which a worker makes a record."""

    def __init__(self) -> None:
        self._value: Any = None
        self._error: BaseException | None = None

    def watching(self, handler: Handler[..., Any]) -> Handler[..., Any]:
        """Return the handler with a function that leaves a note here."""
        function = handler.function
        watched = copy.copy(handler)
        watched.function = self._awaited(function) if handler.is_async else self._called(function)
        if handler.run is not None:
            watched.run = self._composed(handler.run)
        return watched

    def _composed(self, run: ComposedRun) -> ComposedRun:
        async def call(scope: RunScope, arguments: dict[str, Any]) -> object:
            try:
                self._value = await run(scope, arguments)
            except BaseException as error:
                self._error = error
                raise
            return self._value

        return call

    def _awaited(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(**arguments: Any) -> Any:
            try:
                self._value = await function(**arguments)
            except BaseException as error:
                self._error = error
                raise
            return self._value

        return call

    def _called(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            try:
                self._value = function(**arguments)
            except BaseException as error:
                self._error = error
                raise
            return self._value

        return call

    def outcome(self, end: AttemptEnd, handler: Handler[..., Any]) -> Any:
        """Return the value, or raise what a worker would have taken for the end of the attempt."""
        if end.cause is Cause.TIMED_OUT and isinstance(self._error, asyncio.CancelledError):
            message = end.error.message if end.error else "timed out"
            raise TimeoutError(message) from self._error
        if self._error is not None and not isinstance(self._error, Again):
            raise self._error
        if end.exception is not None:
            raise end.exception
        if isinstance(self._error, Again):
            return self._error
        if isinstance(self._value, Again):
            return self._value
        if isinstance(self._value, Outcome):
            raise self._value
        if end.error is not None:
            # The worker keeps the success and drops the result. A test should hear of it.
            handler.encode_result(self._value)
        return self._value
