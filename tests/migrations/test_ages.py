"""A program meets a schema of another age, or none, on each SQL database."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from forge_jobs.errors import SchemaMismatch
from forge_jobs.storage.opening import open_migrator, open_storage
from forge_jobs.storage.sql.migrations import runner
from forge_jobs.storage.sql.migrations.runner import Migration, known_migrations
from tests.migrations.catalog import names_in, query
from tests.support.backends import forget, url_of
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


def a_second_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    """This program becomes one that has another migration."""
    second = Migration(2, "more", "CREATE TABLE forge_more (id INTEGER);\n")
    monkeypatch.setattr(
        runner, "known_migrations", lambda flavor: (*known_migrations(flavor), second)
    )


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
    assert await query(url, "SELECT version FROM forge_migrations") == [(1,)]


async def test_an_empty_database_gets_its_schema_at_once(url: str) -> None:
    await _look(url)
    statuses = await open_migrator(url).status()
    assert [entry.version for entry in statuses] == [1]
    assert all(entry.applied_at is not None and entry.known for entry in statuses)


async def test_an_older_schema_is_refused_with_the_command_that_helps(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_migrator(url).up()
    a_second_migration(monkeypatch)
    with pytest.raises(SchemaMismatch, match="forge-jobs migrate up"):
        await open_storage(url)


async def test_an_older_schema_is_brought_up_to_date_when_asked(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_migrator(url).up()
    a_second_migration(monkeypatch)
    migrator = open_migrator(url)
    assert "forge_more" in await migrator.sql()
    assert "forge_more" not in await names_in(url), "a dry run changes nothing"
    async with await open_storage(url, migrate=True):
        pass
    assert "forge_more" in await names_in(url)
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
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_migrator(url).up()
    before = await names_in(url)
    broken = Migration(2, "bad", "CREATE TABLE forge_more (id INTEGER);\nCREATE TABLE;\n")
    monkeypatch.setattr(
        runner, "known_migrations", lambda flavor: (*known_migrations(flavor), broken)
    )
    with pytest.raises(Exception, match="refused the statement"):
        await open_migrator(url).up()
    assert await names_in(url) == before


async def test_a_schema_by_another_text_of_a_migration_is_refused(url: str) -> None:
    await open_migrator(url).up()
    await query(url, "UPDATE forge_migrations SET checksum = 'other'")
    with pytest.raises(SchemaMismatch, match="never released"):
        await open_storage(url)
