"""Sequences and callers' open transactions, and the records that sequences keep."""

from collections.abc import AsyncGenerator

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from forge_jobs.errors import Locked
from forge_jobs.model.filters import Refusal
from forge_jobs.model.jobs import Line, Unique
from forge_jobs.model.queues import QueueSettings
from forge_jobs.storage.protocols import Storage
from tests.support.callers import by
from tests.support.factories import QUEUE, dead, done, new_job, only, register, run_one

pytestmark = pytest.mark.anyio


@pytest.fixture
async def engine(url: str) -> AsyncGenerator[AsyncEngine]:
    """The application's own."""
    made = create_async_engine(by("asyncpg", url), poolclass=NullPool)
    yield made
    await made.dispose()


async def test_an_open_transaction_delays_only_its_own_key(
    storage: Storage, engine: AsyncEngine
) -> None:
    await storage.config.ensure_queue(QUEUE, QueueSettings())
    mine, same, other = (new_job(sequence=Line(key)) for key in ("k", "k", "other"))
    async with engine.begin() as connection:
        await storage.jobs.enqueue([mine], connection=connection)
        await storage.jobs.enqueue([other])
        with pytest.raises(Locked):
            await storage.jobs.enqueue([same])
    await storage.jobs.enqueue([same])
    assert await storage.jobs.parents([same.id]) == {same.id: (mine.id,)}


async def test_another_transaction_of_the_key_is_refused_as_locked_and_goes_on(
    storage: Storage, engine: AsyncEngine
) -> None:
    mine, same, other = (new_job(sequence=Line(key)) for key in ("k", "k", "other"))
    await storage.config.ensure_queue(QUEUE, QueueSettings())
    async with engine.begin() as first, engine.begin() as second:
        await storage.jobs.enqueue([mine], connection=first)
        await second.execute(text("SET LOCAL lock_timeout = '50ms'"))
        with pytest.raises(Locked):
            await storage.jobs.enqueue([same], connection=second)
        await storage.jobs.enqueue([other], connection=second)
    assert (await storage.jobs.get([mine.id, same.id, other.id])).keys() == {mine.id, other.id}


async def test_another_transaction_of_a_unique_key_is_refused_as_locked(
    storage: Storage, engine: AsyncEngine
) -> None:
    mine, same = (new_job(unique=Unique("k")) for _ in range(2))
    await storage.config.ensure_queue(QUEUE, QueueSettings())
    async with engine.begin() as first, engine.connect() as second, second.begin():
        await storage.jobs.enqueue([mine], connection=first)
        await second.execute(text("SET LOCAL lock_timeout = '50ms'"))
        with pytest.raises(Locked):
            await storage.jobs.enqueue([same], connection=second)


async def test_an_open_transaction_delays_requeues_of_its_own_key(
    storage: Storage, engine: AsyncEngine
) -> None:
    lease = await register(storage)
    mine, other = (new_job(sequence=Line(key)) for key in ("k", "other"))
    await storage.jobs.enqueue([mine, other])
    for _ in range(2):
        await run_one(storage, lease, dead())
    async with engine.begin() as connection:
        await storage.jobs.enqueue([new_job(sequence=Line("k"))], connection=connection)
        assert (await storage.jobs.requeue(only(other.id))).changed == (other.id,)
        outcome = await storage.jobs.requeue(only(mine.id))
        assert outcome.refused == {mine.id: Refusal.LOCKED}
    assert (await storage.jobs.requeue(only(mine.id))).changed == (mine.id,)


async def test_who_waits_for_an_open_transaction_comes_behind_it(
    storage: Storage, engine: AsyncEngine
) -> None:
    mine, behind = new_job(sequence=Line("k")), new_job(sequence=Line("k"))
    async with anyio.create_task_group() as tasks, engine.begin() as connection:
        await storage.jobs.enqueue([mine], connection=connection)
        tasks.start_soon(storage.jobs.enqueue, [behind])
        await anyio.lowlevel.checkpoint()
    assert await storage.jobs.parents([behind.id]) == {behind.id: (mine.id,)}


async def test_a_rolled_back_transaction_leaves_no_place(
    storage: Storage, engine: AsyncEngine
) -> None:
    gone, job = new_job(sequence=Line("k")), new_job(sequence=Line("k"))
    async with engine.connect() as connection:
        await storage.jobs.enqueue([gone], connection=connection)
        await connection.rollback()
    await storage.jobs.enqueue([job])
    assert await storage.jobs.parents([job.id]) == {}


async def test_a_record_goes_with_the_last_job(storage: Storage, engine: AsyncEngine) -> None:
    lease = await register(storage)
    job = new_job(sequence=Line("k"))
    await storage.jobs.enqueue([job])
    assert await run_one(storage, lease, done()) == job.id

    async def records() -> list[tuple[str, str]]:
        async with engine.connect() as connection:
            found = await connection.execute(text("SELECT line, job_id FROM forge_sequences"))
            return [(line, job_id) for line, job_id in found]

    assert await records() == [(f"{QUEUE}\nk", job.id)]
    await storage.jobs.delete(only(job.id))
    assert await records() == []
