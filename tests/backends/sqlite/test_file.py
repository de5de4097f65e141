"""The file: how it is opened, the errors when it cannot be used, and what a close leaves."""

import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest

from forge_jobs.errors import InvalidInput, StorageError, Unavailable
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.sqlite.database import SqliteDatabase
from tests.support.factories import new_job

pytestmark = pytest.mark.anyio


def url_of(path: Path, options: str = "") -> str:
    return f"sqlite:///{path}{options}"


def database_of(storage: Storage) -> SqliteDatabase:
    database = storage.jobs._database  # type: ignore[attr-defined]
    assert isinstance(database, SqliteDatabase)
    return database


@asynccontextmanager
async def opened(path: Path, options: str = "") -> AsyncGenerator[Storage]:
    async with await open_storage(url_of(path, options)) as storage:
        yield storage


async def pragma(storage: Storage, name: str) -> object:
    return await database_of(storage).write(
        lambda tx: tx.connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
    )


async def test_a_file_is_opened_with_a_log_and_full_durability(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as storage:
        assert await pragma(storage, "journal_mode") == "wal"
        assert await pragma(storage, "synchronous") == 2
        assert 0 < int(str(await pragma(storage, "journal_size_limit"))) <= 64 * 2**20
        assert "loss of power" in storage.durability


@pytest.mark.parametrize(("word", "number"), [("normal", 1), ("FULL", 2), ("extra", 3), ("off", 0)])
async def test_durability_is_set_by_the_url(tmp_path: Path, word: str, number: int) -> None:
    async with opened(tmp_path / "jobs.db", f"?synchronous={word}") as storage:
        assert await pragma(storage, "synchronous") == number
        assert f"synchronous={word.lower()}" in storage.durability


async def test_the_reader_cannot_write(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as storage:
        with pytest.raises(Unavailable, match="read-only"):
            await database_of(storage).read(
                lambda tx: tx.connection.exec_driver_sql("DELETE FROM forge_jobs")
            )


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("jobs.db", "no scheme"),
        ("sqlit:///jobs.db", "did you mean sqlite"),
        ("sqlite://", "names no file"),
        ("sqlite:///jobs.db?synchronus=full", "did you mean synchronous"),
        ("sqlite:///jobs.db?synchronous=ful", "did you mean full"),
        ("sqlite:///jobs.db?timeout=soon", "timeout"),
        ("sqlite:///jobs.db?timeout=0", "timeout"),
    ],
)
async def test_a_wrong_url_is_refused_by_name(url: str, part: str) -> None:
    with pytest.raises(InvalidInput, match=part) as caught:
        await open_storage(url)
    assert caught.value.field == "url"


async def test_a_memory_store_leaves_nothing_behind_and_survives_a_reopen() -> None:
    storage = await open_storage("sqlite:///:memory:")
    second = await storage.reopen()
    folder = database_of(storage).path.parent
    job = new_job()
    await storage.jobs.enqueue([job])
    await storage.aclose()
    assert folder.exists()
    assert job.id in await second.jobs.get([job.id])
    await second.aclose()
    assert not folder.exists()


async def test_two_memory_stores_are_apart() -> None:
    async with (
        await open_storage("sqlite:///:memory:") as one,
        await open_storage("sqlite:///:memory:") as other,
    ):
        job = new_job()
        await one.jobs.enqueue([job])
        assert await other.jobs.get([job.id]) == {}
        assert one.jobs.store_id != other.jobs.store_id


async def test_closing_ends_the_threads_and_closing_twice_is_fine(tmp_path: Path) -> None:
    before = threading.active_count()
    storage = await open_storage(url_of(tmp_path / "jobs.db"))
    assert threading.active_count() == before + 2
    await storage.aclose()
    await storage.aclose()
    assert threading.active_count() == before
    with pytest.raises(StorageError, match="closed"):
        await storage.jobs.enqueue([new_job()])


async def test_a_store_closes_wholly_in_a_cancelled_scope(tmp_path: Path) -> None:
    before = threading.active_count()
    with anyio.CancelScope() as scope:
        async with opened(tmp_path / "jobs.db"):
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert threading.active_count() == before


