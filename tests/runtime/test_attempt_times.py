"""Failed attempts keep their start, end and pod."""

from datetime import timedelta

import anyio
import pytest

from forge_jobs import Fixed, HandlerRegistry, JobClient
from forge_jobs.model.jobs import Cause
from forge_jobs.policy.timelines import spans_of
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended

pytestmark = pytest.mark.anyio

LEAST = timedelta(milliseconds=30)


async def test_each_failed_attempt_is_on_the_timeline_with_start_end_and_pod(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("tests.fails", max_attempts=3, retry=Fixed(timedelta(0)))
    async def fails() -> None:
        # Timers of uvloop count whole milliseconds, and may ring a part of one early.
        await anyio.sleep(1.5 * LEAST.total_seconds())
        raise ValueError("no")

    async with a_runtime(storage, handlers).start(), JobClient(storage) as client:
        job = await ended(storage, (await client.enqueue(fails.request())).job_id)
    assert [error.attempt for error in job.errors] == [1, 2, 3]
    for error in job.errors:
        assert error.ran_for is not None
        assert error.ran_for >= LEAST
        assert error.at is not None
        assert job.enqueued_at <= error.at - error.ran_for
    runs = [span for span in spans_of(job, ()) if span.stage == "running"]
    assert [(run.attempt, run.host_id, run.cause) for run in runs] == [
        (number, job.host_id, Cause.FAILED) for number in (1, 2, 3)
    ]
    assert all(run.length is not None and run.length >= LEAST for run in runs)
