"""Any exception of a handler ends the job and nothing else."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.handlers.outcomes import Dead, Failed, Snoozed
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended, in_progress, job_because

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit("even this")


RAISED: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("boom"),
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "StopIteration": lambda: StopIteration(7),
    "StopAsyncIteration": StopAsyncIteration,
    "GeneratorExit": GeneratorExit,
    "Unprintable": Unprintable,
    "BaseException": lambda: BaseException("bare"),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("many", [KeyboardInterrupt()]),
    "NUL and surrogate": lambda: ValueError("a\x00b\udcffc"),
    "huge": lambda: ValueError("x" * 1_000_000),
    "TimeoutError": TimeoutError,
}


def raising_handlers(name: str) -> HandlerRegistry:
    handlers = HandlerRegistry()

    @handlers.job("coroutine", max_attempts=1)
    async def coroutine() -> None:
        raise RAISED[name]()

    @handlers.job("function", max_attempts=1)
    def function() -> None:
        raise RAISED[name]()

    @handlers.job("fine")
    async def fine() -> str:
        return "fine"

    return handlers


@pytest.mark.parametrize("kind", ["coroutine", "function"])
@pytest.mark.parametrize("name", RAISED)
async def test_a_raised_exception_ends_its_job_and_the_worker_goes_on(
    storage: Storage, name: str, kind: str
) -> None:
    async with a_runtime(storage, raising_handlers(name)).start() as handle:
        bad = await handle.enqueue(EnqueueRequest(kind))
        job = await ended(storage, bad.job_id)
        assert (job.status, job.cause) == (JobStatus.DEAD, Cause.FAILED)
        [error] = job.errors
        assert error.host_id == handle.host_id
        assert len(error.message.encode()) <= 4096
        assert len(error.traceback.encode()) <= 16384
        good = await handle.enqueue(EnqueueRequest("fine"))
        assert await handle.result(good.job_id, timeout=50) == "fine"
    assert await in_progress(storage) == 0


async def test_the_error_record_names_type_message_and_the_handlers_own_lines(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("fails", max_attempts=1)
    async def fails() -> None:
        raise ValueError("nul \x00 and surrogate \udcff")

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(fails.request())
        [error] = (await ended(storage, outcome.job_id)).errors
    assert (error.type, error.attempt, error.cause) == ("ValueError", 1, Cause.FAILED)
    assert error.message == "nul \\x00 and surrogate \\udcff"
    assert 'raise ValueError("nul' in error.traceback
    assert "execution.py" not in error.traceback


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize(
    ("outcome", "status", "cause"),
    [
        (Failed("later", retry_in=3600), JobStatus.FAILED, Cause.FAILED),
        (Dead("never"), JobStatus.DEAD, Cause.REJECTED),
        (Snoozed(3600), JobStatus.PENDING, Cause.SNOOZED),
    ],
)
async def test_an_outcome_means_the_same_raised_or_returned(
    storage: Storage, outcome: Exception, status: JobStatus, cause: Cause, returned: bool
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("says")
    async def says() -> Any:
        if returned:
            return outcome
        raise outcome

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(says.request())).job_id
        job = await job_because(storage, job_id, cause)
    assert job.status is status


async def test_a_payload_that_cannot_be_decoded_fails_its_job_alone(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("typed")
    async def typed(number: int) -> int:
        return number

    async with a_runtime(storage, handlers).start() as handle:
        # Another program, without the handler at hand, stores what the signature refuses.
        async with JobClient(storage) as stranger:
            request = EnqueueRequest("typed", {"number": "seven"}, max_attempts=1)
            bad = await stranger.enqueue(request)
        good = await handle.enqueue(typed.request(7))
        job = await ended(storage, bad.job_id)
        assert job.status is JobStatus.DEAD
        assert "number" in job.errors[0].message
        assert await handle.result(good.job_id, timeout=50) == 7


async def test_a_result_that_json_cannot_carry_does_not_undo_the_success(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("odd")
    async def odd() -> object:
        return object()

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(odd.request())
        job = await ended(storage, outcome.job_id)
    assert (job.status, job.attempt, job.result) == (JobStatus.DONE, 1, None)
    assert "result" in job.errors[0].message


async def test_context_variables_of_one_job_are_not_seen_by_the_next(storage: Storage) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    handlers = HandlerRegistry()

    @handlers.job("sets")
    async def sets() -> str:
        before = variable.get()
        variable.set("leaked")
        return before

    async with a_runtime(storage, handlers).start() as handle:
        for _ in range(3):
            outcome = await handle.enqueue(sets.request())
            assert await handle.result(outcome.job_id, timeout=50) == "unset"
