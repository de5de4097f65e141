"""Many producers that all ask for the same."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from forge_jobs.client import JobClient
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import JobFilter
from forge_jobs.storage.opening import open_storage
from tests.support.factories import counters

pytestmark = pytest.mark.anyio

PRODUCERS, CALLS = 16, 300


async def test_sixteen_producers_of_three_hundred_calls_make_one_job(tmp_path: Path) -> None:
    request = EnqueueRequest("work", unique_key="k")
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db?synchronous=off") as storage:
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
        # Nothing is kept back by a producer: what it did is counted in the store.
        assert await counters(storage) == {
            "enqueued": 1,
            "deduplicated": PRODUCERS * CALLS - 1,
        }
