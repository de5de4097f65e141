"""Enqueue inside a transaction that the caller holds on PostgreSQL, by every kind of connection."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import anyio
import asyncpg
import pytest
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import Conflict, InvalidInput, NotFound, StorageError, Unavailable
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import After, Unique
from forge_jobs.model.queues import QueueSettings, Wake
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support import backends
from tests.support.callers import (
    OPENERS,
    Opener,
    async_connection,
    by,
    drivers_own,
    sync_connection,
)
from tests.support.factories import KIND, QUEUE, claim, claim_one, enqueue_one, new_job, register
from tests.support.postgres import raw, with_options

pytestmark = [pytest.mark.anyio, pytest.mark.only_rows]

every_kind = pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)


async def waited(storage: Storage, seconds: float) -> Wake:
    return await storage.jobs.wait_for_work(frozenset({QUEUE}), timedelta(seconds=seconds))


async def listens(storage: Storage) -> None:
    """Wait until the connection for notices is there, with all earlier wake-ups read."""
    while await waited(storage, 0.05):
        pass


@every_kind
async def test_what_is_rolled_back_is_not_there_and_wakes_nobody(
    opener: Opener, storage: Storage, url: str
) -> None:
    await listens(storage)
    job = new_job()
    async with opener(url) as (connection, end):
        await storage.jobs.enqueue([job], connection=connection)
        await end(False)
    assert await storage.jobs.get([job.id]) == {}
    assert not await waited(storage, 0.1)


@every_kind
async def test_what_is_committed_is_there_and_wakes_once(
    opener: Opener, storage: Storage, url: str
) -> None:
    lease = await register(storage)
    await listens(storage)
    job = new_job()
    async with opener(url) as (connection, end):
        await storage.jobs.enqueue([job], connection=connection)
        assert not await waited(storage, 0.05)
        assert await storage.jobs.get([job.id]) == {}
        await end(True)
        assert (await waited(storage, 10)).queues == {QUEUE}
        assert not await waited(storage, 0.1)
    assert (await claim_one(storage, lease)).claim.job_id == job.id


@pytest.mark.parametrize("commits", [False, True])
async def test_a_burst_of_one_key_goes_and_comes_with_the_callers_transaction(
    storage: Storage, url: str, commits: bool
) -> None:
    lease = await register(storage)
    await storage.config.ensure_limits(QUEUE, {"n": 2})
    burst = [new_job(limit_name="n", limit_key="a") for _ in range(150)]
    async with async_connection(url) as (connection, end):
        await storage.jobs.enqueue(burst, connection=connection)
        await end(commits)
    few = [new_job(limit_name="n", limit_key="a") for _ in range(2)]
    await storage.jobs.enqueue(few)
    claimed = {one.claim.job_id for one in await claim(storage, lease, limit=9)}
    first = burst if commits else few
    assert claimed == {*sorted(one.id for one in first)[:2]}


@every_kind
async def test_a_refused_call_leaves_the_callers_other_work_alone(
    opener: Opener, storage: Storage, url: str
) -> None:
    await storage.jobs.enqueue([new_job(unique=Unique("k"))])
    kept, refused = new_job(), new_job(unique=Unique("k", "error"))
    async with opener(url) as (connection, end):
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


@every_kind
async def test_the_callers_search_path_and_temporary_tables_are_nothing_to_us(
    opener: Opener, url: str
) -> None:
    elsewhere = with_options(url, schema=quote_plus("""odd "one" 100% : it's Ärger-$1"""))
    async with (
        await open_storage(elsewhere) as storage,
        opener(url) as (connection, end),
    ):
        await _execute(connection, "SET search_path = pg_temp, nowhere")
        await _execute(connection, "SET LOCAL lock_timeout = 4321")
        await _execute(connection, "CREATE TEMPORARY TABLE forge_jobs (id int)")
        job = new_job()
        await storage.jobs.enqueue([job], connection=connection)
        with pytest.raises(NotFound):
            await storage.jobs.enqueue(
                [new_job(after=(After(new_job().id),))], connection=connection
            )
        assert await _execute(connection, "SHOW search_path") == "pg_temp, nowhere"
        assert await _execute(connection, "SHOW lock_timeout") == "4321ms"
        await end(True)
        assert job.id in await storage.jobs.get([job.id])


async def _execute(connection: Any, statement: str) -> object:
    """Run a statement by the caller's connection, and return the first value."""
    if hasattr(connection, "fetchval"):
        return await connection.fetchval(statement)
    result = connection.execute(text(statement))
    if not isinstance(connection, Connection | Session):
        result = await result
    return result.scalar() if result.returns_rows else None


async def test_inside_run_sync_a_plain_connection_or_session_will_do(
    storage: Storage, url: str
) -> None:
    engine = create_async_engine(by("asyncpg", url))
    client = JobClient(storage)

    def by_connection(connection: Connection) -> str:
        request = EnqueueRequest(KIND)
        return client.sync.enqueue(request, connection=connection).job_id

    def by_session(connection: Connection) -> str:
        with Session(connection) as session:
            job_id = client.sync.enqueue(EnqueueRequest(KIND), connection=session).job_id
            session.commit()
            return job_id

    async with engine.begin() as connection:
        ids = [await connection.run_sync(each) for each in (by_connection, by_session)]
    await engine.dispose()
    await client.aclose()
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == len(set(ids)) == 2


