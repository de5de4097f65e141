"""Jobs that expire all at once: swept pass by pass, in nobody's way."""

from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.policy.liveness import ReaperGuard
from forge_jobs.runtime.passes.reaper import ReapReport, reap_once
from forge_jobs.storage.protocols import JobStore, Storage
from tests.support.factories import LEASE, SECOND, claim_one, enqueue_one, new_job, register

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

SETTINGS = RuntimeSettings()


class SlowExpiry:
    """The jobs of a store in which each call that expires some takes a second."""

    def __init__(self, jobs: JobStore, clock: ManualClock) -> None:
        self._jobs = jobs
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)

    async def expire(self, limit: int) -> int:
        self._clock.advance(SECOND)
        return await self._jobs.expire(limit)


class SlowReaper:
    """A pod's reaper over such jobs."""

    def __init__(self, storage: Storage, clock: ManualClock) -> None:
        self._jobs: Any = SlowExpiry(storage.jobs, clock)
        self._procs = storage.procs
        self._clock = clock
        self._guard = ReaperGuard(SETTINGS.lease, SETTINGS.reap_interval)

    async def reap(self) -> ReapReport:
        return await reap_once(self._jobs, self._procs, SETTINGS, self._guard, clock=self._clock)


@pytest.fixture
def reaper(manual_storage: Storage, manual_clock: ManualClock) -> SlowReaper:
    return SlowReaper(manual_storage, manual_clock)


async def test_many_expired_jobs_are_swept_pass_by_pass(
    manual_storage: Storage, manual_clock: ManualClock, reaper: SlowReaper
) -> None:
    expires_at = manual_clock.now() + SECOND
    await manual_storage.jobs.enqueue([new_job(expires_at=expires_at) for _ in range(1_600)])
    manual_clock.advance(SECOND)
    reports = [await reaper.reap() for _ in range(2)]
    # A pass has half of the reaper's interval: two calls here.
    assert [report.expired for report in reports] == [1_000, 600]
    assert [report.is_swept for report in reports] == [False, True]
    assert reports[0].next_in == SETTINGS.reap_interval


@pytest.mark.long
async def test_no_revival_waits_for_jobs_that_expire_all_at_once(
    manual_storage: Storage, manual_clock: ManualClock, reaper: SlowReaper
) -> None:
    storage, clock = manual_storage, manual_clock

    async def reap() -> ReapReport:
        clock.advance(SETTINGS.reap_interval)
        return await reaper.reap()

    # Until the guard has seen a whole lease go by.
    for _ in range(SETTINGS.lease // SETTINGS.reap_interval + 1):
        await reap()
    lease = await register(storage, lease_for=4 * LEASE)
    first, second = [await enqueue_one(storage) for _ in range(2)]
    await claim_one(storage, lease)
    expires_at = clock.now() + LEASE
    for _ in range(137):
        await storage.jobs.enqueue([new_job(expires_at=expires_at) for _ in range(1_000)])
    # The second claim falls silent while jobs are being expired.
    for _ in range(3):
        await reap()
    await claim_one(storage, lease)
    reports: list[ReapReport] = []
    while not reports or second not in [each.job_id for each in reports[-1].revived]:
        reports.append(await reap())
    revivals = [report for report in reports if report.revived]
    assert [[each.job_id for each in report.revived] for report in revivals] == [[first], [second]]
    # Both passes went on with what had expired, and most of that is left.
    assert [report.expired for report in revivals] == [1_000, 1_000]
    assert not reports[-1].is_swept
    assert sum(report.expired for report in reports) < 20_000
