"""A server whose locale sorts otherwise than byte by byte: lists are whole all the same."""

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.opening import open_storage
from forge_jobs.testing.servers import RedisServer
from tests.support import servers
from tests.support.factories import QUEUE, claim, new_job, register

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LOCALE = "cs_CZ.UTF-8"


class CzechServer(RedisServer):
    """A server with a locale in a folder of the test that mixes capitals and small letters."""

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        launch = self._run

        def with_locale(command: list[str], *, refuse_root: bool) -> subprocess.Popen[bytes]:
            found = [shutil.which("env") or "env", f"LOCPATH={self.folder}", f"LC_ALL={LOCALE}"]
            return launch([*found, *command], refuse_root=refuse_root)

        self._run = with_locale  # type: ignore[method-assign]
        try:
            return super()._launch(port)
        finally:
            del self._run

    def _prepare(self) -> None:
        super()._prepare()
        make = ["localedef", "-i", "cs_CZ", "-f", "UTF-8", str(Path(self.folder) / LOCALE)]
        subprocess.run(make, check=True, capture_output=True)


@pytest.fixture
def czech() -> Iterator[RedisServer]:
    with CzechServer(program=servers.chosen_redis()) as server:
        # The reason for this test: byte by byte '9' stands before 'A', in Czech behind it.
        assert server.command("EVAL", "return '9' < 'A'", 0) is None
        yield server


async def test_lists_are_whole_whatever_the_servers_locale(czech: RedisServer) -> None:
    chosen = random.Random(7)
    # Of all times: in Czech 'CH' stands behind 'H', and digits behind letters.
    ids = [JobId("0" + "".join(chosen.choices("0C5HZ", k=25))) for _ in range(3_000)]
    async with await open_storage(czech.url) as storage:
        lease = await register(storage)
        for first in range(0, len(ids), 100):
            await storage.jobs.enqueue([new_job(id=each) for each in ids[first : first + 100]])
        assert len(await claim(storage, lease, limit=100)) == 100
        for which in (
            JobFilter(),
            JobFilter(statuses=(JobStatus.IN_PROGRESS,)),
            JobFilter(queues=(QUEUE,)),
        ):
            found: list[JobId] = []
            cursor: str | None = None
            while True:
                page = await storage.jobs.list(which, cursor=cursor, limit=37)
                found += [job.id for job in page.jobs]
                cursor = page.cursor
                if cursor is None:
                    break
            wanted = 100 if which.statuses else len(ids)
            assert len(found) == len(set(found)) == wanted


async def test_claims_take_jobs_of_one_time_in_the_order_of_their_ids(czech: RedisServer) -> None:
    clock = ManualClock()
    chosen = random.Random(11)
    ids = [JobId("0" + "".join(chosen.choices("0C5HZ", k=25))) for _ in range(60)]
    kinds = ("a", "b", "c")
    async with await open_storage(czech.url, clock=clock) as storage:
        lease = await register(storage, kinds=kinds)
        # Of several kinds: those of one stand in one list, which the server itself keeps in order.
        due = clock.now()
        await storage.jobs.enqueue(
            [
                new_job(id=job_id, kind=kinds[number % 3], run_at=due)
                for number, job_id in enumerate(ids)
            ]
        )
        taken: list[JobId] = []
        while claimed := await claim(storage, lease, limit=7, kinds=kinds):
            taken += [each.claim.job_id for each in claimed]
    assert taken == sorted(ids)
