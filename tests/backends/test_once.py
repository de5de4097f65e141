"""A step in a transaction of the program: exactly once, whatever happens to the run."""

import asyncio
from collections.abc import AsyncGenerator, Iterator

import anyio.lowlevel
import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from forge_jobs.errors import Conflict
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.outcomes import Again
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim_one, enqueue_one, failed, finish, only, register
from tests.support.keyed import keyed
from tests.support.runtimes import a_runtime, ended

pytestmark = pytest.mark.anyio

ASYNC = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+asyncpg"}
SYNC = {"sqlite": "sqlite+pysqlite", "postgres": "postgresql+psycopg"}


@pytest.fixture(params=sorted(ASYNC))
def backend(request: pytest.FixtureRequest) -> str:
    """The stores that share a database with the application."""
    return str(request.param)


@pytest.fixture
async def engine(backend: str, url: str, storage: Storage) -> AsyncGenerator[AsyncEngine]:
    """The application's own engine, with a table of its charges."""
    database = make_url(url).set(drivername=ASYNC[backend], query={})
    made = create_async_engine(database, poolclass=NullPool)
    async with made.begin() as connection:
        await connection.execute(text("CREATE TABLE charges (attempt INTEGER)"))
    yield made
    await made.dispose()


@pytest.fixture
def threads_engine(backend: str, url: str, storage: Storage) -> Iterator[Engine]:
    """As ``engine``, for functions."""
    database = make_url(url).set(drivername=SYNC[backend], query={})
    made = create_engine(database, poolclass=NullPool)
    yield made
    made.dispose()


_CHARGE = text("INSERT INTO charges VALUES (:attempt)")


async def charges(engine: AsyncEngine) -> list[int]:
    async with engine.connect() as connection:
        return list((await connection.execute(text("SELECT attempt FROM charges"))).scalars())


@pytest.mark.daily("sqlite", "postgres-True")
@pytest.mark.parametrize("before_commit", [True, False])
async def test_a_step_is_done_exactly_once_over_all_attempts(
    storage: Storage, engine: AsyncEngine, before_commit: bool
) -> None:
    handlers = HandlerRegistry()
    first: list[bool] = []

    @handlers.job("charge", max_attempts=3, retry=lambda attempt, error: 0)
    async def charge(ctx: JobContext) -> None:
        async with engine.connect() as connection:
            first.append(await ctx.once(connection, "charge"))
            if first[-1]:
                await connection.execute(_CHARGE, {"attempt": ctx.attempt})
            if before_commit and ctx.attempt == 1:
                raise OSError("lost before the commit")
            await connection.commit()
        if ctx.attempt < 3:
            raise OSError("lost after the commit")

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(charge.request())
        assert (await ended(storage, outcome.job_id)).status is JobStatus.DONE
    assert await charges(engine) == ([2] if before_commit else [1])
    assert first == ([True, True, False] if before_commit else [True, False, False])


@pytest.mark.daily("sqlite")
async def test_a_step_in_a_thread(storage: Storage, threads_engine: Engine) -> None:
    handlers = HandlerRegistry()

    @handlers.job("charge")
    def charge(ctx: JobContext) -> list[bool]:
        with threads_engine.begin() as connection:
            return [ctx.sync.once(connection, step) for step in ("one", "two", "one")]

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(charge.request())
        assert await handle.result(outcome.job_id, timeout=50) == [True, True, False]


async def test_of_two_open_transactions_one_is_the_first(
    storage: Storage, engine: AsyncEngine
) -> None:
    lease = await register(storage)
    await enqueue_one(storage)
    claim = (await claim_one(storage, lease)).claim

    async def note() -> bool:
        async with engine.begin() as connection:
            return await storage.jobs.first_time(claim, "step", connection=connection)

    async with engine.connect() as connection:
        assert await storage.jobs.first_time(claim, "step", connection=connection)
        other = asyncio.ensure_future(note())
        await anyio.lowlevel.checkpoint()
        await connection.commit()
    assert await other is False


@pytest.mark.daily("sqlite")
async def test_content_that_replaces_another_takes_its_own_steps(
    storage: Storage, engine: AsyncEngine
) -> None:
    lease = await register(storage)
    await storage.jobs.enqueue([keyed("replace")])
    for number in (2, 3):
        claimed = await claim_one(storage, lease)
        for is_first in (True, False):
            async with engine.begin() as connection:
                noted = storage.jobs.first_time(claimed.claim, "step", connection=connection)
                assert await noted is is_first
        await finish(storage, claimed, failed())
        assert (await storage.jobs.enqueue([keyed("replace", number)]))[0].replaced


async def test_a_worker_that_lost_its_claim_does_nothing(
    storage: Storage, engine: AsyncEngine
) -> None:
    lease = await register(storage)
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await finish(storage, claimed, failed())
    async with engine.connect() as connection:
        with pytest.raises(Conflict, match="roll back"):
            await storage.jobs.first_time(claimed.claim, "step", connection=connection)
    await storage.jobs.delete(only(job_id))
    async with engine.connect() as connection:
        with pytest.raises(Conflict, match="roll back"):
            await storage.jobs.first_time(claimed.claim, "step", connection=connection)


@pytest.mark.daily("sqlite")
@pytest.mark.parametrize("is_rolled_back", [False, True])
async def test_each_occurrence_takes_its_steps_and_begins_with_the_commit(
    storage: Storage, engine: AsyncEngine, is_rolled_back: bool
) -> None:
    handlers = HandlerRegistry()
    runs: list[tuple[int, bool]] = []

    @handlers.job("charge", max_attempts=2, retry=lambda attempt, error: 0)
    async def charge(ctx: JobContext, month: int) -> str:
        async with engine.connect() as connection:
            runs.append((month, await ctx.once(connection, "charge")))
            await connection.execute(_CHARGE, {"attempt": month})
            if month == 3:
                await ctx.finish_in(connection, "the end")
            else:
                await ctx.finish_in(connection, Again(payload={"month": month + 1}))
            if is_rolled_back and month == 2 and ctx.attempt == 1:
                raise OSError("lost before the commit")
            await connection.commit()
        return "what a handler returns after that does not count"

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(charge.request(1))
        assert await handle.result(outcome.job_id, timeout=50) == "the end"
    assert await charges(engine) == [1, 2, 3]
    months = [1, 2, 2, 3] if is_rolled_back else [1, 2, 3]
    assert runs == [(month, True) for month in months]


async def test_steps_go_with_the_job(storage: Storage, engine: AsyncEngine) -> None:
    lease = await register(storage)
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    async with engine.begin() as connection:
        assert await storage.jobs.first_time(claimed.claim, "step", connection=connection)
    await finish(storage, claimed, failed())
    await storage.jobs.delete(only(job_id))
    async with engine.connect() as connection:
        rows = await connection.execute(text("SELECT count(*) FROM forge_steps"))
        assert rows.scalar_one() == 0
