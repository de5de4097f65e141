"""How a user tests handlers: on a store of the kind that runs in production, or on a file.

FORGE_STORAGE_URL=postgresql://user:password@localhost/test pytest
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from orders import charge, handlers, ship

from forge_jobs import After, JobClient, QueueRuntime, Storage, open_storage


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    url = os.environ.get("FORGE_STORAGE_URL", f"sqlite:///{tmp_path}/test.db")
    async with await open_storage(url) as opened:
        yield opened


@pytest.mark.anyio
async def test_a_busy_bank_is_asked_again(storage: Storage) -> None:
    async with QueueRuntime(storage, handlers).with_queues("payments").start() as handle:
        job_id = (await handle.enqueue(charge.request(1, 500))).job_id

        assert await handle.result(job_id, timeout=30) == "order 1: 500 cents charged in attempt 2"

    job = (await storage.jobs.get([job_id]))[job_id]
    assert [error.message for error in job.errors] == ["the bank is busy"]


@pytest.mark.anyio
async def test_nothing_is_shipped_before_it_is_paid(storage: Storage) -> None:
    client = JobClient(storage)
    charged = await client.enqueue(charge.request(2, 500))
    shipped = await client.enqueue(ship.request(2), after=[After(charged.job_id)])

    job = (await storage.jobs.get([shipped.job_id]))[shipped.job_id]
    assert job.status == "blocked"

    await client.aclose()
