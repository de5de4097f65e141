"""Many producers that all ask for the same."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.filters import JobFilter
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, pass_on, url_of
from tests.support.factories import counters

pytestmark = pytest.mark.anyio

PRODUCERS, CALLS = 16, 300


@pytest.fixture(params=sorted(BACKENDS))
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    url = await url_of(request.param, tmp_path)
    # A call that is given up and made again is counted again.
    async with await open_storage(f"{url}{'&' if '?' in url else '?'}timeout=60") as opened:
        yield opened
    await pass_on(request.param, tmp_path)


@pytest.mark.long
async def test_sixteen_producers_of_three_hundred_calls_make_one_job(storage: Storage) -> None:
    request = EnqueueRequest("work", unique_key="k")
    clients = [JobClient(storage) for _ in range(PRODUCERS)]
    outcomes = await asyncio.gather(
        *(client.enqueue(request) for client in clients for _ in range(CALLS))
    )
    for client in clients:
        await client.aclose()
    assert len({outcome.job_id for outcome in outcomes}) == 1
    assert Counter(outcome.deduplicated for outcome in outcomes) == {
        False: 1,
        True: PRODUCERS * CALLS - 1,
    }
    assert len((await storage.jobs.list(JobFilter())).jobs) == 1
    # A producer keeps nothing back: all work is counted in the store.
    assert await counters(storage) == {
        "enqueued": 1,
        "deduplicated": PRODUCERS * CALLS - 1,
    }
