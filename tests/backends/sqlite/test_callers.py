"""Enqueue inside a transaction that the caller holds, by each of SQLAlchemy's four objects."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.model.jobs import After, Unique
from forge_jobs.model.queues import Wake
from forge_jobs.storage.protocols import Storage
from tests.support.factories import QUEUE, claim, new_job, register

pytestmark = pytest.mark.anyio

End = Callable[[bool], Awaitable[None]]
"""Commits (True) or rolls back."""
Opener = Callable[[Path], AbstractAsyncContextManager[tuple[object, End]]]


@asynccontextmanager
async def sync_connection(path: Path) -> AsyncGenerator[tuple[object, End]]:
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:

        async def end(commit: bool) -> None:
            connection.commit() if commit else connection.rollback()

        yield connection, end
    engine.dispose()


@asynccontextmanager
async def sync_session(path: Path) -> AsyncGenerator[tuple[object, End]]:
    engine = create_engine(f"sqlite:///{path}")
    with Session(engine) as session:

        async def end(commit: bool) -> None:
            session.commit() if commit else session.rollback()

        yield session, end
    engine.dispose()


@asynccontextmanager
async def async_connection(path: Path) -> AsyncGenerator[tuple[object, End]]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with AsyncConnection(engine) as connection:

        async def end(commit: bool) -> None:
            await (connection.commit() if commit else connection.rollback())

        yield connection, end
    await engine.dispose()


@asynccontextmanager
async def async_session(path: Path) -> AsyncGenerator[tuple[object, End]]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with AsyncSession(engine) as session:

        async def end(commit: bool) -> None:
            await (session.commit() if commit else session.rollback())

        yield session, end
    await engine.dispose()


OPENERS = [sync_connection, sync_session, async_connection, async_session]
every_kind = pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)


async def waited(storage: Storage, seconds: float) -> Wake:
    return await storage.jobs.wait_for_work(frozenset({QUEUE}), timedelta(seconds=seconds))


@every_kind
async def test_what_is_rolled_back_is_not_there_and_wakes_nobody(
    opener: Opener,
    storage: Storage,
    tmp_path: Path,
) -> None:
    job = new_job()
    async with opener(tmp_path / "jobs.db") as (connection, end):
        await storage.jobs.enqueue([job], connection=connection)
        await end(False)
    assert await storage.jobs.get([job.id]) == {}
    assert not await waited(storage, 0.1)


@every_kind
async def test_what_is_committed_is_there_and_wakes_once(
    opener: Opener,
    storage: Storage,
    tmp_path: Path,
) -> None:
    job = new_job()
    async with opener(tmp_path / "jobs.db") as (connection, end):
        await storage.jobs.enqueue([job], connection=connection)
        assert not await waited(storage, 0.05)
        assert await storage.jobs.get([job.id]) == {}
        await end(True)
        assert (await waited(storage, 10)).queues == {QUEUE}
        assert not await waited(storage, 0.1)
    assert job.id in await storage.jobs.get([job.id])


@pytest.mark.parametrize("commits", [False, True])
async def test_a_burst_of_one_key_goes_and_comes_with_the_callers_transaction(
    storage: Storage, tmp_path: Path, commits: bool
) -> None:
    lease = await register(storage)
    await storage.config.ensure_limits(QUEUE, {"n": 2})
    burst = [new_job(limit_name="n", limit_key="a") for _ in range(150)]
    async with async_connection(tmp_path / "jobs.db") as (connection, end):
        await storage.jobs.enqueue(burst, connection=connection)
        await end(commits)
    few = [new_job(limit_name="n", limit_key="a") for _ in range(2)]
    await storage.jobs.enqueue(few)
    claimed = {one.claim.job_id for one in await claim(storage, lease, limit=9)}
    first = burst if commits else few
    assert claimed == {*sorted(one.id for one in first)[:2]}


@every_kind
async def test_a_refused_call_leaves_the_callers_other_work_alone(
    opener: Opener,
    storage: Storage,
    tmp_path: Path,
) -> None:
    await storage.jobs.enqueue([new_job(unique=Unique("k"))])
    kept, refused = new_job(), new_job(unique=Unique("k", "error"))
    async with opener(tmp_path / "jobs.db") as (connection, end):
        await storage.jobs.enqueue([kept], connection=connection)
        with pytest.raises(Conflict):
            await storage.jobs.enqueue([new_job(), refused], connection=connection)
        orphan = new_job(queue="new", after=(After(new_job().id),))
        with pytest.raises(NotFound):
            await storage.jobs.enqueue([orphan], connection=connection)
        await end(True)
    counts = await storage.jobs.counts()
    assert counts.keys() == {QUEUE}
    assert counts[QUEUE].by_status["pending"] == 2
    assert kept.id in await storage.jobs.get([kept.id])


async def test_it_shares_the_transaction_with_the_callers_own_rows(
    storage: Storage, tmp_path: Path
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/jobs.db")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))
    with engine.connect() as connection:
        connection.execute(text("INSERT INTO orders VALUES (1)"))
        await storage.jobs.enqueue([new_job()], connection=connection)
        connection.rollback()
        assert connection.execute(text("SELECT count(*) FROM orders")).scalar_one() == 0
    engine.dispose()
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 0


async def test_a_connection_of_another_database_is_refused(
    storage: Storage, tmp_path: Path
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/other.db")
    with engine.connect() as connection, pytest.raises(InvalidInput) as caught:
        await storage.jobs.enqueue([new_job()], connection=connection)
    engine.dispose()
    assert caught.value.field == "connection"
    engine = create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(InvalidInput):
        await storage.jobs.enqueue([new_job()], connection=connection)
    engine.dispose()


async def test_something_that_is_no_connection_is_refused(storage: Storage) -> None:
    with pytest.raises(InvalidInput, match="int"):
        await storage.jobs.enqueue([new_job()], connection=7)


async def test_a_connection_that_commits_each_statement_by_itself_is_refused(
    storage: Storage, tmp_path: Path
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/jobs.db", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        with pytest.raises(InvalidInput, match="autocommit"):
            await storage.jobs.enqueue([new_job()], connection=connection)
        connection.execute(text("BEGIN"))
        job = new_job()
        await storage.jobs.enqueue([job], connection=connection)
        connection.execute(text("COMMIT"))
    engine.dispose()
    assert job.id in await storage.jobs.get([job.id])
