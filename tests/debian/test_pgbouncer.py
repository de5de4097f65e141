"""A store behind PgBouncer in transaction mode: every transaction may meet another session."""

import logging
from collections.abc import AsyncGenerator, Generator
from datetime import timedelta

import anyio
import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus, Unique
from forge_jobs.storage.opening import open_migrator, open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.postgres.short import bulk
from forge_jobs.testing.ports import HOST
from forge_jobs.testing.servers import PgBouncer, PostgresServer
from tests.migrations.made_up import NEXT, STEPS, with_migrations
from tests.support.callers import drivers_own
from tests.support.factories import (
    QUEUE,
    claim,
    counters,
    done,
    enqueue_one,
    finish,
    get_job,
    new_job,
    register,
)
from tests.support.postgres import raw, with_options
from tests.support.runtimes import a_runtime, ended
from tests.support.servers import a_postgres

pytestmark = pytest.mark.anyio

JOBS = 60


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    with a_postgres() as postgres:
        yield postgres


@pytest.fixture(scope="module")
def bouncer(server: PostgresServer) -> Generator[PgBouncer]:
    with PgBouncer(server, settings={"default_pool_size": "3"}) as pooler:
        yield pooler


@pytest.fixture
async def url(bouncer: PgBouncer, server: PostgresServer) -> AsyncGenerator[str]:
    """Of an empty database."""
    yield with_options(bouncer.url, pgbouncer=1)
    async with raw(server.url) as connection:
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


@pytest.fixture
async def storage(url: str) -> AsyncGenerator[Storage]:
    async with await open_storage(url) as opened:
        yield opened


async def test_a_long_list_is_copied_through_the_pooler_too(storage: Storage) -> None:
    await enqueue_one(storage)
    requests = [new_job() for _ in range(bulk.FEW + 1)]
    for _ in range(2):
        outcomes = await storage.jobs.enqueue(requests)
        assert [each.job_id for each in outcomes] == [each.id for each in requests]
    assert await counters(storage) == {"enqueued": bulk.FEW + 2}


async def test_a_migration_goes_through_the_pooler(storage: Storage, url: str) -> None:
    await enqueue_one(storage)
    with with_migrations(STEPS):
        assert [each.version for each in await open_migrator(url).up()] == [NEXT]
        assert await open_migrator(url).up() == []
    await enqueue_one(storage)


async def test_many_callers_share_few_sessions(storage: Storage) -> None:
    lease = await register(storage)
    async with await storage.reopen() as other:
        both, ids = (storage, other), list[str]()

        async def work(mine: Storage) -> None:
            await mine.jobs.enqueue([new_job() for _ in range(10)])
            await mine.jobs.enqueue([new_job(unique=Unique("only"), run_at=None)])
            while found := await claim(mine, lease, limit=3):
                for each in found:
                    assert await finish(mine, each, done("7"))
                    ids.append(each.claim.job_id)

        async with anyio.create_task_group() as group:
            for n in range(6):
                group.start_soon(work, both[n % 2])
    assert len(ids) == len(set(ids)) >= JOBS
    page = await storage.jobs.list(JobFilter(), cursor=None, limit=100)
    assert {each.status for each in page.jobs} == {JobStatus.DONE}


async def test_a_runtime_works_and_polls_and_says_so_once(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("double")
    async def double(value: int) -> int:
        return 2 * value

    with caplog.at_level(logging.WARNING):
        async with (
            await open_storage(url) as storage,
            a_runtime(storage, handlers, 3).start() as handle,
        ):
            made = [await handle.enqueue(double.request(n)) for n in range(JOBS)]
            for n, outcome in enumerate(made):
                assert (await ended(storage, outcome.job_id)).result == str(2 * n)
            assert handle.health().lost_claims == 0
            assert not storage.health().wakes
    lines = [record.message for record in caplog.records if "notifications" in record.message]
    assert len(lines) == 1
    assert "direct=" in lines[0]


async def test_notices_come_past_the_pooler_by_a_direct_address(
    url: str, server: PostgresServer
) -> None:
    there = with_options(url, direct=f"{HOST}:{server.port}")
    mine = frozenset({QUEUE})
    async with await open_storage(there) as storage, await open_storage(there) as other:
        while await storage.jobs.wait_for_work(mine, timedelta(seconds=0.1)):
            pass
        assert storage.health().wakes
        await enqueue_one(other)
        assert (await storage.jobs.wait_for_work(mine, timedelta(seconds=10))).queues == mine


async def test_nothing_stays_on_a_session(storage: Storage, bouncer: PgBouncer) -> None:
    lease = await register(storage)
    await enqueue_one(storage)
    assert await claim(storage, lease)
    async with raw(bouncer.url, statement_cache_size=0) as connection:
        for _ in range(6):
            async with connection.transaction():
                for name, value in (
                    ("search_path", '"$user", public'),
                    ("statement_timeout", "0"),
                    ("lock_timeout", "0"),
                    ("idle_in_transaction_session_timeout", "0"),
                    ("default_transaction_isolation", "read committed"),
                ):
                    assert await connection.fetchval(f"SHOW {name}") == value
                assert await connection.fetchval("SELECT count(*) FROM pg_prepared_statements") == 0
                assert await connection.fetch("SELECT pg_listening_channels()") == []
                held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
                assert await connection.fetchval(held) == 0


async def test_a_callers_transaction_through_the_pooler(
    storage: Storage, bouncer: PgBouncer
) -> None:
    kept, lost = new_job(), new_job()
    for job, commits in ((kept, True), (lost, False)):
        async with drivers_own(bouncer.url, statement_cache_size=0) as (connection, end):
            await storage.jobs.enqueue([job], connection=connection)
            await end(commits)
    assert (await storage.jobs.get([kept.id, lost.id])).keys() == {kept.id}
    assert (await get_job(storage, kept.id)).status is JobStatus.PENDING
