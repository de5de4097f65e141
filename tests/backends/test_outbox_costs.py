"""Records of an outbox are found by indexes, however many are written down for other stores."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs import open_storage
from forge_jobs.model.ids import JobId
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.protocols.letters import HasOutbox
from tests.backends.sqlite.test_plans import plans, scans
from tests.support.backends import forget, url_of
from tests.support.outboxes import write_down
from tests.support.postgres import raw, touched

pytestmark = pytest.mark.anyio

OF_OTHERS = 2_000


@pytest.fixture
async def postgres(tmp_path: Path) -> AsyncIterator[Storage]:
    url = await url_of("postgres", tmp_path)
    async with await open_storage(url) as storage:
        yield storage
    await forget("postgres", tmp_path)


async def _read(storage: Storage, job_id: JobId) -> None:
    """Read as a relay does behind records of other stores, and as ``explain`` does."""
    assert isinstance(storage.jobs, HasOutbox)
    outbox = storage.jobs.outbox("there")
    [found] = await outbox.read(10)
    assert found.job is not None
    assert found.job.id == job_id
    assert [each.job_id for each in await outbox.records(10)] == [job_id]
    assert (await outbox.state()).waiting == 1
    known = await storage.jobs.outbox_record(job_id)
    assert known is not None
    assert known[0] == "there"


async def test_each_read_goes_by_an_index_in_a_file(tmp_path: Path) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db") as storage:
        await write_down(storage, "away", 3)
        [job_id] = await write_down(storage, "there", 1)
        with plans(storage) as found:
            await _read(storage, job_id)
    assert len(found) == 5
    assert scans(found, "forge_outbox") == []


async def test_each_read_goes_by_an_index_on_a_server(postgres: Storage, tmp_path: Path) -> None:
    await write_down(postgres, "away", OF_OTHERS)
    [job_id] = await write_down(postgres, "there", 1)
    async with raw(await url_of("postgres", tmp_path)) as connection:
        await connection.execute("ANALYZE forge_outbox")
    async with touched(postgres, "forge_outbox") as found:
        await _read(postgres, job_id)
    assert len(found) == 4
    assert [each.scanned for each in found] == [0] * 4
    assert max(each.walked for each in found) < 10
