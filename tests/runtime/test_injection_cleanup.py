"""Clean-ups of injected values that raise: reported, and nothing is lost by them."""

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from forge_jobs import Dead, Depends, Failed, HandlerRegistry, RateLimited, Snoozed
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queues import RateLimit
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended, job_because

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

notes: list[str] = []


@pytest.fixture(autouse=True)
def _no_notes() -> None:
    notes.clear()


async def first() -> AsyncIterator[str]:
    try:
        yield "first"
    except BaseException as error:
        notes.append(f"first gets {type(error).__name__}")
        raise
    finally:
        notes.append("first ends")


async def breaks_on_loop(first: str = Depends(first)) -> AsyncIterator[str]:
    try:
        yield first
    finally:
        notes.append("breaks")
        raise OSError("the commit failed")


def breaks_in_thread(first: str = Depends(first)) -> Iterator[str]:
    try:
        yield first
    finally:
        notes.append("breaks")
        raise OSError("the commit failed")


BREAKS = pytest.mark.parametrize("breaks", [breaks_on_loop, breaks_in_thread])


@BREAKS
async def test_after_a_success_it_fails_the_attempt_because_a_commit_may_be_what_failed(
    storage: Storage, breaks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("works", max_attempts=1)
    async def works(value: str = Depends(breaks)) -> str:
        return value

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(works.request())).job_id)
    assert (job.status, job.cause, job.result) == (JobStatus.DEAD, Cause.FAILED, None)
    [error] = job.errors
    assert (error.type, error.message) == ("OSError", "the commit failed")
    assert f"raised by the clean-up of {breaks.__name__}, injected into works" in error.traceback
    assert notes == ["breaks", "first gets OSError", "first ends"]
    [line] = [each for each in caplog.records if "the clean-up of" in each.msg]
    assert line.levelno == logging.ERROR
    assert line.__dict__["job_id"] == job.id


@BREAKS
async def test_after_a_failure_both_are_on_the_job(storage: Storage, breaks: Any) -> None:
    handlers = HandlerRegistry()

    @handlers.job("fails", max_attempts=1)
    async def fails(value: str = Depends(breaks)) -> str:
        raise ValueError("wrong order")

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(fails.request())).job_id)
    [error] = job.errors
    assert error.type == "OSError"
    assert "ValueError: wrong order" in error.traceback


@pytest.mark.parametrize(
    ("verdict", "cause", "kind"),
    [
        (Dead("no use"), Cause.REJECTED, "Dead"),
        (Failed("not yet", retry_in=3600), Cause.FAILED, "Failed"),
        (Snoozed(3600), Cause.SNOOZED, "OSError"),
    ],
)
async def test_a_verdict_of_the_handler_stands_and_the_error_is_beside_it(
    storage: Storage, verdict: Exception, cause: Cause, kind: str
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("says")
    async def says(value: str = Depends(breaks_on_loop)) -> str:
        raise verdict

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(says.request())).job_id
        job = await job_because(storage, job_id, cause)
    assert job.errors[-1].type == kind
    assert "the commit failed" in job.errors[-1].traceback


async def test_a_wait_for_a_rate_limit_stands(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("waits")
    async def waits(value: str = Depends(breaks_on_loop)) -> str:
        raise RateLimited("mail", 2)

    limits = {"mail": RateLimit(2, per=3600)}
    async with a_runtime(storage, handlers, rate_limits=limits).start() as handle:
        assert await handle.rate_limit.acquire("mail", 2)
        job_id = (await handle.enqueue(waits.request())).job_id
        job = await job_because(storage, job_id, Cause.RATE_LIMITED)
    assert job.attempt == 0
    assert "the clean-up of breaks_on_loop failed" in caplog.text


async def test_a_factory_may_turn_an_exception_into_a_verdict(storage: Storage) -> None:
    handlers = HandlerRegistry()

    async def translates() -> AsyncIterator[None]:
        try:
            yield
        except ValueError as error:
            raise Dead("the account is closed") from error

    @handlers.job("fails")
    async def fails(first: str = Depends(first), value: None = Depends(translates)) -> None:
        raise ValueError("closed")

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(fails.request())).job_id)
    assert (job.cause, job.attempt) == (Cause.REJECTED, 1)
    assert job.errors[0].message == "the account is closed"
    assert notes == ["first gets Dead", "first ends"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_no_clean_up_turns_a_failure_into_a_success(storage: Storage, is_async: bool) -> None:
    handlers = HandlerRegistry()

    async def swallows() -> AsyncIterator[None]:
        try:
            yield
        except ValueError:
            notes.append("swallowed")

    def swallows_in_thread() -> Iterator[None]:
        try:
            yield
        except ValueError:
            notes.append("swallowed")

    @handlers.job("fails", max_attempts=1)
    async def fails(
        first: str = Depends(first),
        value: None = Depends(swallows if is_async else swallows_in_thread),
    ) -> None:
        raise ValueError("wrong order")

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(fails.request())).job_id)
    assert (job.status, job.errors[0].type) == (JobStatus.DEAD, "ValueError")
    assert notes == ["swallowed", "first gets ValueError", "first ends"]


async def test_a_factory_that_yields_twice_or_never_fails_the_attempt(storage: Storage) -> None:
    handlers = HandlerRegistry()

    async def twice() -> AsyncIterator[int]:
        yield 1
        yield 2

    def never() -> Iterator[int]:
        yield from ()

    for kind, factory in (("twice", twice), ("never", never)):

        async def uses(value: int = Depends(factory)) -> int:
            return value

        handlers.register(uses, kind, max_attempts=1)
    async with a_runtime(storage, handlers).start() as handle:
        said = {}
        for kind in ("twice", "never"):
            handler = handlers.get(kind)
            assert handler is not None
            job = await ended(storage, (await handle.enqueue(handler.request())).job_id)
            said[kind] = (job.status, job.errors[0].message)
    assert said == {
        "twice": (JobStatus.DEAD, "generator didn't stop"),
        "never": (JobStatus.DEAD, "generator didn't yield"),
    }
