"""Outcomes that tasks of a handler raise, which task groups wrap into groups."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated, Any

import anyio.lowlevel
import pytest

from forge_jobs import Fixed
from forge_jobs.handlers.injection.markers import Depends
from forge_jobs.handlers.outcomes import Again, Dead, Failed, RateLimited, Snoozed, Throttled
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import Cause, Job
from forge_jobs.model.queues import RateLimit
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, job_because

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


async def _raise(error: BaseException) -> None:
    # All tasks of a group begin, also eager ones, before the first raises.
    await anyio.lowlevel.checkpoint()
    raise error


async def _in_a_group(*errors: BaseException) -> None:
    async with asyncio.TaskGroup() as tasks:
        for each in errors:
            tasks.create_task(_raise(each))


async def _run(storage: Storage, handlers: HandlerRegistry, cause: Cause) -> Job:
    """Run a job of the kind ``says`` until an end has this cause."""
    await storage.config.ensure_rate_limit("smtp", RateLimit(1, per=3600))
    await storage.config.drain_tokens("smtp")
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(EnqueueRequest("says"))
        return await job_because(storage, outcome.job_id, cause)


def _raising(*errors: BaseException, **options: Any) -> HandlerRegistry:
    handlers = HandlerRegistry()

    @handlers.job("says", **options)
    async def says() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_in_a_group(*errors))

    return handlers


@pytest.mark.parametrize(
    ("outcome", "cause", "attempt"),
    [
        (Snoozed(3600), Cause.SNOOZED, 0),
        (Throttled(3600), Cause.THROTTLED, 0),
        (RateLimited("smtp"), Cause.RATE_LIMITED, 0),
        (Dead("never"), Cause.REJECTED, 1),
        (Failed("later", retry_in=3600), Cause.FAILED, 1),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_one_outcome_in_task_groups_is_that_outcome(
    storage: Storage, outcome: Exception, cause: Cause, attempt: int
) -> None:
    job = await _run(storage, _raising(outcome), cause)
    assert job.attempt == attempt
    assert [error.type for error in job.errors] == [type(outcome).__name__] * attempt


async def test_one_again_in_a_task_group_begins_the_job_again(storage: Storage) -> None:
    job = await _run(storage, _raising(Again(3600)), Cause.SUCCEEDED)
    assert (job.attempt, job.errors, job.status) == (0, (), "pending")


async def test_of_outcomes_of_one_class_the_first_counts(storage: Storage) -> None:
    job = await _run(storage, _raising(Snoozed(3600), Snoozed(60)), Cause.SNOOZED)
    assert job.due_at - job.enqueued_at > timedelta(minutes=50)
    assert job.errors == ()


@pytest.mark.parametrize("beside", [ValueError("odd"), Dead("never")], ids=["error", "another"])
async def test_an_outcome_beside_something_else_is_a_failure(
    storage: Storage, beside: Exception
) -> None:
    handlers = _raising(Snoozed(3600), beside, max_attempts=1)
    job = await _run(storage, handlers, Cause.FAILED)
    assert job.status == "dead"
    [error] = job.errors
    assert error.type == "ExceptionGroup"
    assert "Snoozed" in error.traceback
    assert type(beside).__name__ in error.traceback


async def test_a_clean_up_that_raises_does_not_undo_an_outcome_in_a_group(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()

    async def a_pool() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("cannot close")

    @handlers.job("says")
    async def says(pool: Annotated[int, Depends(a_pool)]) -> None:
        await _in_a_group(Dead("never"))

    job = await _run(storage, handlers, Cause.REJECTED)
    [error] = job.errors
    assert error.type == "Dead"
    assert "cannot close" in error.traceback


async def test_rules_of_retries_look_into_groups(storage: Storage) -> None:
    later = Fixed(timedelta(hours=1))
    handlers = _raising(ConnectionError("busy"), retry_on=ConnectionError, retry=later)
    job = await _run(storage, handlers, Cause.FAILED)
    assert job.status == "failed"
