"""A Postgres whose disk is full: a clear error, nothing lost, and work again when there is room.

The data lie in a small file system that is mounted for the server alone.
"""

import secrets
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient, JobStatus, open_storage
from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.programs import postgres_programs
from forge_jobs.testing.servers import PostgresServer
from tests.support.factories import new_job
from tests.support.ledger import Ledger
from tests.support.pods import fleet
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

DISK_MB = 120
BALLAST_MB = 40


class SmallDisk(PostgresServer):
    """The write-ahead log lies elsewhere: a server that cannot write the log gives up."""

    def _launch(self, port: int) -> "subprocess.Popen[bytes]":
        programs = self._programs or postgres_programs()
        data, disk = self.folder / "data", self.folder / "disk"
        disk.mkdir()
        log = self.folder / "pg_wal"
        shutil.move(data / "pg_wal", log)
        # The server may start again by itself: what it has acknowledged must be in the log by then.
        settings = {**self._settings, "max_wal_size": "64MB", "synchronous_commit": "on"}
        settings["port"] = str(port)
        options = [f"--{name}={value}" for name, value in settings.items()]
        server = [str(programs / "postgres"), "-D", str(disk), *options]
        words = {
            "disk": shlex.quote(str(disk)),
            "data": shlex.quote(str(data)),
            "log": shlex.quote(str(log)),
            "server": shlex.join(server),
        }
        script = (
            "mount -t tmpfs -o size={size}m,mode=0700 none {disk} && cp -a {data}/. {disk}"
            " && ln -s {log} {disk}/pg_wal && head -c {ballast}M /dev/zero > {disk}/ballast"
            " && exec unshare --user --map-user=1000 --map-group=1000"
            " setpriv --pdeathsig QUIT {server}"
        ).format(size=DISK_MB, ballast=BALLAST_MB, **words)
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
        return self._run(command, refuse_root=False)

    def make_room(self) -> None:
        """Remove files that only take up room, by way of the server's own view of the disk."""
        inside = Path(f"/proc/{self.process_id}/root") / (self.folder / "disk").relative_to("/")
        (inside / "ballast").unlink()


@pytest.fixture
def server() -> Iterator[SmallDisk]:
    with SmallDisk() as started:
        yield started


@pytest.fixture
async def storage(server: SmallDisk) -> AsyncIterator[Storage]:
    async with await open_storage(server.url) as opened:
        yield opened


async def test_a_full_disk_refuses_new_jobs_and_loses_none(
    server: SmallDisk, storage: Storage, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    small = EnqueueRequest("ledger.work", {"ledger": str(ledger), "seconds": 0.01}, queue="work")
    with fleet(server.url, tmp_path) as pods:
        pod = pods.start({"work": 2})
        async with JobClient(storage, repeat_for=30) as client:
            accepted = {one.job_id for one in await client.enqueue_many([small] * 20)}
            stored: set[str] = set()
            with pytest.raises(Unavailable) as refused:
                await _fill(storage, stored)
            server.make_room()
            # A server whose disk was full may have to start again by itself.
            accepted |= {one.job_id for one in await client.enqueue_many([small] * 20)}
            await wait_until(lambda: _done(storage, len(accepted)), description="all are done")
        counts = (await storage.jobs.counts(["big"]))["big"].by_status
        assert counts["pending"] >= len(stored)
        assert set(await storage.jobs.get([JobId(one) for one in stored])) == stored
        assert pod.exit_code is None
    assert "disk" in str(refused.value)
    assert Ledger.read(ledger).ended() == accepted


async def _fill(storage: Storage, stored: set[str]) -> None:
    """Store jobs that only take up room, in a queue that no pod serves."""
    while len(stored) < 1000:
        job = new_job(queue="big", payload=f'{{"room":"{secrets.token_hex(250_000)}"}}')
        stored |= {one.job_id for one in await storage.jobs.enqueue([job])}


async def _done(storage: Storage, count: int) -> bool:
    counts = (await storage.jobs.counts(["work"]))["work"].by_status
    return counts.get(JobStatus.DONE, 0) == count
