"""Somebody's old snapshot keeps dead rows alive: the work goes on, and retention still removes."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.transitions import Finalization
from forge_jobs.storage.opening import open_storage
from tests.support.factories import DAY, QUEUE, claim, done, new_job, register
from tests.support.postgres import raw

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

ROUNDS, BATCH = 12, 200


async def test_jobs_come_and_go_under_an_old_snapshot(url: str) -> None:
    clock = ManualClock()
    async with (
        await open_storage(url, clock=clock) as storage,
        raw(url) as reader,
        reader.transaction(isolation="repeatable_read", readonly=True),
    ):
        assert await reader.fetchval("SELECT count(*) FROM forge_jobs") == 0
        for _ in range(ROUNDS):
            lease = await register(storage)
            await storage.jobs.enqueue([new_job() for _ in range(BATCH)])
            claimed = await claim(storage, lease, limit=BATCH)
            assert len(claimed) == BATCH
            ends = [Finalization(each.claim, done()) for each in claimed]
            assert all(await storage.jobs.finalize(ends))
            assert await claim(storage, lease, limit=BATCH) == []
            clock.advance(8 * DAY)
            removed = 0
            while found := await storage.jobs.cleanup(BATCH // 2):
                removed += found
            assert removed >= BATCH
        assert await reader.fetchval("SELECT count(*) FROM forge_jobs") == 0
        counts = (await storage.jobs.counts([QUEUE]))[QUEUE].by_status
    assert not any(counts.values())
