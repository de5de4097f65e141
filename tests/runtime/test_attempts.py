"""``max_attempts`` is a number of runs."""

import pytest

from forge_jobs.handlers.outcomes import Failed
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.events import EventKind, timeline_of
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.factories import times_claimed
from tests.support.runtimes import a_runtime, ended

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

UNTIL_IT_WORKS = 40


@pytest.mark.parametrize(
    ("max_attempts", "runs", "status"),
    [(1, 1, "dead"), (2, 2, "dead"), (5, 5, "dead"), (None, UNTIL_IT_WORKS, "done")],
)
@pytest.mark.parametrize("shape", ["coroutine", "function"])
async def test_a_job_that_fails_runs_as_often_as_allowed_and_not_once_more(
    storage: Storage, shape: str, max_attempts: int | None, runs: int, status: str
) -> None:
    handlers = HandlerRegistry()
    attempts: list[int] = []

    def fail() -> None:
        attempts.append(len(attempts) + 1)
        if len(attempts) < UNTIL_IT_WORKS:
            raise Failed("not yet", retry_in=0)

    @handlers.job("coroutine", max_attempts=max_attempts)
    async def coroutine() -> None:
        fail()

    @handlers.job("function", max_attempts=max_attempts)
    def function() -> None:
        fail()

    handler = coroutine if shape == "coroutine" else function
    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(handler.request())).job_id)
    assert job.status is JobStatus(status)
    assert (len(attempts), job.attempt, await times_claimed(storage)) == (runs, runs, runs)
    failures = runs - (status == "done")
    assert [error.attempt for error in job.errors] == list(range(1, failures + 1))[-32:]


async def test_a_failed_run_is_told_as_retried_and_the_last_one_as_finished(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("work", max_attempts=2)
    async def work() -> None:
        raise Failed("not yet", retry_in=0)

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(work.request())).job_id
        job = await ended(storage, job_id)
    told = timeline_of(job, await storage.jobs.events(job_id=job_id))
    assert [(event.kind, event.detail) for event in reversed(told)] == [
        (EventKind.ENQUEUED, "work"),
        (EventKind.STARTED, "work"),
        (EventKind.RETRIED, "failed; due again in 0s"),
        (EventKind.STARTED, "work"),
        (EventKind.FINISHED, "failed"),
    ]
