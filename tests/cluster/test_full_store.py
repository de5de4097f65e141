"""A store without memory: a clear error, nothing lost, and work again when there is some."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient, JobStatus
from forge_jobs.errors import Unavailable
from forge_jobs.storage.protocols import Storage
from tests.chaos.stores import RedisStore
from tests.support.ledger import Ledger
from tests.support.pods import Fleet
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

KILOBYTES_MORE = 200


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RedisStore]:
    """A durable server of the test's own."""
    made = RedisStore(tmp_path)
    async with made.running():
        yield made


@pytest.fixture
def url(store: RedisStore) -> str:
    return store.url


@pytest.mark.parametrize("joins", ["before", "while"])
async def test_a_store_out_of_memory_refuses_new_jobs_and_finishes_those_it_has(
    store: RedisStore, storage: Storage, pods: Fleet, ledger: Path, joins: str
) -> None:
    request = EnqueueRequest(
        "ledger.work", {"ledger": str(ledger), "seconds": 0.01}, queue="work", tags=("x" * 150,)
    )
    accepted: set[str] = set()
    async with JobClient(storage, repeat_for=0.2) as client:
        accepted |= {outcome.job_id for outcome in await client.enqueue_many([request] * 20)}
        if joins == "before":
            pod = pods.start({"work": 2})
            await wait_until(lambda: Ledger.read(ledger).ended(), description="the pod works")
        used = await store.memory_used()
        await store.limit_memory(used + KILOBYTES_MORE * 1_024)

        with pytest.raises(Unavailable) as refused:
            await _fill(client, request, accepted)
        if joins == "while":
            pod = pods.start({"work": 2})

        await wait_until(
            lambda: Ledger.read(ledger).ended() >= accepted,
            description="what was accepted runs",
        )
        await store.limit_memory(0)
        accepted |= {outcome.job_id for outcome in await client.enqueue_many([request])}
        await wait_until(lambda: _done(storage, len(accepted)), description="all are done")

    assert "memory" in str(refused.value)
    assert Ledger.read(ledger).ended() == accepted
    assert not Ledger.read(ledger).repeated()
    assert pod.exit_code is None


async def _fill(client: JobClient, request: EnqueueRequest, accepted: set[str]) -> None:
    while len(accepted) < 100_000:
        accepted |= {outcome.job_id for outcome in await client.enqueue_many([request] * 20)}


async def _done(storage: Storage, count: int) -> bool:
    counts = (await storage.jobs.counts(["work"]))["work"].by_status
    return counts.get(JobStatus.DONE, 0) == count
