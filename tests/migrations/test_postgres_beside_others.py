"""The schema of a Postgres database is changed while others work there."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from forge_jobs import stop_points
from forge_jobs.errors import Unavailable
from forge_jobs.storage.opening import open_migrator, open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.postgres import migrating
from tests.migrations.catalog import names_in, query
from tests.migrations.made_up import INDEX, NEXT, STEPS, up_in_processes, with_migrations
from tests.support.backends import forget, url_of
from tests.support.factories import enqueue_one
from tests.support.points import armed
from tests.support.postgres import raw
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

COLUMN = f"-- works-from: {NEXT - 1}\nALTER TABLE forge_jobs ADD COLUMN more TEXT;\n"
INVALID = "SELECT count(*) FROM pg_index WHERE NOT indisvalid"
WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
AND wait_event_type = 'Lock' AND query LIKE '%forge_%'
"""


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    yield await url_of("postgres", tmp_path)
    await forget("postgres", tmp_path)


@pytest.fixture
async def storage(url: str) -> AsyncIterator[Storage]:
    async with await open_storage(url) as opened:
        yield opened


@asynccontextmanager
async def an_open_transaction(url: str, statement: str) -> AsyncIterator[asyncpg.Connection]:
    async with raw(url, server_settings={"application_name": "a report"}) as connection:
        await connection.execute(f"BEGIN; {statement}")
        yield connection


async def is_waited(url: str) -> object:
    return (await query(url, WAITING))[0][0]


async def test_nobody_waits_behind_a_change_that_waits_for_a_reader(
    url: str, storage: Storage
) -> None:
    with with_migrations(COLUMN):
        async with an_open_transaction(url, "SELECT count(*) FROM forge_jobs"):
            migration = asyncio.create_task(open_migrator(url).up())
            for _ in range(3):
                await wait_until(lambda: is_waited(url), description="the change waits")
                # A change that waits with the lock would hold this up, and the call would fail.
                for _ in range(5):
                    await enqueue_one(storage)
            assert not migration.done()
        assert [each.version for each in await migration] == [NEXT]
    await enqueue_one(storage)


async def test_who_is_in_the_way_is_named_and_the_step_undone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrating, "PATIENCE_S", 0)
    before = await query(url, "SELECT version FROM forge_migrations")
    with with_migrations(COLUMN):
        async with an_open_transaction(url, "SELECT FROM forge_jobs") as reader:
            with pytest.raises(Unavailable, match="others use forge_jobs: pid") as refused:
                await open_migrator(url).up()
            assert f"pid {reader.get_server_pid()} (a report" in str(refused.value)
        assert await query(url, "SELECT version FROM forge_migrations") == before
        await open_migrator(url).up()


async def test_an_index_is_built_beside_a_writer_and_says_what_it_waits_for(
    url: str, storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(migrating, "LOG_AFTER_S", 0.05)
    await enqueue_one(storage)
    with with_migrations(INDEX), caplog.at_level(logging.WARNING):
        async with an_open_transaction(url, "UPDATE forge_jobs SET tags = tags") as writer:
            migration = asyncio.create_task(open_migrator(url).up())
            await wait_until(lambda: caplog.messages, description="it says what it waits for")
            for _ in range(5):
                await enqueue_one(storage)
            assert not migration.done()
            assert f"pid {writer.get_server_pid()} (a report" in caplog.text
        await migration
    assert "forge_more" in await names_in(url)
    assert await query(url, INVALID) == [(0,)]


async def test_what_a_killed_build_has_left_is_built_again(url: str, storage: Storage) -> None:
    for _ in range(2):
        await enqueue_one(storage)
    async with raw(url) as connection:
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute(
                "CREATE UNIQUE INDEX CONCURRENTLY forge_more ON forge_jobs (kind)"
            )
    assert await query(url, INVALID) == [(1,)]
    with with_migrations(INDEX):
        await open_migrator(url).up()
    assert await query(url, INVALID) == [(0,)]
    [(definition,)] = await query(
        url, "SELECT indexdef FROM pg_indexes WHERE indexname = 'forge_more'"
    )
    assert "(kind, enqueued_at)" in str(definition)


async def test_a_build_that_still_goes_on_in_the_server_is_waited_for(
    url: str, storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The program was killed, and the server has not noticed."""
    monkeypatch.setattr(migrating, "LOG_AFTER_S", 0.05)
    await enqueue_one(storage)
    async with (
        raw(url) as orphan,
        an_open_transaction(url, "UPDATE forge_jobs SET tags = tags") as writer,
    ):
        build = asyncio.create_task(orphan.execute(INDEX))
        await wait_until(lambda: is_waited(url), description="the build waits")
        with with_migrations(INDEX):
            migration = asyncio.create_task(open_migrator(url).up())
            await wait_until(
                lambda: "may still be built" in caplog.text, description="it says that it waits"
            )
            await writer.execute("COMMIT")
            await build
            await migration
    assert await query(url, INVALID) == [(0,)]


@pytest.mark.processes
@pytest.mark.long
async def test_a_migration_that_is_killed_at_any_step_goes_on_at_the_next_try(
    url: str, tmp_path: Path
) -> None:
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with armed("migrate:step", count), with_migrations(STEPS):
        await open_migrator(f"{url}?schema=whole").up()
        steps = 0
        await open_migrator(f"{url}?schema=counted").up()
        of_an_empty_one = steps
    assert of_an_empty_one > len(STEPS.split(";\n"))
    columns = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = "
    indexes = "SELECT indexname FROM pg_indexes WHERE schemaname = "
    for visit in range(1, 6):
        there = f"{url}?schema=killed{visit}"
        await open_migrator(there).up()
        marker = str(tmp_path / f"died{visit}")
        assert await up_in_processes(there, STEPS, death=(visit, marker)) == [-9]
        assert await up_in_processes(there, STEPS) == [0]
        for statement in (columns, indexes):
            whole = await query(url, f"{statement}'whole'")
            assert sorted(await query(url, f"{statement}'killed{visit}'")) == sorted(whole)
    assert await query(url, INVALID) == [(0,)]
    assert not stop_points.ARMED
