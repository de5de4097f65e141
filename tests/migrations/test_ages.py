"""A program meets a schema of another age, or none, on each SQL database."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import psycopg
import pytest
from sqlalchemy import Connection

from forge_jobs.errors import Conflict, SchemaMismatch, StorageError
from forge_jobs.storage.opening import open_migrator, open_storage
from forge_jobs.storage.sql.postgres.flavor import PostgresFlavor
from tests.migrations.catalog import names_in, query
from tests.migrations.made_up import NEWEST, NEXT, TABLE, up_in_processes, with_migrations
from tests.support.backends import forget, url_of
from tests.support.factories import register
from tests.support.pods import forkserver

pytestmark = pytest.mark.anyio

PROCESSES = 10


@pytest.fixture(params=["sqlite", "postgres"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Where no schema is yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
    else:
        yield f"{await url_of('postgres', tmp_path)}?schema=empty"
        await forget("postgres", tmp_path)


VERSIONS = [(version,) for version in range(1, NEXT)]
ONLY_FOR_ITSELF = "CREATE TABLE forge_more (id INTEGER);\n"


def _open(url: str) -> None:
    anyio.run(_look, url)


async def _look(url: str) -> None:
    async with await open_storage(url) as storage:
        assert await storage.jobs.counts() == {}


@pytest.mark.processes
@pytest.mark.long
async def test_ten_processes_find_an_empty_database_at_once(url: str) -> None:
    processes = [forkserver.Process(target=_open, args=(url,)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        await anyio.to_thread.run_sync(partial(process.join, 60))
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    versions = "SELECT version FROM forge_migrations ORDER BY version"
    assert await query(url, versions) == VERSIONS


_SCHEMA_OF_ANOTHER = """
    CREATE SCHEMA empty;
    CREATE TABLE empty.forge_migrations (
        version integer PRIMARY KEY, name text, checksum text, applied_at bigint, works_from integer
    );
    INSERT INTO empty.forge_migrations VALUES (1, 'of another', 'of another', 0, 1);
    CREATE TABLE empty.forge_jobs (id text);
