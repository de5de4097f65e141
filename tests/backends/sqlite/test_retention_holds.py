"""How long a batch of retention may hold the write lock of a SQLite file."""

from itertools import count
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.jobs import JobFilter
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.sql import retention
from tests.support.factories import DAY, cleaned_up, new_job

pytestmark = pytest.mark.anyio

JOBS = 600


async def test_a_batch_ends_when_the_lock_was_held_for_long_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, slow = ManualClock(), count()
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db", clock=clock) as storage:
        await storage.jobs.enqueue([new_job() for _ in range(JOBS)])
        await storage.jobs.cancel(JobFilter(), limit=1_000)
        clock.advance(40 * DAY)
        with monkeypatch.context() as patch:
            # A disk on which each portion takes 20 ms.
            patch.setattr(retention, "_elapsed", lambda: next(slow) * 0.02)
            cleaned = await storage.jobs.cleanup(JOBS)
        assert 0 < cleaned.removed <= 100
        assert cleaned.rest is not None
        assert await cleaned_up(storage) >= JOBS - 100
