"""Middleware: functions around each run, in order, that lose nothing."""

from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from forge_jobs import Dead, Depends, EnqueueOutcome, EnqueueRequest, HandlerRegistry, JobContext
from forge_jobs.errors import RegistrationError
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

notes: list[str] = []


@pytest.fixture(autouse=True)
def _no_notes() -> None:
    notes.clear()


async def outer(ctx: JobContext) -> AsyncIterator[None]:
    notes.append(f"outer before {ctx.kind}")
    try:
        yield
    except BaseException as error:
        notes.append(f"outer sees {type(error).__name__}")
        raise
    finally:
        notes.append("outer after")


def inner(ctx: JobContext) -> Iterator[None]:
    notes.append("inner before")
    yield
    notes.append("inner after")


def session() -> Iterator[str]:
    notes.append("session opens")
    yield "session"
    notes.append("session closes")


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_registrys_is_outermost_and_values_are_made_inside(
    storage: Storage, is_async: bool
) -> None:
    handlers = HandlerRegistry(middleware=[outer])

    async def in_loop(n: int, db: str = Depends(session)) -> str:
        notes.append("runs")
        return f"{n} {db}"

    def in_thread(n: int, db: str = Depends(session)) -> str:
        notes.append("runs")
        return f"{n} {db}"

    function: Any = in_loop if is_async else in_thread
    work = handlers.register(function, "work", middleware=[inner])
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(work.request(7))
        assert await handle.result(outcome.job_id, timeout=50) == "7 session"
    assert notes == [
        "outer before work",
        "inner before",
        "session opens",
        "runs",
        "session closes",
        "inner after",
        "outer after",
    ]


async def test_a_failure_passes_through_and_stays(storage: Storage) -> None:
    handlers = HandlerRegistry(middleware=[outer, inner])

    @handlers.job("fails", max_attempts=1)
    async def fails() -> None:
        raise ValueError("no")

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(fails.request())).job_id)
    assert (job.status, job.errors[-1].message) == (JobStatus.DEAD, "no")
    assert notes == ["outer before fails", "inner before", "outer sees ValueError", "outer after"]


async def test_before_the_run_an_error_is_a_failure_of_the_job(storage: Storage) -> None:
    def refuses() -> Iterator[None]:
        raise Dead("not on Sundays")
        yield

    handlers = HandlerRegistry(middleware=[outer, refuses])

    @handlers.job("work")
    async def work() -> None:
        notes.append("runs")

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(work.request())).job_id)
    assert (job.status, job.cause) == (JobStatus.DEAD, Cause.REJECTED)
    assert notes == ["outer before work", "outer sees Dead", "outer after"]


def breaks_in_thread() -> Iterator[None]:
    yield
    raise OSError("the metrics are away")


async def breaks_on_loop() -> AsyncIterator[None]:
    try:
        yield
    finally:
        raise OSError("the metrics are away")


@pytest.mark.parametrize("breaks", [breaks_in_thread, breaks_on_loop])
async def test_after_the_run_an_error_is_kept_and_changes_no_end(
    storage: Storage, breaks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry(middleware=[outer, breaks])

    @handlers.job("work")
    async def work() -> int:
        return 7

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(work.request())
        assert await handle.result(outcome.job_id, timeout=50) == 7
        job = await ended(storage, outcome.job_id)
    assert (job.status, job.attempt) == (JobStatus.DONE, 1)
    assert [each.message for each in job.errors] == ["the metrics are away"]
    assert f"the middleware {breaks.__name__} failed after job {job.id} (work)" in caplog.text
    assert notes == ["outer before work", "outer after"]


async def test_of_two_errors_the_handlers_is_the_end(storage: Storage) -> None:
    handlers = HandlerRegistry(middleware=[breaks_on_loop])

    @handlers.job("fails", max_attempts=1)
    async def fails() -> None:
        raise ValueError("no")

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(fails.request())).job_id)
    assert (job.status, job.errors[-1].message) == (JobStatus.DEAD, "no")
    assert "the middleware breaks_on_loop raised OSError" in job.errors[-1].traceback


async def test_middleware_that_swallows_an_exception_changes_nothing(storage: Storage) -> None:
    async def swallows() -> AsyncIterator[None]:
        try:
            yield
        except ValueError:
            notes.append("swallowed")

    handlers = HandlerRegistry(middleware=[swallows])

    @handlers.job("fails", max_attempts=1)
    async def fails() -> None:
        raise ValueError("no")

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(fails.request())).job_id)
    assert (job.status, notes) == (JobStatus.DEAD, ["swallowed"])


@pytest.mark.parametrize(
    ("middleware", "message"),
    [
        ([7], "middleware has an int, which cannot be called"),
        (inner, "give a list of functions"),
        (7, "give a list of functions"),
        ([lambda wanted: None], "nothing says what makes it"),
    ],
)
async def test_wrong_middleware_is_refused_at_registration(middleware: Any, message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        HandlerRegistry(middleware=middleware).job("work")(lambda: None)
    with pytest.raises(RegistrationError, match=message):
        HandlerRegistry().job("work", middleware=middleware)(lambda: None)


@pytest.mark.parametrize("is_async", [True, False])
async def test_what_a_handler_enqueues_has_middleware_and_the_trace_arrives(
    storage: Storage, is_async: bool
) -> None:
    def traced(request: EnqueueRequest) -> Generator[EnqueueRequest, EnqueueOutcome, None]:
        yield request.options(trace={"traceparent": f"of {request.kind}"})

    handlers = HandlerRegistry(enqueue_middleware=[traced])

    @handlers.job("child")
    async def child(ctx: JobContext) -> str:
        return ctx.trace["traceparent"]

    async def in_loop(ctx: JobContext) -> str:
        return (await ctx.enqueue(child.request())).job_id

    def in_thread(ctx: JobContext) -> str:
        [outcome] = ctx.sync.enqueue_many([child.request()])
        return outcome.job_id

    parent = handlers.register(in_loop if is_async else in_thread, "parent")
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(parent.request())
        job_id = await handle.result(outcome.job_id, timeout=50)
        assert await handle.result(job_id, timeout=50) == "of child"


async def test_handlers_that_are_included_keep_their_own(storage: Storage) -> None:
    inside = HandlerRegistry(middleware=[inner])

    @inside.job("work")
    async def work() -> None: ...

    handlers = HandlerRegistry(middleware=[outer])
    handlers.include(inside)
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(work.request())
        await handle.result(outcome.job_id, timeout=50)
    assert notes == ["inner before", "inner after"]
