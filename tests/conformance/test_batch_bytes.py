"""Requests that no server would take in one piece are refused before they are sent."""

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.payloads import MAX_PAYLOAD_BYTES
from forge_jobs.storage.batches import MAX_BATCH_BYTES
from forge_jobs.storage.protocols import Storage
from tests.support.factories import KIND, new_job

pytestmark = pytest.mark.anyio

LARGEST = '{"a":"' + "x" * (MAX_PAYLOAD_BYTES - 8) + '"}'
FITTING = MAX_BATCH_BYTES // MAX_PAYLOAD_BYTES
REFUSED = (
    r"^requests: take 268,4\d\d,\d\d\d bytes together; "
    r"give at most 268,435,456 in one call, so several calls of fewer jobs, or store large "
    r"payloads elsewhere and pass references$"
)


async def test_a_call_of_too_many_bytes_is_refused(storage: Storage) -> None:
    # The payloads alone would just fit.
    assert len(LARGEST) * FITTING == MAX_BATCH_BYTES
    with pytest.raises(InvalidInput, match=REFUSED) as refused:
        await storage.jobs.enqueue([new_job(payload=LARGEST) for _ in range(FITTING)])
    assert refused.value.field == "requests"
    assert (await storage.jobs.list(JobFilter())).jobs == ()


async def test_bytes_count_and_not_characters(storage: Storage) -> None:
    wide = '{"a":"' + "€" * (MAX_PAYLOAD_BYTES // 3 - 8) + '"}'
    requests = [new_job(payload=wide) for _ in range(FITTING + 10)]
    assert sum(len(one.payload) for one in requests) < MAX_BATCH_BYTES // 2
    with pytest.raises(InvalidInput, match=r"^requests: take \d+,\d+,\d+ bytes together"):
        await storage.jobs.enqueue(requests)


async def test_a_client_hears_of_it_and_stores_nothing(storage: Storage) -> None:
    async with JobClient(storage) as client:
        with pytest.raises(InvalidInput, match=r"^requests: take "):
            await client.enqueue_many(
                [EnqueueRequest(KIND, LARGEST, queue="q") for _ in range(FITTING)]
            )
    assert (await storage.jobs.list(JobFilter())).jobs == ()
