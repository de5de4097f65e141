"""Progress, log lines and steps of jobs that a program of an earlier release has deleted."""

from datetime import timedelta

import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.model.processes import PodLease
from forge_jobs.model.progress import NewLine, NewProgress, ProgressNote
from forge_jobs.model.sweeps import Swept
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.jobs import store
from tests.migrations.catalog import query
from tests.support.factories import claim_one, enqueue_one, register

pytestmark = pytest.mark.anyio

TABLES = ("forge_progress", "forge_log_lines", "forge_steps")


@pytest.fixture(params=["postgres", "sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage, lease_for=timedelta(days=1000))


async def noted(storage: Storage, lease: PodLease) -> JobId:
    """A job that runs and has noted something of each sort."""
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    now = await storage.cron.now()
    note = ProgressNote(
        claim=claimed.claim,
        attempt=1,
        progress=NewProgress(1, 2),
        lines=tuple(NewLine(seq=seq, at=now, level=20, text="said") for seq in (1, 2, 3)),
    )
    assert await storage.jobs.note_progress([note]) == [True]
    assert await storage.jobs.save_checkpoint(claimed.claim, "1")
    return claimed.claim.job_id


async def jobs_in(url: str) -> dict[str, list[object]]:
    """The jobs of each table."""
    return {
        table: [
            row[0]
            for row in await query(url, f"SELECT DISTINCT job_id FROM {table} ORDER BY job_id")
        ]
        for table in TABLES
    }


async def deleted_by_an_older_program(url: str, *ids: JobId) -> None:
    for job_id in ids:
        await query(url, f"DELETE FROM forge_jobs WHERE id = '{job_id}' RETURNING id")


async def test_a_sweep_removes_what_is_left_of_deleted_jobs(
    storage: Storage, url: str, lease: PodLease
) -> None:
    kept, *gone = [await noted(storage, lease) for _ in range(4)]
    assert await storage.jobs.sweep(1_000) == Swept()
    await deleted_by_an_older_program(url, *gone)
    assert await storage.jobs.sweep(1_000) == Swept(orphaned=3)
    assert await jobs_in(url) == {table: [kept] for table in TABLES}
    assert len((await storage.jobs.job_log(kept)).lines) == 3
    assert await storage.jobs.sweep(1_000) == Swept()


@pytest.mark.parametrize("spared", TABLES)
async def test_each_table_is_looked_at(
    storage: Storage, url: str, lease: PodLease, spared: str
) -> None:
    """A release that knows some of the tables leaves rows of the others."""
    gone = await noted(storage, lease)
    await deleted_by_an_older_program(url, gone)
    await query(url, f"DELETE FROM {spared} WHERE job_id = '{gone}' RETURNING job_id")
    assert await storage.jobs.sweep(1_000) == Swept(orphaned=1)
    assert await jobs_in(url) == {table: [] for table in TABLES}


async def test_a_sweep_looks_at_a_bounded_number_of_rows_and_goes_on(
    storage: Storage, url: str, lease: PodLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ORPHANS_AT_ONCE", 1)
    ids = [await noted(storage, lease) for _ in range(5)]
    await deleted_by_an_older_program(url, ids[1], ids[3], ids[4])
    found = [(await storage.jobs.sweep(2)).orphaned for _ in range(3)]
    assert found == [1, 1, 1]
    assert await jobs_in(url) == {table: [ids[0], ids[2]] for table in TABLES}
    # The walk begins anew behind the last row.
    await deleted_by_an_older_program(url, ids[0])
    assert sum([(await storage.jobs.sweep(2)).orphaned for _ in range(3)]) == 1
