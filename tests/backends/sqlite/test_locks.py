"""Other writers on the same file, and callers that give up."""

import asyncio
import logging
import random
import sqlite3
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiosqlite
import anyio
import pytest
from sqlalchemy import Row, select

from forge_jobs.errors import InvalidInput, StorageClosed, Unavailable
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import EnqueueOutcome
from forge_jobs.reports import flush_reports
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base.tables import jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.enqueue import enqueue
from forge_jobs.storage.sql.sqlite import connection
from forge_jobs.storage.sql.sqlite.connection import on_driver_thread
from tests.support.factories import QUEUE, new_job
from tests.support.logs import BlockingHandler, added
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(path: Path, options: str = "") -> AsyncGenerator[Storage]:
    async with await open_storage(f"sqlite:///{path}{options}") as storage:
        yield storage


def hold_write_lock(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


async def pending(storage: Storage) -> int:
    return (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"]


async def test_a_writer_waits_for_another_and_then_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as storage:
        with closing(hold_write_lock(tmp_path / "jobs.db")) as rival:
            async with anyio.create_task_group() as group:
                group.start_soon(storage.jobs.enqueue, [new_job()])
                # Reads go on meanwhile. So this loop also lets the write come to its wait.
                for _ in range(20):
                    assert await pending(storage) == 0
                rival.execute("ROLLBACK")
        assert await pending(storage) == 1


async def test_a_lock_held_for_too_long_is_unavailable_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path / "jobs.db", "?timeout=1.2") as storage:
        with (
            closing(hold_write_lock(tmp_path / "jobs.db")),
            caplog.at_level(logging.WARNING, "forge_jobs"),
        ):
            for _ in range(2):
                with pytest.raises(Unavailable, match="another transaction has held") as caught:
                    await storage.jobs.enqueue([new_job()])
                assert "locked" not in str(caught.value)
            assert flush_reports(10)
        assert len(caplog.records) == 1, "one warning for one episode"
        assert await pending(storage) == 0
        await storage.jobs.enqueue([new_job()])
        assert await pending(storage) == 1


async def test_a_store_closes_although_another_program_keeps_the_lock(tmp_path: Path) -> None:
    storage = await open_storage(f"sqlite:///{tmp_path / 'jobs.db'}?timeout=600")
    waiting = [asyncio.ensure_future(storage.jobs.enqueue([new_job()])) for _ in range(3)]
    with closing(hold_write_lock(tmp_path / "jobs.db")):
        # Reads go on meanwhile. So this loop also lets the first write come to its wait.
        await pending(storage)
        with anyio.fail_after(30):
            await storage.aclose()
            results = await asyncio.gather(*waiting, return_exceptions=True)

    assert {type(each) for each in results} <= {Unavailable, StorageClosed}


async def test_a_log_that_blocks_holds_up_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_LOCK_WARNING_S", 0.05)
    log = BlockingHandler(lambda record: "held the write lock" in record.getMessage())
    async with opened(tmp_path / "jobs.db") as storage:
        with added(log), closing(hold_write_lock(tmp_path / "jobs.db")) as rival:
            with anyio.fail_after(20):
                async with anyio.create_task_group() as group:
                    group.start_soon(storage.jobs.enqueue, [new_job()])
                    await wait_until(log.blocks.is_set, description="the wait is reported")
                    rival.execute("ROLLBACK")
            assert await pending(storage) == 1


async def test_others_may_write_while_an_answer_is_made(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with opened(path) as storage:
        database = storage.jobs._database  # type: ignore[attr-defined]

        def write_as_another(stored: list[EnqueueOutcome]) -> str:
            with closing(hold_write_lock(path)) as rival:
                [(status,)] = rival.execute("SELECT status FROM forge_jobs").fetchall()
            return f"{len(stored)} {status}"

        answer = await database.write_then(lambda tx: enqueue(tx, [new_job()]), write_as_another)
        assert answer == "1 pending"


async def test_an_answer_that_fails_undoes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as storage:
        database = storage.jobs._database  # type: ignore[attr-defined]
        with pytest.raises(ZeroDivisionError):
            await database.write_then(lambda tx: enqueue(tx, [new_job()]), lambda _: 1 / 0)
        assert await pending(storage) == 1
        await storage.jobs.enqueue([new_job()])
        assert await pending(storage) == 2


async def test_a_call_refused_before_its_first_statement_leaves_no_transaction_open(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "jobs.db") as storage:
        with pytest.raises(InvalidInput, match="limit"):
            await storage.jobs.cancel(JobFilter(), limit=0)
        with closing(hold_write_lock(tmp_path / "jobs.db")) as rival:
            rival.execute("ROLLBACK")
        await storage.jobs.enqueue([new_job()])


async def test_a_long_reader_stops_no_writer(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as storage:
        with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM forge_jobs").fetchone() == (0,)
            for _ in range(20):
                await storage.jobs.enqueue([new_job()])
            assert reader.execute("SELECT count(*) FROM forge_jobs").fetchone() == (0,)
        assert await pending(storage) == 20


@pytest.mark.parametrize("seed", range(3))
async def test_cancelled_callers_leave_no_transaction_open(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with opened(tmp_path / "jobs.db") as storage:
        calls: list[Callable[[], object]] = [
            lambda: storage.jobs.enqueue([new_job() for _ in range(20)]),
            storage.jobs.counts,
        ]
        for _ in range(100):
            with anyio.move_on_after(chance.random() * 0.003):
                await chance.choice(calls)()  # type: ignore[misc]
        await storage.jobs.enqueue([new_job()])
        assert await pending(storage) % 20 == 1, "a call happens wholly or not at all"
        with closing(hold_write_lock(tmp_path / "jobs.db")) as rival:
            rival.execute("ROLLBACK")


_CANCEL_AND_EXIT = """
import anyio, sys
from datetime import timedelta
from forge_jobs.storage.opening import open_storage
from tests.support.factories import new_job

async def main():
    async with await open_storage(sys.argv[1]) as storage:
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(storage.jobs.enqueue, [new_job()])
                group.start_soon(storage.jobs.counts)
            group.start_soon(storage.jobs.wait_for_work, frozenset("q"), timedelta(hours=1))
            await anyio.sleep(0.002)
            group.cancel_scope.cancel()
    print("closed")

anyio.run(main)
"""


@pytest.mark.long
async def test_a_process_whose_callers_were_cancelled_exits(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", _CANCEL_AND_EXIT]
    for number in range(3):
        url = f"sqlite:///{tmp_path}/{number}.db"
        with anyio.fail_after(30):
            done = await anyio.run_process([*command, url])
        assert (done.stdout, done.stderr) == (b"closed\n", b"")


async def test_the_driver_still_runs_functions_on_its_own_thread(tmp_path: Path) -> None:
    driver = await aiosqlite.connect(tmp_path / "x.db", isolation_level=None)
    try:
        ident = await on_driver_thread(driver, lambda: driver._thread.ident)
        assert ident == driver._thread.ident
        assert isinstance(driver._conn, sqlite3.Connection)

        def fail() -> None:
            raise sqlite3.OperationalError

        with pytest.raises(sqlite3.OperationalError):
            await on_driver_thread(driver, fail)
    finally:
        await driver.close()


@pytest.mark.long
async def test_four_processes_write_to_one_file_without_an_error(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from forge_jobs.storage.opening import open_storage
from tests.support.factories import new_job

async def main():
    async with await open_storage(sys.argv[1]) as storage:
        for _ in range(50):
            await asyncio.gather(*(storage.jobs.enqueue([new_job()]) for _ in range(2)))

asyncio.run(main())
"""
    async with opened(tmp_path / "jobs.db") as storage:
        async with anyio.create_task_group() as group:
            for _ in range(4):
                command = [sys.executable, "-c", program, f"sqlite:///{tmp_path}/jobs.db"]
                group.start_soon(anyio.run_process, command)
        assert await pending(storage) == 400


@pytest.mark.parametrize("verb", ["cancel", "delete", "requeue", "restore", "run_now"])
async def test_looking_for_jobs_that_do_not_exist_takes_no_lock(tmp_path: Path, verb: str) -> None:
    async with opened(tmp_path / "jobs.db", "?timeout=1") as storage:
        await storage.jobs.enqueue([new_job()])
        with closing(hold_write_lock(tmp_path / "jobs.db")):
            outcome = await getattr(storage.jobs, verb)(JobFilter(kinds=("other",)))
        assert not outcome.changed
        assert outcome.cursor is None


@pytest.mark.parametrize("call", ["read", "write"])
async def test_a_script_that_fails_in_the_middle_of_a_result_leaves_the_file_free(
    tmp_path: Path, call: str
) -> None:
    path = tmp_path / "jobs.db"
    async with opened(path, "?timeout=1") as storage, opened(path) as other:
        await storage.jobs.enqueue([new_job() for _ in range(5)])
        database: Any = storage.jobs._database  # type: ignore[attr-defined]

        def failing(row: Row[Any]) -> str:
            try:
                raise ZeroDivisionError("as planted")
            except ZeroDivisionError as first:
                raise ValueError(f"of {row.id}") from first

        def script(tx: Tx) -> list[str]:
            return [failing(row) for row in tx.execute(select(jobs.c.id))]

        # The error has the frames, one of these has the result, and that was not read to its end.
        with pytest.raises(ValueError, match="of ") as kept:
            await getattr(database, call)(script)
        await other.jobs.enqueue([new_job()])
        await storage.jobs.enqueue([new_job()])
        assert await pending(storage) == 7
        assert kept.value.__cause__ is not None
