"""``forge-jobs backup``: what an acknowledged job is worth in the copy."""

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.storage.opening import back_up, open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.factories import new_job
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///").partition("?")[0])


def jobs_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("SELECT count(*) FROM forge_jobs").fetchone()[0]
        return found


async def test_each_acknowledged_job_is_in_it_where_a_copied_file_has_none(
    storage: Storage, url: str, path: Path, tmp_path: Path
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(1000)])
    shutil.copy(path, tmp_path / "copied.db")
    await back_up(url, tmp_path / "backup.db")
    assert jobs_in(tmp_path / "backup.db") == 1000
    with closing(sqlite3.connect(tmp_path / "copied.db")) as copied:
        found = copied.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if found:
            assert copied.execute("SELECT count(*) FROM forge_jobs").fetchone()[0] < 1000
    assert [each for each in os.listdir(tmp_path) if each.startswith("backup")] == ["backup.db"]


async def test_it_is_one_moment_while_others_write(
    storage: Storage, url: str, tmp_path: Path
) -> None:
    acknowledged: list[int] = []
    ended = asyncio.Event()

    async def enqueue() -> None:
        while not ended.is_set():
            # Two in one transaction: a moment has an even number of them.
            await storage.jobs.enqueue([new_job(), new_job()])
            acknowledged.append(2)

    writing = asyncio.create_task(enqueue())
    await wait_until(lambda: len(acknowledged) >= 20, description="jobs are stored")
    before = sum(acknowledged)
    await back_up(url, tmp_path / "backup.db")
    ended.set()
    await writing
    found = jobs_in(tmp_path / "backup.db")
    assert before <= found <= sum(acknowledged)
    assert found % 2 == 0
    async with await open_storage(f"sqlite:///{tmp_path / 'backup.db'}") as restored:
        assert len(await restored.jobs.counts()) == 1


async def test_what_is_there_is_left_alone(storage: Storage, url: str, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    target.write_text("precious")
    with pytest.raises(InvalidInput, match="target: is there already"):
        await back_up(url, target)
    assert target.read_text() == "precious"
    with pytest.raises(InvalidInput, match="target: is in a folder that does not exist"):
        await back_up(url, tmp_path / "none" / "backup.db")


async def test_what_is_no_store_is_not_copied(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with pytest.raises(NotFound, match="there is no database file"):
        await back_up(f"sqlite:///{other}", tmp_path / "backup.db")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(NotFound, match="there is no store in the file"):
        await back_up(f"sqlite:///{other}", tmp_path / "backup.db")
    assert os.listdir(tmp_path) == ["other.db"]


@pytest.mark.parametrize(
    ("elsewhere", "tool"),
    [
        ("postgresql://localhost/app", "pg_dump"),
        ("redis://localhost", "BGSAVE"),
        ("sqlite:///:memory:", "that of a file"),
    ],
)
async def test_other_stores_have_tools_of_their_own(
    tmp_path: Path, elsewhere: str, tool: str
) -> None:
    with pytest.raises(InvalidInput, match=tool):
        await back_up(elsewhere, tmp_path / "backup.db")
