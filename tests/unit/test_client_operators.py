"""Changing one job, several, or all that match."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from forge_jobs.clients.bulk import BulkTotals
from forge_jobs.clients.client import JobClient
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.policy.explanations import Reason
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.factories import KIND, claim_one, register

pytestmark = pytest.mark.anyio


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    async with await open_storage("sqlite:///:memory:") as opened:
        yield opened


@pytest.fixture
async def client(storage: Storage) -> AsyncIterator[JobClient]:
    async with JobClient(storage) as opened:
        yield opened


async def enqueue(client: JobClient, count: int, kind: str = KIND) -> list[JobId]:
    outcomes = await client.enqueue_many([EnqueueRequest(kind)] * count)
    return [outcome.job_id for outcome in outcomes]


async def status(client: JobClient, job_id: JobId) -> JobStatus | None:
    job = await client.get(job_id)
    return None if job is None else job.status


async def test_one_job_is_named_by_its_id(client: JobClient) -> None:
    first, second = await enqueue(client, 2)

    assert await client.cancel(first) == BulkTotals(1, 0, {})

    assert await status(client, first) is JobStatus.CANCELLED
    assert await status(client, second) is JobStatus.PENDING


async def test_several_ids_are_visited_in_batches_and_counted_once(client: JobClient) -> None:
    ids = await enqueue(client, 1203)

    totals = await client.cancel([*ids, *ids[:10]])

    assert totals == BulkTotals(1203, 0, {})


async def test_a_filter_visits_all_that_match_beyond_one_batch(client: JobClient) -> None:
    await enqueue(client, 1203)
    [other] = await enqueue(client, 1, "other")

    assert await client.cancel(JobFilter(kinds=(KIND,))) == BulkTotals(1203, 0, {})

    assert await status(client, other) is JobStatus.PENDING


async def test_no_id_means_no_job(client: JobClient) -> None:
    [job_id] = await enqueue(client, 1)

    for operation in (
        client.cancel,
        client.delete,
        client.requeue,
        client.run_now,
        client.release_held,
    ):
        assert await operation([]) == BulkTotals(0, 0, {})

    assert await status(client, job_id) is JobStatus.PENDING


async def test_refusals_are_counted_by_reason(client: JobClient) -> None:
    first, second = await enqueue(client, 2)
    await client.cancel(first)

    totals = await client.cancel([first, second, new_job_id()])

    assert totals.changed == 1
    assert totals.refused == {Refusal.FINISHED: 1, Refusal.NOT_FOUND: 1}


async def test_the_owner_of_a_running_job_is_asked(client: JobClient, storage: Storage) -> None:
    [job_id] = await enqueue(client, 1)
    await claim_one(storage, await register(storage))

    assert await client.cancel(job_id) == BulkTotals(0, 1, {})
    assert await client.delete(job_id) == BulkTotals(0, 0, {Refusal.RUNNING: 1})


async def test_requeue_run_now_and_delete_do_what_they_say(client: JobClient) -> None:
    [job_id] = await enqueue(client, 1)
    later = (await client.enqueue(EnqueueRequest(KIND), delay=3600)).job_id
    await client.cancel(job_id)

    assert (await client.requeue(job_id)).changed == 1
    assert await status(client, job_id) is JobStatus.PENDING
    assert (await client.run_now(later)).changed == 1
    job = await client.get(later)
    assert job is not None
    assert job.due_at - job.enqueued_at < timedelta(seconds=600)
    assert (await client.delete([job_id, later])).changed == 2
    assert await status(client, job_id) is None


async def test_a_held_job_is_explained_and_released(client: JobClient, storage: Storage) -> None:
    [parent] = await enqueue(client, 1)
    after = (After(parent, "hold"),)
    child = (await client.enqueue(EnqueueRequest(KIND, after=after))).job_id
    await client.cancel(parent)
    await hand_over_once(storage.jobs)

    told = await client.explain(child)
    assert told.reason is Reason.BLOCKED_BY_FAILED_PARENT
    assert told.blocked_by == (parent,)
    assert told.help == f"forge-jobs jobs requeue {parent}"
    assert await client.release_held([parent, child]) == BulkTotals(1, 0, {Refusal.FINISHED: 1})
    assert await status(client, child) is JobStatus.PENDING


async def test_what_is_no_id_is_refused(client: JobClient) -> None:
    with pytest.raises(InvalidInput, match="job_id"):
        await client.cancel("all")
    with pytest.raises(InvalidInput, match="job_id"):
        await client.get("7")
