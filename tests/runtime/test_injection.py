"""Injected parameters: made for the run of a job, and cleaned up however the run ends."""

import asyncio
import contextvars
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import anyio
import pytest

from forge_jobs import (
    Dead,
    Depends,
    HandlerRegistry,
    Injected,
    JobClient,
    JobContext,
    JobProgress,
    RuntimeSettings,
    Snoozed,
    SyncJobClient,
)
from forge_jobs.model.jobs import Cause, Job, JobStatus
from forge_jobs.model.transitions import Revival
from forge_jobs.storage.protocols import Storage
from tests.support.factories import crashed
from tests.support.runtimes import a_runtime, ended, job_because, job_when, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Stage:
    """Factories of each shape that note what happens to them, and a handler of either kind."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.threads: dict[str, str] = {}
        self.handlers = HandlerRegistry()
        self.began = anyio.Event()

    def note(self, name: str) -> None:
        self.notes.append(name)
        self.threads[name] = threading.current_thread().name

    async def outer(self) -> AsyncIterator[str]:
        self.note("outer")
        try:
            yield "outer"
        except BaseException as error:
            self.note(f"outer gets {type(error).__name__}")
            raise
        finally:
            self.note("outer ends")

    def inner(self) -> Iterator[str]:
        self.note("inner")
        try:
            yield "inner"
        finally:
            error = sys.exception()
            self.note(f"inner ends{'' if error is None else f' by {type(error).__name__}'}")

    def handler(self, *, is_async: bool, body: Callable[[JobContext], Any], **options: Any) -> Any:
        """Register a handler with an outer and an inner dependency that runs ``body``."""
        outer, inner = self.outer, self.inner

        def nested(one: Annotated[str, Depends(outer)], two: Annotated[str, Depends(inner)]) -> str:
            self.note("nested")
            return f"{one} and {two}"

        loop = asyncio.get_running_loop()
        if is_async:

            async def acts(ctx: JobContext, value: str = Depends(nested)) -> str:
                self.note("handler")
                self.began.set()
                result = body(ctx)
                if asyncio.iscoroutine(result):
                    await result
                return value

            return self.handlers.register(acts, "acts", **options)

        def acts_in_thread(ctx: JobContext, value: str = Depends(nested)) -> str:
            self.note("handler")
            loop.call_soon_threadsafe(self.began.set)
            body(ctx)
            return value

        return self.handlers.register(acts_in_thread, "acts", **options)


def nothing(_: JobContext) -> None:
    pass


async def wait_for_ever(_: JobContext) -> None:
    await anyio.sleep_forever()


def wait_in_thread(ctx: JobContext) -> None:
    ended = threading.Event()
    while not ctx.cancel_requested:
        ended.wait(0.002)
    raise InterruptedError("stopped")


BOTH = pytest.mark.parametrize("is_async", [True, False], ids=["async def", "def"])


@BOTH
async def test_values_are_made_in_order_and_cleaned_up_in_reverse(
    storage: Storage, is_async: bool
) -> None:
    stage = Stage()
    handler = stage.handler(is_async=is_async, body=nothing)
    async with a_runtime(storage, stage.handlers).start() as handle:
        job_id = (await handle.enqueue(handler.request())).job_id
        assert await handle.result(job_id, timeout=60) == "outer and inner"
    assert stage.notes == ["outer", "inner", "nested", "handler", "inner ends", "outer ends"]


@BOTH
async def test_what_is_async_works_on_the_loop_and_all_else_in_one_thread(
    storage: Storage, is_async: bool
) -> None:
    stage = Stage()
    handler = stage.handler(is_async=is_async, body=nothing)
    async with a_runtime(storage, stage.handlers).start() as handle:
        job_id = (await handle.enqueue(handler.request())).job_id
        await handle.result(job_id, timeout=60)
    here = threading.current_thread().name
    thread = stage.threads["inner"]
    assert thread.startswith("forge-jobs-handler")
    assert stage.threads == {
        "outer": here,
        "inner": thread,
        "nested": thread,
        "handler": here if is_async else thread,
        "inner ends": thread,
        "outer ends": here,
    }


def raises_value_error(_: JobContext) -> None:
    raise ValueError("wrong")


def says_dead(_: JobContext) -> None:
    raise Dead("no use")


def says_snoozed(_: JobContext) -> None:
    raise Snoozed(3600)


@BOTH
@pytest.mark.parametrize(
    ("body", "status", "cause"),
    [
        (raises_value_error, JobStatus.DEAD, Cause.FAILED),
        (says_dead, JobStatus.DEAD, Cause.REJECTED),
        (says_snoozed, JobStatus.PENDING, Cause.SNOOZED),
    ],
)
async def test_an_exception_of_the_handler_reaches_every_clean_up(
    storage: Storage, is_async: bool, body: Any, status: JobStatus, cause: Cause
) -> None:
    stage = Stage()
    handler = stage.handler(is_async=is_async, body=body, max_attempts=1)
    async with a_runtime(storage, stage.handlers).start() as handle:
        job_id = (await handle.enqueue(handler.request())).job_id
        job = await job_because(storage, job_id, cause)
    assert job.status is status
    raised = "ValueError" if cause is Cause.FAILED else type(_raised(body)).__name__
    assert stage.notes[-3:] == [f"inner ends by {raised}", f"outer gets {raised}", "outer ends"]


def _raised(body: Any) -> BaseException:
    with pytest.raises(Exception) as found:  # noqa: PT011 - any of them
        body(None)
    return found.value


async def _cancelled(stage: Stage, storage: Storage, handler: Any) -> Job:
    async with a_runtime(storage, stage.handlers).start() as handle:
        job_id = (await handle.enqueue(handler.request())).job_id
        await stage.began.wait()
        await handle.cancel(job_id)
        return await ended(storage, job_id)


async def _timed_out(stage: Stage, storage: Storage, handler: Any) -> Job:
    async with a_runtime(storage, stage.handlers).start() as handle:
        job_id = (await handle.enqueue(handler.request(), timeout=0.05)).job_id
        return await ended(storage, job_id)


async def _stopped(stage: Stage, storage: Storage, handler: Any) -> Job:
    async with a_runtime(storage, stage.handlers).start() as handle:
        job_id = (await handle.enqueue(handler.request())).job_id
        await stage.began.wait()
        assert (await handle.stop(timeout=0)).is_clean
    return (await storage.jobs.get([job_id]))[job_id]


async def _lost(stage: Stage, storage: Storage, handler: Any) -> Job:
    async with a_runtime(storage, stage.handlers).start() as handle:
        job_id = (await handle.enqueue(handler.request())).job_id
        await stage.began.wait()
        await job_when(storage, job_id, JobStatus.IN_PROGRESS)
        await storage.config.set_paused("default", True)

        async def revive() -> bool:
            stale = await storage.jobs.stale_claims(seconds(0.000001), 100)
            mine = [Revival(each.claim, crashed()) for each in stale]
            return await storage.jobs.revive(mine, seconds(0.000001)) == [True]

        await wait_until(revive, description="no beat comes between")
        await wait_until(lambda: handle.health().lost_claims, description="the loss is noticed")
        await wait_until(lambda: "outer ends" in stage.notes, description="all is cleaned up")
    return (await storage.jobs.get([job_id]))[job_id]


@BOTH
@pytest.mark.parametrize(
    ("end", "cause", "attempt"),
    [
        (_cancelled, Cause.CANCELLED, 1),
        (_timed_out, Cause.TIMED_OUT, 1),
        (_stopped, Cause.INTERRUPTED, 0),
        (_lost, Cause.CRASHED, 1),
    ],
)
async def test_a_stop_from_outside_reaches_every_clean_up(
    storage: Storage, is_async: bool, end: Any, cause: Cause, attempt: int
) -> None:
    stage = Stage()
    body = wait_for_ever if is_async else wait_in_thread
    handler = stage.handler(is_async=is_async, body=body, max_attempts=1)

    job = await end(stage, storage, handler)

    assert (job.cause, job.attempt) == (cause, attempt)
    raised = "CancelledError" if is_async else "InterruptedError"
    assert stage.notes[-3:] == [f"inner ends by {raised}", f"outer gets {raised}", "outer ends"]


async def test_one_factory_gives_all_parameters_of_a_job_one_value(storage: Storage) -> None:
    handlers = HandlerRegistry()
    made: list[int] = []

    async def number() -> int:
        made.append(len(made))
        return made[-1]

    async def double(number: int = Depends(number)) -> int:
        return 2 * number

    @handlers.job("counts")
    async def counts(
        one: int = Depends(number),
        two: int = Depends(double),
        fresh: int = Depends(number, use_cache=False),
    ) -> list[int]:
        return [one, two, fresh]

    async with a_runtime(storage, handlers).start() as handle:
        results = []
        for _ in range(2):
            job_id = (await handle.enqueue(counts.request())).job_id
            results.append(await handle.result(job_id, timeout=60))
    assert results == [[0, 0, 1], [2, 4, 3]]


async def test_values_of_the_job_come_by_annotation(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()

    def who(ctx: JobContext) -> str:
        return f"{ctx.kind} in attempt {ctx.attempt}"

    @handlers.job("child")
    async def child() -> None: ...

    @handlers.job("asks")
    async def asks(
        client: JobClient = Injected,
        log: logging.Logger = Injected,
        other: "logging.LoggerAdapter[logging.Logger]" = Injected,
        progress: JobProgress = Injected,
        who: str = Depends(who),
    ) -> str:
        progress.set(1, 2, "asking")
        log.info("as %s", "a logger")
        other.info("as an adapter")
        return f"{who}, child {(await client.enqueue(child.request())).deduplicated}"

    @handlers.job("asks.thread")
    def asks_in_thread(ctx: JobContext, client: SyncJobClient = Injected) -> bool:
        return client.enqueue(child.request()).deduplicated

    with caplog.at_level(logging.INFO, "forge_jobs.job"):
        async with a_runtime(storage, handlers).start() as handle:
            first = (await handle.enqueue(asks.request())).job_id
            assert await handle.result(first, timeout=60) == "asks in attempt 1, child False"
            second = (await handle.enqueue(asks_in_thread.request())).job_id
            assert await handle.result(second, timeout=60) is False
    lines = [record for record in caplog.records if record.name == "forge_jobs.job"]
    assert [line.__dict__["job_id"] for line in lines] == [first, first]
    assert "as a logger" in lines[0].getMessage()


@BOTH
async def test_a_factory_that_hangs_is_stopped_by_the_timeout(
    storage: Storage, is_async: bool
) -> None:
    stage = Stage()
    outer = stage.outer

    async def hangs(outer: str = Depends(outer)) -> str:
        await anyio.sleep_forever()
        return outer

    async def never(value: str = Depends(hangs)) -> None:
        stage.note("handler")

    def never_in_thread(value: str = Depends(hangs)) -> None:
        stage.note("handler")

    function: Any = never if is_async else never_in_thread
    handler = stage.handlers.register(function, "never", max_attempts=1, timeout=0.05)
    async with a_runtime(storage, stage.handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(handler.request())).job_id)
    assert (job.status, job.cause) == (JobStatus.DEAD, Cause.TIMED_OUT)
    assert stage.notes == ["outer", "outer gets CancelledError", "outer ends"]


async def test_a_factory_that_fails_fails_the_attempt_and_names_its_own_lines(
    storage: Storage,
) -> None:
    stage = Stage()
    outer = stage.outer

    def fails(outer: str = Depends(outer)) -> str:
        raise LookupError("no such host")

    @stage.handlers.job("never", max_attempts=1)
    async def never(value: str = Depends(fails)) -> None:
        stage.note("handler")

    async with a_runtime(storage, stage.handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(never.request())).job_id)
    assert (job.status, job.errors[0].type) == (JobStatus.DEAD, "LookupError")
    assert "in fails" in job.errors[0].traceback
    assert "forge_jobs/runtime" not in job.errors[0].traceback
    assert stage.notes == ["outer", "outer gets LookupError", "outer ends"]


async def test_a_thread_that_makes_a_value_is_waited_for_and_its_value_cleaned_up(
    storage: Storage,
) -> None:
    stage, go_on = Stage(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow() -> Iterator[str]:
        stage.note("slow")
        loop.call_soon_threadsafe(stage.began.set)
        go_on.wait()
        try:
            yield "slow"
        finally:
            stage.note("slow ends")

    @stage.handlers.job("never")
    async def never(value: str = Depends(slow)) -> None:
        stage.note("handler")

    async with a_runtime(storage, stage.handlers).start() as handle:
        job_id = (await handle.enqueue(never.request())).job_id
        await stage.began.wait()
        # The loop turns while the factory blocks: a cancel is asked for, and arrives.
        await handle.cancel(job_id)
        run = next(handle._pod.runs())
        await wait_until(lambda: run.stop_reason, description="the run is being stopped")
        go_on.set()
        job = await ended(storage, job_id)
    assert job.status is JobStatus.CANCELLED
    assert stage.notes == ["slow", "slow ends"]


async def test_context_variables_of_a_factory_reach_the_handler_and_its_own_clean_up(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")
    seen: list[str] = []

    async def on_loop() -> AsyncIterator[None]:
        token = tenant.set("loop")
        yield
        tenant.reset(token)
        seen.append(tenant.get())

    def in_thread() -> Iterator[None]:
        token = tenant.set("thread")
        yield
        tenant.reset(token)
        seen.append(tenant.get())

    @handlers.job("one")
    async def one(value: None = Depends(on_loop)) -> str:
        return tenant.get()

    @handlers.job("two")
    def two(first: None = Depends(on_loop), second: None = Depends(in_thread)) -> str:
        return tenant.get()

    async with a_runtime(storage, handlers).start() as handle:
        for handler, expected in ((one, "loop"), (two, "thread")):
            job_id = (await handle.enqueue(handler.request())).job_id
            assert await handle.result(job_id, timeout=60) == expected
    assert seen == ["none", "loop", "none"]


async def test_a_stop_waits_for_a_clean_up_and_cuts_one_that_hangs(
    storage: Storage,
) -> None:
    stage = Stage()
    outer = stage.outer

    async def hangs(outer: str = Depends(outer)) -> AsyncIterator[str]:
        try:
            yield outer
        finally:
            stage.note("hangs")
            stage.began.set()
            await anyio.sleep_forever()

    @stage.handlers.job("short", max_attempts=1)
    async def short(value: str = Depends(hangs)) -> None:
        stage.note("handler")

    settings: RuntimeSettings = quick_settings(grace=seconds(0.5), patience=seconds(0.1))
    async with a_runtime(storage, stage.handlers, settings=settings).start() as handle:
        job_id = (await handle.enqueue(short.request())).job_id
        await stage.began.wait()
        assert (await handle.stop()).is_clean
    job = (await storage.jobs.get([job_id]))[job_id]
    assert (job.status, job.cause, job.attempt) == (JobStatus.PENDING, Cause.INTERRUPTED, 0)
    assert stage.notes == [
        "outer", "handler", "hangs", "outer gets CancelledError", "outer ends",
    ]  # fmt: skip


async def test_a_clean_up_that_hangs_after_a_cancel_is_cancelled_again(storage: Storage) -> None:
    stage = Stage()
    outer = stage.outer

    async def hangs(outer: str = Depends(outer)) -> AsyncIterator[str]:
        try:
            yield outer
        finally:
            stage.note("hangs")
            await anyio.sleep_forever()

    @stage.handlers.job("waits", max_attempts=1)
    async def waits(value: str = Depends(hangs)) -> None:
        stage.began.set()
        await anyio.sleep_forever()

    settings = quick_settings(patience=seconds(0.1))
    async with a_runtime(storage, stage.handlers, settings=settings).start() as handle:
        job_id = (await handle.enqueue(waits.request())).job_id
        await stage.began.wait()
        await handle.cancel(job_id)
        job = await ended(storage, job_id)
    assert job.cause is Cause.CANCELLED
    assert stage.notes == ["outer", "hangs", "outer gets CancelledError", "outer ends"]
