"""The SQLite file is removed or replaced under a running pod."""

import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.errors import Unavailable
from forge_jobs.storage.protocols import Storage
from tests.support.factories import new_job
from tests.support.ledger import Ledger
from tests.support.pods import Fleet
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.parametrize("backend", ["sqlite"], indirect=True),
]


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///").partition("?")[0])


def take_away(path: Path, how: str) -> Path:
    """Change what is at the path, and return where the open file is now."""
    kept = path.with_name("kept.db")
    if how == "its log is removed":
        path.with_name(f"{path.name}-wal").unlink()
        return path
    path.rename(kept)
    for suffix in ("-wal", "-shm"):
        path.with_name(f"{path.name}{suffix}").rename(f"{kept}{suffix}")
    if how == "replaced":
        shutil.copy(kept, path)
    return kept


def last_beat(path: Path) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT max(last_beat_at) FROM forge_pods").fetchone()


@pytest.mark.parametrize("how", ["removed", "replaced", "its log is removed"])
async def test_a_pod_stops_its_handlers_as_for_an_outage_and_says_what_to_do(
    url: str, storage: Storage, pods: Fleet, ledger: Path, tmp_path: Path, how: str
) -> None:
    path = path_of(url)
    payload = {"ledger": str(ledger), "gate": str(tmp_path / "gate")}
    async with JobClient(storage) as client:
        await client.enqueue(EnqueueRequest("ledger.wait_for_file", payload, queue="work"))
    pod = pods.start({"work": 2})
    await wait_until(lambda: Ledger.read(ledger).started(), description="it runs")

    kept = take_away(path, how)

    await wait_until(lambda: "had it open" in pods.log.read_text(), description="it was said")
    assert "stop all programs that use it" in pods.log.read_text()
    # Without the log the file cannot be read at all.
    beat = None if how == "its log is removed" else last_beat(kept)
    await wait_until(lambda: "cut" in ledger.read_text().split(), description="it is stopped")
    assert beat is None or last_beat(kept) == beat
    with pytest.raises(Unavailable, match="had it open"):
        await storage.jobs.enqueue([new_job()])
    with pytest.raises(Unavailable, match="had it open"):
        await storage.config.queues()
    assert "put the file back" in storage.health().problem
    pod.send(signal.SIGKILL)