"""


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_program_sees_the_schema_that_another_made_just_before_the_lock(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_lock = PostgresFlavor.try_lock
    made: list[object] = []

    def late(self: PostgresFlavor, connection: Connection, name: str) -> bool:
        if not made:
            # What the statement needs is in the caches of the session, which then asks for nothing.
            try_lock(self, connection, "another")
            with psycopg.connect(url.partition("?")[0], autocommit=True) as another:
                made.append(another.execute(_SCHEMA_OF_ANOTHER))
        return try_lock(self, connection, name)

    monkeypatch.setattr(PostgresFlavor, "try_lock", late)
    with pytest.raises(SchemaMismatch, match="by another text of migration 1"):
        await open_storage(url)
    assert len(made) == 1


@pytest.mark.processes
@pytest.mark.long
async def test_ten_processes_bring_an_older_schema_up_to_date_at_once(url: str) -> None:
    await open_migrator(url).up()
    assert await up_in_processes(url, TABLE, count=PROCESSES) == [0] * PROCESSES
    versions = "SELECT version FROM forge_migrations ORDER BY version"
    assert await query(url, versions) == [*VERSIONS, (NEXT,)]


async def test_an_empty_database_gets_its_schema_at_once(url: str) -> None:
    await _look(url)
    statuses = await open_migrator(url).status()
    assert [entry.version for entry in statuses] == list(range(1, NEXT))
    assert all(entry.applied_at is not None and entry.known for entry in statuses)


async def test_an_older_schema_is_refused_with_the_command_that_helps(url: str) -> None:
    await open_migrator(url).up()
    with with_migrations(TABLE), pytest.raises(SchemaMismatch, match="forge-jobs migrate up"):
        await open_storage(url)


async def test_an_older_schema_is_brought_up_to_date_when_asked(url: str) -> None:
    await open_migrator(url).up()
    with with_migrations(TABLE):
        migrator = open_migrator(url)
        assert "forge_more" in await migrator.sql()
        assert "forge_more" not in await names_in(url), "a dry run changes nothing"
        async with await open_storage(url, migrate=True):
            pass
        assert "forge_more" in await names_in(url)
        assert await migrator.sql() == ""
        assert await migrator.up() == []


async def test_a_newer_schema_is_refused_with_what_to_do(url: str) -> None:
    with with_migrations(TABLE, ONLY_FOR_ITSELF.replace("more", "most")):
        await open_migrator(url).up()
    for migrate in (False, True):
        with pytest.raises(SchemaMismatch, match="upgrade forge-jobs"):
            await open_storage(url, migrate=migrate)
    with pytest.raises(SchemaMismatch, match=f"from schema version {NEXT + 1} on; .* is {NEWEST};"):
        await open_migrator(url).up()
    newest = (await open_migrator(url).status())[-1]
    assert (newest.version, newest.known, newest.works_from) == (NEXT + 1, False, NEXT + 1)


async def test_a_newer_schema_that_works_with_this_program_is_taken(url: str) -> None:
    with with_migrations(TABLE):
        await open_migrator(url).up()
    for migrate in (False, True):
        async with await open_storage(url, migrate=migrate) as storage:
            assert await storage.jobs.counts() == {}
    assert await open_migrator(url).up() == []
    newest = (await open_migrator(url).status())[-1]
    assert (newest.version, newest.known, newest.works_from) == (NEXT, False, NEWEST)


async def test_a_schema_whose_migrations_do_not_say_which_programs_they_work_with(url: str) -> None:
    """As the first release made the schema: a migration works with programs that know of that."""
    await open_migrator(url).up()
    await query(url, "ALTER TABLE forge_migrations DROP COLUMN works_from")
    statuses = await open_migrator(url).status()
    assert [entry.works_from for entry in statuses if entry.version == 1] == [1]
    with with_migrations(TABLE):
        assert [entry.version for entry in await open_migrator(url).up()] == [NEXT]
    columns = f"SELECT works_from FROM forge_migrations WHERE version = {NEXT}"
    assert await query(url, columns) == [(NEWEST,)]
    await (await open_storage(url)).aclose()
    await query(url, "UPDATE forge_migrations SET works_from = NULL")
    with pytest.raises(SchemaMismatch):
        await open_storage(url)


async def test_a_failed_migration_leaves_the_schema_as_it_was(url: str) -> None:
    await open_migrator(url).up()
    before = await names_in(url)
    broken = f"{TABLE}CREATE TABLE;\n"
    with (
        with_migrations(broken),
        pytest.raises(StorageError, match="refused the statement"),
    ):
        await open_migrator(url).up()
    assert await names_in(url) == before


async def test_a_migration_that_can_be_undone_is(url: str) -> None:
    with with_migrations(TABLE, down="DROP TABLE forge_more;\n"):
        await open_migrator(url).up()
        undone = await open_migrator(url).down(NEWEST)
        assert [entry.version for entry in undone] == [NEXT]
        assert "forge_more" not in await names_in(url)
        assert await open_migrator(url).down(NEWEST) == []
        assert [entry.version for entry in await open_migrator(url).up()] == [NEXT]


async def test_what_would_lose_data_is_not_undone(url: str) -> None:
    down = "-- loses: SELECT 'what is in forge_more' FROM forge_more\nDROP TABLE forge_more;\n"
    with with_migrations(TABLE, down=down):
        await open_migrator(url).up()
        await query(url, "INSERT INTO forge_more VALUES (1)")
        with pytest.raises(Conflict, match="lose data: what is in forge_more"):
            await open_migrator(url).down(NEWEST)
        assert await query(url, "SELECT id FROM forge_more") == [(1,)]
        with pytest.raises(Conflict, match="migration 1 cannot be undone"):
            await open_migrator(url).down(0)
    with pytest.raises(Conflict, match="of a newer program"):
        await open_migrator(url).down(NEWEST)
    assert (await open_migrator(url).status())[-1].applied_at is not None


@pytest.mark.long
async def test_a_key_that_still_drops_requests_is_not_forgotten(url: str) -> None:
    migrator = open_migrator(url)
    await migrator.up()
    # Until the year 2286, and until 2001.
    await query(url, f"INSERT INTO forge_unique_windows VALUES ('q', 'k', 'j', 1, {10**16})")
    await query(url, f"INSERT INTO forge_replacements VALUES ('r', 'j', {10**16})")
    with pytest.raises(Conflict, match=r"lose data: (windows of unique keys|replaced)"):
        await migrator.down(10)
    await query(url, f"UPDATE forge_unique_windows SET ends_at = {10**15}")
    with pytest.raises(Conflict, match="lose data: replaced content"):
        await migrator.down(10)
    await query(url, f"UPDATE forge_replacements SET ends_at = {10**15}")
    await migrator.down(10)
    await migrator.up()


async def test_nothing_is_undone_under_pods_that_work(url: str) -> None:
    with with_migrations(TABLE, down="DROP TABLE forge_more;\n"):
        async with await open_storage(url) as storage:
            await register(storage)
            with pytest.raises(Conflict, match="stop them first"):
                await open_migrator(url).down(NEWEST)
        assert "forge_more" in await names_in(url)


async def test_a_schema_by_another_text_of_a_migration_is_refused(url: str) -> None:
    await open_migrator(url).up()
    await query(url, "UPDATE forge_migrations SET checksum = 'other'")
    with pytest.raises(SchemaMismatch, match="never released"):
        await open_storage(url)
