"""The schema: made by migrations, equal to the tables, refused when it is of another age."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.dialects import sqlite

from forge_jobs.errors import SchemaMismatch
from forge_jobs.storage.opening import open_migrator, open_storage
from forge_jobs.storage.sql.migrations import runner
from forge_jobs.storage.sql.migrations.runner import Migration, known_migrations
from forge_jobs.storage.sql.tables import metadata
from tests.migrations.ddl import schema_ddl

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


def schema_of(path: Path) -> dict[str, str]:
    """Every table and index of the product, by name, without regard to white space."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name LIKE 'forge%'"
            " AND name <> 'forge_migrations'"
        )
        return {name: " ".join(text.split()) for name, text in rows}


def a_second_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    first = known_migrations("sqlite")
    second = Migration(2, "more", "CREATE TABLE forge_more (id INTEGER);\n")
    monkeypatch.setattr(runner, "known_migrations", lambda flavor: (*first, second))


async def test_the_migrated_schema_is_the_one_of_the_tables(tmp_path: Path, url: str) -> None:
    await open_migrator(url).up()
    engine = create_engine(f"sqlite:///{tmp_path}/fresh.db")
    metadata.create_all(engine)
    engine.dispose()
    assert schema_of(tmp_path / "jobs.db") == schema_of(tmp_path / "fresh.db")


def test_the_initial_migration_is_what_the_tables_give() -> None:
    assert known_migrations("sqlite")[0].text == schema_ddl(metadata, sqlite.dialect())


async def test_an_empty_database_gets_its_schema_at_once(url: str) -> None:
    async with await open_storage(url) as storage:
        assert await storage.jobs.counts() == {}
    statuses = await open_migrator(url).status()
    assert [entry.version for entry in statuses] == [1]
    assert all(entry.applied_at is not None and entry.known for entry in statuses)


async def test_a_database_with_the_callers_own_tables_counts_as_empty(path: Path, url: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    async with await open_storage(url) as storage:
        assert await storage.jobs.counts() == {}


async def test_an_older_schema_is_refused_with_the_command_that_helps(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_migrator(url).up()
    a_second_migration(monkeypatch)
    with pytest.raises(SchemaMismatch, match="forge-jobs migrate up"):
        await open_storage(url)


async def test_an_older_schema_is_brought_up_to_date_when_asked(
    path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_migrator(url).up()
    a_second_migration(monkeypatch)
    migrator = open_migrator(url)
    assert "forge_more" in await migrator.sql()
    assert "forge_more" not in schema_of(path), "a dry run changes nothing"
    async with await open_storage(url, migrate=True):
        pass
    assert "forge_more" in schema_of(path)
    assert await migrator.sql() == ""
    assert await migrator.up() == []


async def test_a_newer_schema_is_refused_with_what_to_do(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        a_second_migration(newer)
        await open_migrator(url).up()
    for migrate in (False, True):
        with pytest.raises(SchemaMismatch, match="upgrade forge-jobs"):
            await open_storage(url, migrate=migrate)
    with pytest.raises(SchemaMismatch, match="upgrade forge-jobs"):
        await open_migrator(url).up()
    newest = (await open_migrator(url).status())[-1]
    assert (newest.version, newest.known) == (2, False)


async def test_a_failed_migration_leaves_the_schema_as_it_was(
    path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_migrator(url).up()
    before = schema_of(path)
    broken = Migration(2, "bad", "CREATE TABLE forge_more (id INTEGER);\nCREATE TABLE;\n")
    first = known_migrations("sqlite")
    monkeypatch.setattr(runner, "known_migrations", lambda flavor: (*first, broken))
    with pytest.raises(Exception, match="refused the statement"):
        await open_migrator(url).up()
    assert schema_of(path) == before


async def test_a_schema_by_another_text_of_a_migration_is_refused(path: Path, url: str) -> None:
    await open_migrator(url).up()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE forge_migrations SET checksum = 'other'")
    with pytest.raises(SchemaMismatch, match="never released"):
        await open_storage(url)
