"""The store has done the work of a call, and the answer never arrives."""

import pytest

from forge_jobs import HandlerRegistry, JobClient
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.points import FailingPoint, armed
from tests.support.runtimes import QUEUE, a_runtime, found_no_work, job_when

pytestmark = pytest.mark.anyio

JOBS = 20


@pytest.mark.parametrize("point", ["claim:committed", "finalize:committed", "beat:committed"])
async def test_a_lost_reply_runs_no_job_twice_and_costs_no_attempt(
    storage: Storage, point: str
) -> None:
    handlers = HandlerRegistry()
    runs: list[int] = []

    @handlers.job("count", queue=QUEUE)
    async def count(number: int) -> int:
        runs.append(number)
        return number

    lost = FailingPoint(times=3)
    with armed(point, lost):
        async with a_runtime(storage, handlers, workers=4).start() as handle:
            outcomes = await handle.enqueue_many(count.request(number) for number in range(JOBS))
            jobs = [await job_when(storage, outcome.job_id, JobStatus.DONE) for outcome in outcomes]

    assert lost.raised == 3
    assert sorted(runs) == list(range(JOBS))
    assert {(job.attempt, job.crashes) for job in jobs} == {(1, 0)}


@pytest.mark.any_store
async def test_of_many_claims_in_a_lost_reply_the_log_names_a_few(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("count", queue=QUEUE)
    async def count(number: int) -> None: ...

    async with a_runtime(storage, handlers, workers=JOBS).start() as handle:
        await found_no_work(handle)
        with armed("claim:committed", FailingPoint(times=1)):
            outcomes = await handle.enqueue_many(count.request(number) for number in range(JOBS))
            for outcome in outcomes:
                await job_when(storage, outcome.job_id, JobStatus.DONE)
    named = [each for each in caplog.messages if "but the reply was lost" in each]
    assert [each.startswith("job ") for each in named] == [*[True] * 5, False]
    assert named[5].startswith(f"{JOBS - 5} further jobs are claimed for this pod")


async def test_an_enqueue_whose_reply_is_lost_stores_one_job(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("once", queue=QUEUE)
    async def once() -> None: ...

    client = JobClient(storage, handlers)
    lost = FailingPoint(times=2)
    with armed("enqueue:committed", lost):
        outcome = await client.enqueue(once.request())
    await client.aclose()

    counts = (await storage.jobs.counts([QUEUE]))[QUEUE].by_status
    assert lost.raised == 2
    assert not outcome.deduplicated
    assert sum(counts.values()) == counts[JobStatus.PENDING] == 1
