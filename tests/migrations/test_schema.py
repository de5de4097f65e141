"""The schema that migrations make is the one of the tables."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Dialect, create_engine
from sqlalchemy.dialects import postgresql, sqlite

from forge_jobs.storage.opening import open_migrator, open_storage
from forge_jobs.storage.sql.migrations.runner import known_migrations
from forge_jobs.storage.sql.tables import metadata
from tests.migrations.ddl import FUNCTIONS, schema_ddl

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


async def test_the_migrated_schema_is_the_one_of_the_tables(tmp_path: Path, url: str) -> None:
    await open_migrator(url).up()
    engine = create_engine(f"sqlite:///{tmp_path}/fresh.db")
    metadata.create_all(engine)
    engine.dispose()
    assert schema_of(tmp_path / "jobs.db") == schema_of(tmp_path / "fresh.db")


@pytest.mark.parametrize(
    "dialect",
    [sqlite.dialect(), postgresql.dialect()],  # type: ignore[no-untyped-call]
)
def test_the_initial_migration_is_what_the_tables_give(dialect: Dialect) -> None:
    tables, _, _ = known_migrations(dialect.name)[0].text.partition(FUNCTIONS)
    assert tables == schema_ddl(metadata, dialect)


async def test_a_database_with_the_callers_own_tables_counts_as_empty(path: Path, url: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    async with await open_storage(url) as storage:
        assert await storage.jobs.counts() == {}
