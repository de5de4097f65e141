"""A list of requests is treated as each of them would be alone."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs

from forge_jobs.client import JobClient
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import Job, Unique
from forge_jobs.storage.opening import open_storage
from tests.support.factories import counters

pytestmark = pytest.mark.anyio

handlers = HandlerRegistry()


@handlers.job("mail.send", queue="mail", priority=7, max_attempts=2, timeout=9, tags=("a",))
async def send(to: str) -> None:
    """Its options are defaults for its jobs."""


REQUESTS = {
    "defaults of the handler": send.request("x"),
    "defaults by kind": EnqueueRequest("mail.send", {"to": "x"}),
    "explicit": send.request("x").options(priority=0, max_attempts=5, timeout=None, tags=()),
    "trace": send.request("x").options(trace={"traceparent": "00-1-2-03"}),
    "key": send.request("x").options(unique=Unique("k")),
    "rest": send.request("x").options(
        run_at=datetime(2031, 5, 1, tzinfo=UTC),
        expires_at=datetime(2031, 6, 1, tzinfo=UTC),
        metadata={"who": "me"},
        keep_result=False,
        queue="other",
    ),
}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[JobClient]:
    async with (
        await open_storage(f"sqlite:///{tmp_path}/jobs.db?synchronous=off") as storage,
        JobClient(storage, handlers) as opened,
    ):
        yield opened


def alike(job: Job | None) -> Job:
    """Without what differs from job to job."""
    assert job is not None
    assert len(job.id) == 26
    at = datetime(2030, 1, 1, tzinfo=UTC)
    due_at = job.due_at if job.due_at.year == 2031 else at
    return structs.replace(job, id="", enqueued_at=at, token=0, due_at=due_at)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_job_of_a_list_is_stored_like_one_enqueued_alone(
    client: JobClient, name: str
) -> None:
    alone = await client.enqueue(REQUESTS[name])
    one = await client.get(alone.job_id)
    await client.delete(alone.job_id)
    [listed] = await client.enqueue_many([REQUESTS[name]])
    assert alike(await client.get(listed.job_id)) == alike(one)


async def test_a_list_is_counted_like_as_many_jobs(client: JobClient) -> None:
    keyed = send.request("x").options(unique_key="k")
    for request in (send.request("1"), keyed, keyed):
        await client.enqueue(request, queue="alone")
    await client.enqueue_many(
        [request.options(queue="listed") for request in (send.request("1"), keyed, keyed)]
    )
    counted = await counters(client.storage, "alone")
    assert counted == {"enqueued": 2, "deduplicated": 1}
    assert await counters(client.storage, "listed") == counted
