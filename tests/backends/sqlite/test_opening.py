"""Obstacles to opening a store, and threads that must not keep a program from ending."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from sqlalchemy import text

from forge_jobs.errors import InvalidInput, StorageError, Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.private_folders import remove_abandoned
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.sqlite import private_files
from tests.support.factories import QUEUE, enqueue_one, new_job

pytestmark = pytest.mark.anyio

QUEUES = frozenset({QUEUE})

_FORGETS_TO_CLOSE = """
import asyncio, sys
from forge_jobs.storage.opening import open_storage

async def main():
    global storage
    storage = await open_storage(sys.argv[1])

asyncio.run(main())
"""


async def test_a_program_that_forgets_to_close_ends_all_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FORGETS_TO_CLOSE, f"sqlite:///{tmp_path}/jobs.db"]
    with anyio.fail_after(30):
        ended = await anyio.run_process(command)
    assert ended.returncode == 0


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("name", ["a%00b.db", "x" * 5_000])
async def test_a_name_no_file_can_have_is_refused_without_the_path(
    tmp_path: Path, name: str, create: bool
) -> None:
    with pytest.raises(StorageError) as refused:
        await open_storage(f"sqlite:///{tmp_path}/{name}", create=create)
    assert str(tmp_path) not in str(refused.value)


@pytest.mark.parametrize("failing", [OSError(28, "full", "/dev/shm/x"), PermissionError(13, "no")])
async def test_no_room_for_a_private_file_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, failing: OSError
) -> None:
    def fail(**_: object) -> str:
        raise failing

    monkeypatch.setattr("tempfile.mkdtemp", fail)
    with pytest.raises(Unavailable):
        await open_storage("sqlite:///:memory:")


_KILLED = """
import asyncio, os, signal, sys
from forge_jobs.storage.opening import open_storage

async def main():
    storage = await open_storage("sqlite:///:memory:")
    print(storage.jobs._database.path.parent, flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.to_thread(sys.stdin.read)
    await storage.aclose()

asyncio.run(main())
"""


@pytest.mark.long
def test_the_private_file_of_a_killed_process_goes_at_the_next_open() -> None:
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, "killed"], capture_output=True, text=True, check=False
    )
    left = Path(killed.stdout.strip())
    assert left.exists()
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, "lives"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as alive:
        assert alive.stdout is not None
        used = Path(alive.stdout.readline().strip())
        own = private_files.PrivateFile()
        own.acquire()
        assert not left.exists()
        assert used.exists()
        remove_abandoned("memory", used.parent)
        assert own.path.parent.exists()
        own.release()
        assert not own.path.parent.exists()
        alive.communicate("")
    assert alive.returncode == 0
    assert not used.exists()


async def test_a_file_restored_from_a_backup_wakes_its_readers_as_before(tmp_path: Path) -> None:
    path, backup = tmp_path / "jobs.db", tmp_path / "backup.db"
    first = await open_storage(f"sqlite:///{path}")
    await first.aclose()
    shutil.copy(path, backup)
    first = await open_storage(f"sqlite:///{path}")
    for _ in range(3):
        await enqueue_one(first)
    await first.aclose()
    # The same file to the system: what was known of the former content must not count.
    path.write_bytes(backup.read_bytes())
    async with await open_storage(f"sqlite:///{path}") as second:
        assert second.jobs.store_id == first.jobs.store_id
        await enqueue_one(second)
        assert (await second.jobs.wait_for_work(QUEUES, timedelta(0))).queues == QUEUES


async def test_a_bundle_opened_meanwhile_takes_no_hint_from_the_others(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with await open_storage(f"sqlite:///{path}") as storage:
        assert not await storage.jobs.wait_for_work(QUEUES, timedelta(0))
        with closing(sqlite3.connect(path)) as other_process, other_process:
            other_process.execute(f"INSERT INTO forge_signals VALUES ('queue:{QUEUE}', 1)")
        async with await storage.reopen():
            pass
        assert (await storage.jobs.wait_for_work(QUEUES, timedelta(0))).queues == QUEUES


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY_RECOVERY, sqlite3.SQLITE_PROTOCOL])
async def test_a_read_waits_while_the_file_is_being_recovered(tmp_path: Path, code: int) -> None:
    path = tmp_path / "jobs.db"
    async with await open_storage(f"sqlite:///{path}") as storage:
        database = storage.jobs._database  # type: ignore[attr-defined]
        busy = sqlite3.OperationalError("locked")
        busy.sqlite_errorcode = code
        left = [busy, busy]

        def script(tx: Tx) -> int:
            if left:
                raise left.pop()
            return int(tx.execute(text("SELECT count(*) FROM forge_jobs")).scalar_one())

        assert await database.read(script) == 0


async def test_a_text_that_cannot_be_stored_is_invalid(tmp_path: Path) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db") as storage:
        with pytest.raises(InvalidInput):
            await storage.jobs.get([JobId("\ud800")])


async def test_a_duration_beyond_all_counting_is_invalid(tmp_path: Path) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db") as storage:
        with pytest.raises(InvalidInput):
            await storage.jobs.enqueue([new_job(delay=timedelta.max)])
