"""A SQLite file that refuses for a moment: a table, a right to write, one row."""

import sqlite3
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.sqlite.connection import on_driver_thread
from tests.support.refusals import is_kept_apart, is_ridden_out

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def storage(path: Path) -> AsyncGenerator[Storage]:
    async with await open_storage(f"sqlite:///{path}") as opened:
        yield opened


@pytest.fixture
def admin(path: Path, storage: Storage) -> Iterator[sqlite3.Connection]:
    """Another program on the file."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA legacy_alter_table = ON")
    yield connection
    connection.close()


async def test_a_table_that_is_missing_for_a_moment_is_waited_for(
    storage: Storage, admin: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    async def begin() -> None:
        admin.execute("ALTER TABLE forge_jobs RENAME TO elsewhere")

    async def end() -> None:
        admin.execute("ALTER TABLE elsewhere RENAME TO forge_jobs")

    await is_ridden_out(storage, begin, end, "the tables of the store are missing", caplog)


async def test_a_file_that_only_takes_reads_for_a_moment_is_waited_for(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    async def takes_writes(yes: bool) -> None:
        # As the file system would refuse them: a program with all rights meets no such refusal.
        database: Any = storage.jobs._database  # type: ignore[attr-defined]
        driver = database._writer._driver
        pragma = f"PRAGMA query_only = {'OFF' if yes else 'ON'}"
        await on_driver_thread(driver, driver._conn.execute, pragma)

    await is_ridden_out(
        storage,
        lambda: takes_writes(False),
        lambda: takes_writes(True),
        "the store does not answer",
        caplog,
    )


async def test_an_end_that_a_trigger_refuses_is_kept_and_in_nobodys_way(
    storage: Storage, admin: sqlite3.Connection
) -> None:
    async def begin(job_id: JobId) -> None:
        admin.execute(
            "CREATE TRIGGER refuses BEFORE UPDATE ON forge_jobs"
            f" WHEN OLD.id = '{job_id}' AND NEW.status = 'done'"
            " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )

    async def end() -> None:
        admin.execute("DROP TRIGGER refuses")

    await is_kept_apart(storage, begin, end, "(SQLITE_CONSTRAINT_TRIGGER)")