async def test_an_opening_that_is_cancelled_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    for number in range(20):
        with anyio.move_on_after(number * 0.001):
            async with opened(tmp_path / f"{number}.db"):
                await anyio.sleep_forever()
    assert threading.active_count() == before


async def test_calls_in_flight_finish_before_the_store_closes(tmp_path: Path) -> None:
    storage = await open_storage(url_of(tmp_path / "jobs.db"))
    jobs = [new_job() for _ in range(20)]
    async with anyio.create_task_group() as group:
        for job in jobs:
            group.start_soon(storage.jobs.enqueue, [job])
        await anyio.lowlevel.checkpoint()
        await storage.aclose()
    async with opened(tmp_path / "jobs.db") as again:
        assert len(await again.jobs.get([job.id for job in jobs])) == 20


def assert_tells_no_path(error: BaseException, path: Path) -> None:
    assert str(path) not in str(error)
    assert path.name not in str(error)
    assert error.__cause__ is None


async def test_a_folder_that_does_not_exist_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "secret.db"
    with pytest.raises(Unavailable, match="cannot be opened") as caught:
        await open_storage(url_of(path))
    assert_tells_no_path(caught.value, path)


async def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "secret.db"
    path.write_text("not a database, but long enough to be taken for one" * 100)
    with pytest.raises(StorageError, match="not a SQLite database") as caught:
        await open_storage(url_of(path))
    assert_tells_no_path(caught.value, path)


async def test_a_full_database_is_unavailable_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "secret.db"
    async with opened(path) as storage:
        first = new_job()
        await storage.jobs.enqueue([first])
        pages = await pragma(storage, "page_count")
        await pragma(storage, f"max_page_count = {pages}")
        big = [new_job(payload='{"x": "' + "x" * 10_000 + '"}') for _ in range(10)]
        with pytest.raises(Unavailable, match="full") as caught:
            await storage.jobs.enqueue(big)
        assert_tells_no_path(caught.value, path)
        assert await storage.jobs.get([job.id for job in big]) == {}
        await pragma(storage, "max_page_count = 1000000")
        await storage.jobs.enqueue(big)
        assert len(await storage.jobs.get([first.id, *(job.id for job in big)])) == 11


async def test_a_read_only_database_is_unavailable_for_writes(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as storage:
        await pragma_of_writer(storage, "query_only = ON")
        with pytest.raises(Unavailable, match="read-only"):
            await storage.jobs.enqueue([new_job()])
        assert await storage.jobs.counts() == {}


async def pragma_of_writer(storage: Storage, text: str) -> None:
    await database_of(storage).write(
        lambda tx: tx.connection.exec_driver_sql(f"PRAGMA {text}").close()
    )


async def test_the_log_stays_small_under_many_writes(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with opened(path, "?synchronous=off") as storage:
        payload = '{"x": "' + "x" * 50_000 + '"}'
        for _ in range(20):
            await storage.jobs.enqueue([new_job(payload=payload) for _ in range(40)])
        assert os.stat(f"{path}-wal").st_size <= 64 * 2**20


_OPEN = """
import asyncio, sys
from forge_jobs.storage.opening import open_storage

async def main():
    async with await open_storage(sys.argv[1]) as storage:
        await storage.jobs.counts()
        print("opened")

asyncio.run(main())
"""


@pytest.mark.long
async def test_ten_processes_open_one_empty_file_at_once(tmp_path: Path) -> None:
    outputs: list[bytes] = []

    async def open_in_a_process() -> None:
        command = [sys.executable, "-c", _OPEN, url_of(tmp_path / "jobs.db")]
        done = await anyio.run_process(command)
        outputs.append(done.stdout)

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(open_in_a_process)
    assert outputs == [b"opened\n"] * 10
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        rows = connection.execute("SELECT count(*) FROM forge_migrations WHERE version = 1")
        assert rows.fetchone() == (1,)


async def test_a_copy_of_a_file_is_another_store(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db"):
        pass
    shutil.copy(tmp_path / "jobs.db", tmp_path / "copy.db")
    async with opened(tmp_path / "jobs.db") as one, opened(tmp_path / "copy.db") as other:
        assert one.jobs.store_id != other.jobs.store_id
