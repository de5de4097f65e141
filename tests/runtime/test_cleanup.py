"""Cleanup removes everything that is due for it, a bounded piece at a time."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.runtime.cleanup import clean_up_once
from forge_jobs.storage.protocols import Storage
from tests.support.factories import DAY, done, enqueue_one, register, run_one

pytestmark = pytest.mark.anyio


async def test_finished_jobs_past_retention_go_and_the_others_stay(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    lease = await register(manual_storage, lease_for=30 * DAY)
    for _ in range(5):
        await enqueue_one(manual_storage)
    old = [await run_one(manual_storage, lease, done()) for _ in range(5)]
    waiting = await enqueue_one(manual_storage)
    manual_clock.advance(8 * DAY)
    young = await enqueue_one(manual_storage)

    report = await clean_up_once(manual_storage.jobs, clock=manual_clock, batch=2)

    assert report.finished
    assert report.rows >= 5
    assert set(await manual_storage.jobs.get([*old, waiting, young])) == {waiting, young}
    assert (await clean_up_once(manual_storage.jobs, clock=manual_clock)).rows == 0


async def test_a_pass_ends_when_its_time_is_used_up(
    manual_storage: Storage, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def always_full(limit: int) -> int:
        assert manual_clock.elapsed() < 60
        manual_clock.advance(1)
        return limit

    monkeypatch.setattr(manual_storage.jobs, "cleanup", always_full)

    report = await clean_up_once(
        manual_storage.jobs, clock=manual_clock, batch=10, budget=timedelta(seconds=3)
    )

    assert (report.rows, report.finished) == (30, False)
