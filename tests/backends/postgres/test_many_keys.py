"""Rows that enqueues and claims read where a queue has jobs on hold of very many keys.

The statistics are those of empty tables, as in the first minutes of a database.
"""

from collections.abc import AsyncGenerator

import pytest

from forge_jobs.model.queues import MAX_WORKERS_LIMIT
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.factories import KIND, QUEUE, done, new_job, register
from tests.support.postgres import raw, touched, with_options

pytestmark = pytest.mark.anyio

NAME = "tests.limit"
KEYS = 1_000
NEW = 50
MOST_OF_EACH = 10


@pytest.fixture
async def storage(url: str) -> AsyncGenerator[Storage]:
    """A store with one session, which keeps the plans that were made first."""
    async with raw(url) as connection:
        for table in ("forge_jobs", "forge_openings"):
            await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    async with await open_storage(with_options(url, pool_size=1)) as opened:
        yield opened


async def _enqueue(storage: Storage, keys: range) -> None:
    jobs = [new_job(limit_name=NAME, limit_key=f"key {number}") for number in keys]
    await storage.jobs.enqueue(jobs)


async def _enqueue_burst(storage: Storage) -> None:
    """Jobs of one key, most of which are on hold."""
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    burst = [new_job(limit_name=NAME, limit_key="burst") for _ in range(KEYS)]
    for first in range(0, KEYS, KEYS // 4):
        await storage.jobs.enqueue(burst[first : first + KEYS // 4])


async def test_a_new_job_reads_few_of_those_on_hold(storage: Storage) -> None:
    await _enqueue_burst(storage)
    await _enqueue(storage, range(NEW))
    async with touched(storage) as found:
        await _enqueue(storage, range(NEW, 2 * NEW))
    assert sum(each.scanned + each.walked for each in found) < NEW * MOST_OF_EACH, found


async def test_a_new_job_of_a_key_in_turn_reads_few_of_those_on_hold(storage: Storage) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: MAX_WORKERS_LIMIT}, {NAME: 1})
    for _ in range(2):
        await _enqueue(storage, range(KEYS))
    async with touched(storage) as found:
        await _enqueue(storage, range(NEW))
    assert sum(each.scanned + each.walked for each in found) < NEW * MOST_OF_EACH, found


async def test_a_claim_and_an_end_read_few_of_those_on_hold(storage: Storage) -> None:
    lease = await register(storage)
    demand = Demand(worker_ids=("w",), limit=NEW, kinds=frozenset({KIND}))
    await storage.jobs.exchange(QUEUE, [], demand, lease)
    await _enqueue_burst(storage)
    await _enqueue(storage, range(2 * NEW))
    first = await storage.jobs.exchange(QUEUE, [], demand, lease)
    ends = [Finalization(job.claim, done()) for job in first.claimed]
    async with touched(storage) as found:
        second = await storage.jobs.exchange(QUEUE, ends, demand, lease)
    assert len(first.claimed) == len(second.claimed) == NEW
    assert sum(each.scanned + each.walked for each in found) < 2 * NEW * MOST_OF_EACH, found


@pytest.mark.parametrize("table", ["forge_jobs", "forge_openings"])
async def test_a_claim_reads_few_of_the_keys_in_turn(storage: Storage, table: str) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: MAX_WORKERS_LIMIT}, {NAME: 1})
    lease = await register(storage)
    demand = Demand(worker_ids=(), limit=10, kinds=frozenset({KIND}))
    await _enqueue(storage, range(NEW))
    # Planned while few keys are there.
    assert len((await storage.jobs.exchange(QUEUE, [], demand, lease)).claimed) == 10
    for _ in range(10):
        await _enqueue(storage, range(KEYS))
    async with touched(storage, table) as found:
        assert len((await storage.jobs.exchange(QUEUE, [], demand, lease)).claimed) == 10
    # A hundred keys are looked at: their jobs in progress, and the first ones on hold.
    assert sum(each.scanned + each.walked for each in found) < 100 * MOST_OF_EACH, found
