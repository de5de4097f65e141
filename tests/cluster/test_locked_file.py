"""Another program holds the write lock of the file for a while."""

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.ledger import Ledger
from tests.support.pods import Fleet, quick_settings
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.parametrize("backend", ["sqlite"], indirect=True),
]


@contextmanager
def write_lock(url: str) -> Iterator[None]:
    """Hold the lock, so that no other process can write."""
    path = url.removeprefix("sqlite:///").partition("?")[0]
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


async def test_sigterm_while_the_file_is_locked_loses_no_job_and_leaves_none_in_progress(
    url: str, storage: Storage, client: JobClient, pods: Fleet, ledger: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    payload = {"ledger": str(ledger), "gate": str(gate)}
    request = EnqueueRequest("ledger.wait_for_file", payload, queue="work")
    outcomes = await client.enqueue_many([request] * 6)
    pod = pods.start({"work": 2})
    await wait_until(lambda: len(Ledger.read(ledger).started()) == 2, description="two run")

    with write_lock(url):
        gate.touch()
        await wait_until(lambda: len(Ledger.read(ledger).ended()) == 2, description="two ended")
        pod.send(signal.SIGTERM)
        await wait_until(lambda: _is_waiting(pods.log), description="it waits for the lock")

    assert await pod.wait(15) == 0
    jobs = await storage.jobs.get([outcome.job_id for outcome in outcomes])
    ended = Ledger.read(ledger).ended()
    assert {job.id for job in jobs.values() if job.status is JobStatus.DONE} == ended
    waiting = [job for job in jobs.values() if job.status is JobStatus.PENDING]
    assert len(waiting) == 6 - len(ended)
    assert {(job.attempt, job.crashes) for job in waiting} <= {(0, 0)}
    assert await storage.procs.pods() == []


async def test_a_lock_that_stays_does_not_hold_up_the_end_of_a_worker(
    url: str, storage: Storage, pods: Fleet
) -> None:
    settings = quick_settings(grace=timedelta(seconds=1))
    pod = pods.start({"work": 2}, settings)
    await wait_until(lambda: _has_slots(storage), description="it works")

    with write_lock(url):
        await wait_until(lambda: _is_waiting(pods.log), description="it waits for the lock")
        pod.send(signal.SIGTERM)
        # Without a bound the worker would wait for the lock for 30 seconds.
        assert await pod.wait(20) == 1


async def _has_slots(storage: Storage) -> bool:
    return any(pod.slots["work"].grant for pod in await storage.procs.pods())


def _is_waiting(log: Path) -> bool:
    return "has held the write lock" in log.read_text()
