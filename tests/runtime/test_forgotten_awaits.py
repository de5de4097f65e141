"""A context's method that is called in the wrong way says so and is never silently skipped."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.outcomes import Dead, RateLimited
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queues import RateLimit
from forge_jobs.runtime.queue.context_calls import ContextCalls, LoopThread
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

LIMITS = {"gh": RateLimit(10, per=3600)}
CHILD = EnqueueRequest("child")
CALLS: dict[str, Callable[[JobContext], Awaitable[Any]]] = {
    "enqueue": lambda ctx: ctx.enqueue(CHILD),
    "enqueue_many": lambda ctx: ctx.enqueue_many([CHILD]),
    "finish_in": lambda ctx: ctx.finish_in(object()),
    "rate_limit.acquire": lambda ctx: ctx.rate_limit.acquire("gh"),
    "rate_limit.drain": lambda ctx: ctx.rate_limit.drain("gh"),
}


def registry(**handlers: Callable[..., Any]) -> HandlerRegistry:
    """The handlers by kind, and ``child``."""
    made = HandlerRegistry()
    for kind, function in handlers.items():
        made.register(function, kind, max_attempts=3)

    @made.job("child")
    async def child() -> str:
        return "ran"

    return made


async def the_end_of(storage: Storage, handlers: HandlerRegistry, kind: str) -> Any:
    """Return the ended job of ``kind``, and how many children there are."""
    async with a_runtime(storage, handlers, rate_limits=LIMITS).start() as handle:
        job = await ended(storage, (await handle.enqueue(EnqueueRequest(kind))).job_id)
    counts = (await storage.jobs.counts(["default"]))["default"].by_status
    return job, sum(counts.values()) - 1


async def test_a_plain_function_that_calls_without_sync_is_told_at_the_call(
    storage: Storage,
) -> None:
    said: dict[str, str] = {}

    def forgets(ctx: JobContext) -> None:
        for name, call in CALLS.items():
            with pytest.raises(RuntimeError) as raised:
                call(ctx)
            said[name] = str(raised.value)

    job, children = await the_end_of(storage, registry(forgets=forgets), "forgets")
    assert job.status is JobStatus.DONE, job.errors
    assert all(f"ctx.sync.{name}(" in said[name] for name in CALLS)
    assert children == 0
    [limit] = await storage.config.rate_limits()
    assert limit.available == 10


async def test_a_coroutine_function_that_awaits_nothing_is_dead_at_once_with_that_reason(
    storage: Storage,
) -> None:
    async def forgets(ctx: JobContext) -> str:
        for call in CALLS.values():
            call(ctx)
        await ctx.rate_limit.acquire("gh")
        return "all is well"

    job, children = await the_end_of(storage, registry(forgets=forgets), "forgets")
    assert (job.status, job.cause, job.attempt) == (JobStatus.DEAD, Cause.FAILED, 1)
    [error] = job.errors
    assert error.type == "NeverAwaited"
    assert all(f"ctx.{name}(...)" in error.message for name in CALLS)
    assert children == 0


async def test_a_forgotten_await_before_an_outcome_is_no_hand_back_for_ever(
    storage: Storage,
) -> None:
    async def waits(ctx: JobContext) -> None:
        _forgotten = ctx.enqueue(CHILD)
        raise RateLimited("gh")

    async def gives_up(ctx: JobContext) -> None:
        _forgotten = ctx.enqueue(CHILD)
        raise Dead("my own reason")

    handlers = registry(waits=waits, gives_up=gives_up)
    job, _ = await the_end_of(storage, handlers, "waits")
    assert (job.status, job.errors[-1].type) == (JobStatus.DEAD, "NeverAwaited")
    job, _ = await the_end_of(storage, handlers, "gives_up")
    assert job.errors[-1].message == "my own reason"


async def test_calls_that_are_awaited_later_or_run_as_tasks_are_not_forgotten(
    storage: Storage,
) -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def patient(ctx: JobContext) -> bool:
        later = ctx.enqueue(CHILD)
        both = asyncio.gather(ctx.enqueue(CHILD), ctx.rate_limit.acquire("gh"))
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.enqueue_many([CHILD, CHILD]))
        await both
        await later
        # Begins when the handler has returned already.
        tasks.append(asyncio.create_task(ctx.enqueue(CHILD)))
        return True

    job, children = await the_end_of(storage, registry(patient=patient), "patient")
    assert (job.status, job.errors) == (JobStatus.DONE, ())
    await asyncio.gather(*tasks)
    assert children == 5


async def test_a_call_behaves_like_a_coroutine() -> None:
    async def work(value: str) -> str:
        await asyncio.Event().wait()
        return value

    calls = ContextCalls(LoopThread())
    call = calls.call("work", lambda: work("done"))
    assert asyncio.iscoroutine(call)
    assert calls.unawaited() == ("work",)
    task = asyncio.create_task(call)
    await asyncio.wait([task], timeout=0)
    assert calls.unawaited() == ()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    calls.call("work", lambda: work("never")).close()
    assert calls.unawaited() == ()

    async def failing() -> None:
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        await calls.call("failing", failing)


async def test_a_call_from_another_thread_is_refused_wherever_it_comes_from() -> None:
    calls = ContextCalls(LoopThread())
    raised: list[BaseException] = []

    def elsewhere() -> None:
        try:
            calls.call("enqueue", lambda: asyncio.sleep(0))  # noqa: TID251
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "ctx.sync.enqueue(" in str(raised[0])