async def test_the_blocking_client_takes_no_connection_that_waits(
    storage: Storage, url: str
) -> None:
    client = JobClient(storage)
    for opener in (async_connection, drivers_own):
        async with opener(url) as (connection, end):
            with pytest.raises(InvalidInput, match="use the asynchronous client"):
                client.sync.enqueue(EnqueueRequest(KIND), connection=connection)
            await end(True)
    await client.aclose()


async def test_a_drivers_connection_outside_a_transaction_is_refused(
    storage: Storage, url: str
) -> None:
    async with raw(url) as connection:
        with pytest.raises(InvalidInput, match="outside a transaction"):
            await storage.jobs.enqueue([new_job()], connection=connection)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_connection_that_commits_each_statement_by_itself_is_refused(
    storage: Storage, url: str, driver: str
) -> None:
    engine = create_async_engine(by(driver, url), isolation_level="AUTOCOMMIT")
    job = new_job()
    async with engine.connect() as connection:
        with pytest.raises(InvalidInput, match="autocommit"):
            await storage.jobs.enqueue([new_job()], connection=connection)
        await connection.execute(text("BEGIN"))
        await storage.jobs.enqueue([job], connection=connection)
        await connection.execute(text("COMMIT"))
    await engine.dispose()
    assert list(await storage.jobs.get([job.id])) == [job.id]


async def test_a_connection_of_another_database_or_schema_is_refused(
    storage: Storage, url: str, tmp_path: Path
) -> None:
    other = await backends.url_of("postgres", tmp_path / "other")
    async with drivers_own(other) as (connection, _):
        with pytest.raises(InvalidInput, match="not of this store's database"):
            await storage.jobs.enqueue([new_job()], connection=connection)
    await backends.forget("postgres", tmp_path / "other")
    engine = create_async_engine("sqlite+aiosqlite://")
    async with engine.connect() as connection:
        with pytest.raises(InvalidInput, match="not of this store's database"):
            await storage.jobs.enqueue([new_job()], connection=connection)
    await engine.dispose()


async def test_a_connection_that_is_no_use_any_more_is_told_as_such(
    storage: Storage, url: str
) -> None:
    async with drivers_own(url) as (connection, _):
        with pytest.raises(asyncpg.PostgresError):
            await connection.execute("SELECT nothing_of_that_name")
        with pytest.raises(StorageError, match="ended the transaction"):
            await storage.jobs.enqueue([new_job()], connection=connection)
    async with drivers_own(url) as (connection, _):
        await connection.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(Unavailable, match="only takes reads"):
            await storage.jobs.enqueue([new_job()], connection=connection)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_what_a_callers_isolation_cannot_do_is_told_and_leaves_nothing(
    storage: Storage, url: str, level: str
) -> None:
    await storage.config.ensure_queue(QUEUE, QueueSettings())
    async with drivers_own(url) as (connection, end):
        await connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        assert await connection.fetchval("SELECT count(*) FROM forge_jobs") == 0
        holder = await enqueue_one(storage, unique=Unique("k"))
        mine = new_job(queue="mine")
        with pytest.raises(Unavailable, match="gave way"):
            await storage.jobs.enqueue([mine, new_job(unique=Unique("k"))], connection=connection)
        with pytest.raises(Unavailable, match="ended the transaction"):
            await storage.jobs.enqueue([new_job()], connection=connection)
        await end(False)
    assert (await storage.jobs.get([holder, mine.id])).keys() == {holder}
    assert (await storage.jobs.counts()).keys() == {QUEUE}


async def test_a_caller_waits_for_another_callers_key_and_learns_who_holds_it(
    storage: Storage, url: str
) -> None:
    first, second = new_job(unique=Unique("k")), new_job(unique=Unique("k"))
    async with drivers_own(url) as (one, end_one), drivers_own(url) as (other, end_other):
        await storage.jobs.enqueue([first], connection=one)
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                [outcome] = await storage.jobs.enqueue([second], connection=other)
                assert (outcome.job_id, outcome.deduplicated) == (first.id, True)

            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            await end_one(True)
        await end_other(True)
    assert (await storage.jobs.get([first.id, second.id])).keys() == {first.id}


async def test_a_caller_who_waits_too_long_begins_anew(storage: Storage, url: str) -> None:
    await storage.config.ensure_queue(QUEUE, QueueSettings())
    async with drivers_own(url) as (one, end_one), sync_connection(url) as (other, end_other):
        await storage.jobs.enqueue([new_job(unique=Unique("k"))], connection=one)
        other.execute(text("SET LOCAL lock_timeout = 50"))
        with pytest.raises(Unavailable, match="an open transaction"):
            await storage.jobs.enqueue([new_job(unique=Unique("k"))], connection=other)
        other.rollback()
        kept = new_job()
        await storage.jobs.enqueue([kept], connection=other)
        await end_other(True)
        await end_one(False)
    assert list(await storage.jobs.get([kept.id])) == [kept.id]
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 1
