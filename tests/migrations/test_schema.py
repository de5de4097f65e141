"""The schema that migrations make is the one of the tables."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.dialects import postgresql

from forge_jobs.storage.opening import open_migrator, open_storage
from forge_jobs.storage.sql.migrations.files import ConcurrentIndex, known_migrations
from forge_jobs.storage.sql.progress.tables import metadata
from tests.migrations.catalog import query
from tests.migrations.ddl import schema_ddl
from tests.support.backends import forget, url_of
from tests.support.postgres import raw

pytestmark = pytest.mark.anyio

RELEASED = {
    ("sqlite", 1): "8c617e5c2f1e59b65b6ba90af2e968103963116b22e472626d7b7ca2b7935691",
    ("postgresql", 1): "09313923eddb13d51e2b8be9f6766e67efdb31e9406396147a989e6db8471c46",
}
"""Checksums. A store refuses a program whose text of a migration is another."""

_OF_A_TABLE = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)'
_COLUMNS = """
SELECT table_name, column_name, data_type, collation_name, column_default, is_nullable
FROM information_schema.columns
WHERE table_schema = '{schema}' AND table_name <> 'forge_jobs_view'
"""
_INDEXES = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = '{schema}'"
_OPTIONS = """
SELECT relname, unnest(coalesce(reloptions, '{{-}}')) FROM pg_class
WHERE relkind = 'r' AND relnamespace = '{schema}'::regnamespace
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[str]:
    """A database of Postgres."""
    yield await url_of("postgres", tmp_path)
    await forget("postgres", tmp_path)


def schema_of(path: Path) -> dict[str, object]:
    """The columns of every table of the product, and every index, by name."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"
            " AND name LIKE 'forge%' AND type IN ('table', 'index') AND name <> 'forge_migrations'"
        ).fetchall()
        return {
            name: sorted(connection.execute(_OF_A_TABLE, (name,)))
            if type_ == "table"
            else " ".join(text.split())
            for type_, name, text in rows
        }


async def test_the_migrated_schema_is_the_one_of_the_tables_on_sqlite(
    tmp_path: Path, url: str
) -> None:
    await open_migrator(url).up()
    engine = create_engine(f"sqlite:///{tmp_path}/fresh.db")
    metadata.create_all(engine)
    engine.dispose()
    assert schema_of(tmp_path / "jobs.db") == schema_of(tmp_path / "fresh.db")


async def test_the_migrated_schema_is_the_one_of_the_tables_on_postgres(database: str) -> None:
    await open_migrator(f"{database}?schema=migrated").up()
    async with raw(database) as connection:
        await connection.execute("CREATE SCHEMA fresh; SET search_path = fresh")
        dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
        await connection.execute(schema_ddl(metadata, dialect))
    found = []
    for schema in ("migrated", "fresh"):
        rows = [
            tuple(str(value).replace(f"{schema}.", "") for value in row)
            for statement in (_COLUMNS, _INDEXES, _OPTIONS)
            for row in await query(database, statement.format(schema=schema))
        ]
        found.append({row for row in rows if "forge_migrations" not in row})
    # The default is for forge_enqueue alone, which SQLite has not.
    [default] = found[0] - found[1]
    assert default[:2] == ("forge_queues", "allocation_version")
    assert {row[:2] for row in found[1] - found[0]} == {default[:2]}


@pytest.mark.parametrize(("flavor", "version"), sorted(RELEASED))
def test_a_released_migration_is_never_changed(flavor: str, version: int) -> None:
    [migration] = [each for each in known_migrations(flavor) if each.version == version]
    assert migration.checksum == RELEASED[flavor, version]


def test_both_databases_have_the_same_migrations() -> None:
    sqlite, postgres = known_migrations("sqlite"), known_migrations("postgresql")
    assert [(each.version, each.name, each.works_from, bool(each.down)) for each in sqlite] == [
        (each.version, each.name, each.works_from, bool(each.down)) for each in postgres
    ]


@pytest.mark.parametrize("flavor", ["sqlite", "postgresql"])
def test_migrations_are_numbered_without_gaps(flavor: str) -> None:
    versions = [each.version for each in known_migrations(flavor)]
    assert versions == list(range(1, len(versions) + 1))


_BEARS_A_SECOND_RUN = ("IF NOT EXISTS", "IF EXISTS", "OR REPLACE", "COMMENT ON", "SET DEFAULT")


@pytest.mark.parametrize("flavor", ["sqlite", "postgresql"])
def test_what_is_run_again_after_a_kill_may_be(flavor: str) -> None:
    for migration in known_migrations(flavor):
        for piece in migration.pieces[:-1]:
            removed: set[str] = set()
            for statement in [] if isinstance(piece, ConcurrentIndex) else piece:
                removed.update(re.findall(r"DROP CONSTRAINT IF EXISTS (\w+)", statement))
                added = re.search(r"ADD CONSTRAINT (\w+)", statement)
                if added:
                    assert added[1] in removed, statement
                    continue
                assert any(words in statement for words in _BEARS_A_SECOND_RUN), statement


async def test_a_database_with_the_callers_own_tables_counts_as_empty(path: Path, url: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    async with await open_storage(url) as storage:
        assert await storage.jobs.counts() == {}
