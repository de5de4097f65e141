"""Processes killed in the middle of writing, and logs that readers keep from shrinking."""

import asyncio
import os
import random
import sqlite3
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import anyio
import pytest

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_worker_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.transitions import Finalization
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.factories import KIND, QUEUE, claim_for, done, new_job, register
from tests.support.pods import forkserver
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

KILLS = 20
MEBIBYTE = 2**20


@asynccontextmanager
async def opened(path: Path, options: str = "") -> AsyncGenerator[Storage]:
    async with await open_storage(f"sqlite:///{path}{options}") as storage:
        yield storage


async def _churn(url: str, acknowledged: str, rounds: int) -> None:
    """Enqueue, claim and finalize. Append the ids of each call that has returned to a file."""
    descriptor = os.open(acknowledged, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    async with await open_storage(url) as storage:
        lease = await register(storage)
        for _ in range(rounds):
            outcomes = await storage.jobs.enqueue([new_job() for _ in range(3)])
            text = "".join(f"enqueued {outcome.job_id}\n" for outcome in outcomes)
            os.write(descriptor, text.encode())
            workers = [new_worker_id() for _ in range(2)]
            claimed = await claim_for(storage, QUEUE, workers, 2, frozenset({KIND}), lease)
            ends = [Finalization(job.claim, done()) for job in claimed]
            applied = await storage.jobs.finalize(ends)
            text = "".join(
                f"done {job.claim.job_id}\n"
                for job, was_applied in zip(claimed, applied, strict=True)
                if was_applied
            )
            os.write(descriptor, text.encode())


def _run(url: str, acknowledged: str, rounds: int) -> None:
    asyncio.run(_churn(url, acknowledged, rounds))


@contextmanager
def churning(path: Path, acknowledged: Path, rounds: int) -> Iterator[ForkServerProcess]:
    """Run a process that writes to the store, and is gone afterwards."""
    arguments = (f"sqlite:///{path}", str(acknowledged), rounds)
    process = forkserver.Process(target=_run, args=arguments, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def told(acknowledged: Path, what: str) -> set[str]:
    """Ids that a process has said something of."""
    lines = acknowledged.read_text().splitlines() if acknowledged.exists() else []
    return {line.split()[1] for line in lines if line.startswith(what)}


def size(path: Path) -> int:
    """Return the bytes of a file, 0 without a file."""
    return path.stat().st_size if path.exists() else 0


async def grows_to(path: Path, least: int) -> None:
    """Wait until a file has so many bytes."""
    await wait_until(lambda: size(path) >= least, description="it writes", timeout=30)


@pytest.mark.daily
async def test_a_process_killed_while_it_writes_loses_nothing_it_has_acknowledged(
    tmp_path: Path,
) -> None:
    path, acknowledged = tmp_path / "jobs.db", tmp_path / "acknowledged"
    chance = random.Random(1)
    async with opened(path):
        pass
    for _ in range(KILLS):
        with churning(path, acknowledged, 1_000_000):
            await grows_to(acknowledged, size(acknowledged) + chance.randrange(1, 2_000))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        stored = dict(connection.execute("SELECT id, status FROM forge_jobs"))
    enqueued = told(acknowledged, "enqueued")
    assert len(enqueued) > KILLS
    assert enqueued - stored.keys() == set()
    finished = told(acknowledged, "done")
    assert {stored[job_id] for job_id in finished} == {JobStatus.DONE}
    # What each was killed with: one call's jobs stored, one call's claims held.
    assert len(stored) - len(enqueued) <= 3 * KILLS
    assert sum(status == JobStatus.IN_PROGRESS for status in stored.values()) <= 2 * KILLS
    done_untold = sum(status == JobStatus.DONE for status in stored.values()) - len(finished)
    assert 0 <= done_untold <= 2 * KILLS


async def test_four_processes_work_on_one_file_beside_a_long_reader(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    rounds = 25
    async with opened(path) as storage:
        with (
            closing(sqlite3.connect(path, isolation_level=None)) as reader,
            churning(path, tmp_path / "0", rounds) as first,
            churning(path, tmp_path / "1", rounds) as second,
            churning(path, tmp_path / "2", rounds) as third,
            churning(path, tmp_path / "3", rounds) as fourth,
        ):
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM forge_jobs").fetchone()
            processes = [first, second, third, fourth]
            with anyio.fail_after(30):
                for process in processes:
                    await anyio.to_thread.run_sync(process.join)
            assert [process.exitcode for process in processes] == [0] * 4
        page = await storage.jobs.list(JobFilter(statuses=(JobStatus.DONE,)), limit=1_000)
        finished = [told(tmp_path / str(number), "done") for number in range(4)]
        assert {job.id for job in page.jobs} == set().union(*finished)
        assert sum(map(len, finished)) == len(set().union(*finished)), "each job was given once"
        counts = (await storage.jobs.counts([QUEUE]))[QUEUE].by_status
        assert sum(counts.values()) == 4 * rounds * 3
        assert counts.get(JobStatus.IN_PROGRESS, 0) == 0


async def test_a_log_that_a_reader_kept_from_shrinking_shrinks_when_it_is_gone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"
    log = Path(f"{path}-wal")
    payload = '{"x": "' + "x" * 50_000 + '"}'
    async with opened(path, "?synchronous=off") as storage:
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM forge_jobs").fetchone()
            while size(log) < 70 * MEBIBYTE:
                await storage.jobs.enqueue([new_job(payload=payload) for _ in range(100)])
        for _ in range(3):
            await storage.jobs.enqueue([new_job()])
        assert size(log) <= 64 * MEBIBYTE
