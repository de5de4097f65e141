"""A handler that ends its job in its own transaction: both happen, or neither."""

from collections.abc import AsyncGenerator, Iterator
from datetime import datetime

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace
from sqlalchemy import URL, Engine, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.injection.markers import Depends
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.transitions import Finalization
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim_one, done, enqueue_one, get_job, register
from tests.support.runtimes import a_runtime, ended

pytestmark = pytest.mark.anyio

ASYNC = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+asyncpg"}
SYNC = {"sqlite": "sqlite+pysqlite", "postgres": "postgresql+psycopg"}


@pytest.fixture(params=sorted(ASYNC))
def backend(request: pytest.FixtureRequest) -> str:
    """The stores that share a database with the application."""
    return str(request.param)


def by(driver: str, url: str) -> URL:
    """The store's database for SQLAlchemy, without the store's own options."""
    return make_url(url).set(drivername=driver, query={})


@pytest.fixture
async def engine(backend: str, url: str, storage: Storage) -> AsyncGenerator[AsyncEngine]:
    """The application's own engine, with a table of what its handlers did."""
    made = create_async_engine(by(ASYNC[backend], url), poolclass=NullPool)
    async with made.begin() as connection:
        await connection.execute(text("CREATE TABLE sent (attempt INTEGER)"))
    yield made
    await made.dispose()


@pytest.fixture
def threads_engine(backend: str, url: str, storage: Storage) -> Iterator[Engine]:
    """As ``engine``, for functions."""
    made = create_engine(by(SYNC[backend], url), poolclass=NullPool)
    yield made
    made.dispose()


async def sent(engine: AsyncEngine) -> list[int]:
    async with engine.connect() as connection:
        rows = await connection.execute(text("SELECT attempt FROM sent ORDER BY attempt"))
        return list(rows.scalars())


async def send(ctx: JobContext, engine: AsyncEngine, *, trouble: str) -> str:
    """Write a row and end the job with it. Go wrong once, in the way of ``trouble``."""
    async with engine.connect() as connection:
        await connection.execute(text("INSERT INTO sent VALUES (:n)"), {"n": ctx.attempt})
        await ctx.finish_in(connection, f"sent in attempt {ctx.attempt}")
        if trouble == "before the commit" and ctx.attempt == 1:
            raise OSError("the connection to the mail server broke")
        await connection.commit()
    if trouble == "after the commit":
        raise OSError("something that does not matter any more")
    return "what the handler returns"


@pytest.mark.parametrize(
    ("trouble", "attempts"), [("none", 1), ("before the commit", 2), ("after the commit", 1)]
)
async def test_the_job_is_done_exactly_when_its_work_is_committed(
    storage: Storage, engine: AsyncEngine, trouble: str, attempts: int
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("send")
    async def handler(ctx: JobContext) -> str:
        return await send(ctx, engine, trouble=trouble)

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(handler.request())
        job = await ended(storage, outcome.job_id)
        await handle.drain(10)
    assert (job.status, job.attempt) == (JobStatus.DONE, attempts)
    assert job.result == f'"sent in attempt {attempts}"'
    assert await sent(engine) == [attempts]
    stays = (await storage.jobs.get([job.id]))[job.id]
    assert (stays.status, stays.result, len(stays.errors)) == ("done", job.result, attempts - 1)


async def test_a_handler_that_goes_on_after_the_commit_is_not_stopped(
    storage: Storage, engine: AsyncEngine
) -> None:
    handlers = HandlerRegistry()
    committed, go_on, went_on = anyio.Event(), anyio.Event(), anyio.Event()

    @handlers.job("send")
    async def handler(ctx: JobContext) -> None:
        async with engine.connect() as connection:
            await ctx.finish_in(connection)
            await connection.commit()
        committed.set()
        await go_on.wait()
        went_on.set()

    async def last_beat() -> datetime:
        [pod] = await storage.procs.pods()
        return pod.last_beat_at

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(handler.request())
        with anyio.fail_after(20):
            await committed.wait()
            # The second beat from here on was sent after the commit, and the pod has the answer.
            for _ in range(3):
                before = await last_beat()
                while await last_beat() == before:
                    await anyio.lowlevel.checkpoint()
            go_on.set()
            await went_on.wait()
        job = await ended(storage, outcome.job_id)
        assert handle.health().lost_claims == 0
    assert job.status is JobStatus.DONE


@pytest.mark.parametrize("commits", [True, False])
async def test_a_lost_claim_ends_nothing(
    storage: Storage, engine: AsyncEngine, commits: bool
) -> None:
    lease = await register(storage)
    job_id = await enqueue_one(storage)
    old = await claim_one(storage, lease)
    await storage.jobs.release([old.claim])
    new = await claim_one(storage, lease)
    async with engine.connect() as connection:
        late = Finalization(old.claim, done("late"))
        assert await storage.jobs.finalize([late], connection=connection) == [True]
        late = Finalization(replace(old.claim, token=99), done("late"))
        assert await storage.jobs.finalize([late], connection=connection) == [False]
        current = Finalization(new.claim, done("now"))
        assert await storage.jobs.finalize([current], connection=connection) == [True]
        await (connection.commit() if commits else connection.rollback())
    job = await get_job(storage, job_id)
    assert job.result == ("now" if commits else None)
    assert job.status == (JobStatus.DONE if commits else JobStatus.IN_PROGRESS)


async def test_a_function_ends_its_job_by_a_session_of_its_thread(
    storage: Storage, threads_engine: Engine
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("send")
    def handler(ctx: JobContext) -> None:
        with Session(threads_engine) as session:
            ctx.sync.finish_in(session, 7)
            session.commit()

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(handler.request())).job_id)
    assert (job.status, job.result) == (JobStatus.DONE, "7")


async def test_an_injected_transaction_commits_the_end_and_no_clean_up_makes_a_second_run(
    storage: Storage, engine: AsyncEngine
) -> None:
    handlers = HandlerRegistry()

    async def breaks() -> AsyncGenerator[None]:
        yield
        raise OSError("a clean-up after the commit")

    async def transaction(_: None = Depends(breaks)) -> AsyncGenerator[AsyncConnection]:
        async with engine.begin() as connection:
            yield connection

    @handlers.job("send")
    async def send_it(ctx: JobContext, db: AsyncConnection = Depends(transaction)) -> None:
        await db.execute(text("INSERT INTO sent VALUES (:n)"), {"n": ctx.attempt})
        await ctx.finish_in(db, "sent")

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(send_it.request())).job_id)
        # A second run would come before the next job of the only worker.
        again = await ended(storage, (await handle.enqueue(send_it.request())).job_id)
    for each in (job, again):
        assert (each.status, each.attempt, each.result) == (JobStatus.DONE, 1, '"sent"')
    assert await sent(engine) == [1, 1]
