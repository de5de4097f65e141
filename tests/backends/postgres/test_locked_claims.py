"""A claim whose job a caller's open transaction has locked is not silent: the pod beats for it."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.model.jobs import ClaimedJob, JobStatus
from forge_jobs.model.processes import ClaimState, PodLease
from forge_jobs.policy.liveness import ReaperGuard
from forge_jobs.runtime.passes import reaper
from forge_jobs.runtime.passes.reaper import reap_once, rest_of
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.callers import drivers_own
from tests.support.factories import (
    LEASE,
    claim,
    claim_one,
    enqueue_one,
    get_job,
    held,
    new_job,
    register,
    revive,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def manual_clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def manual_storage(url: str, manual_clock: ManualClock) -> AsyncGenerator[Storage]:
    """A store on ``manual_clock``."""
    async with await open_storage(url, clock=manual_clock) as opened:
        yield opened


@pytest.fixture
async def caller(url: str, manual_storage: Storage) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield a transaction that stays open, and the call that ends the transaction."""
    async with drivers_own(url) as opened:
        yield opened


async def lock(caller: tuple[Any, Any], *claims: ClaimedJob) -> None:
    ids = [each.claim.job_id for each in claims]
    await caller[0].execute("SELECT 1 FROM forge_jobs WHERE id = ANY ($1) FOR UPDATE", ids)


async def beat(storage: Storage, lease: PodLease, claimed: ClaimedJob) -> ClaimState:
    answer = await storage.jobs.heartbeat(lease, [held(claimed, "w")], LEASE)
    return answer.claims[claimed.claim]


async def test_a_claim_that_was_locked_for_longer_than_the_lease_is_not_stale(
    manual_storage: Storage, manual_clock: ManualClock, caller: tuple[Any, Any]
) -> None:
    storage, clock = manual_storage, manual_clock
    lease = await register(storage)
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await lock(caller, claimed)
    for _ in range(4):
        clock.advance(LEASE / 3)
        assert await beat(storage, lease, claimed) is ClaimState.HELD
    assert await storage.jobs.stale_claims(LEASE, 10) == []
    await caller[1](False)

    # Unlocked, and no beat since.
    clock.advance(LEASE / 3)
    assert await storage.jobs.stale_claims(LEASE, 10) == []
    assert not await revive(storage, claimed)
    assert await beat(storage, lease, claimed) is ClaimState.HELD
    clock.advance(LEASE)
    assert [each.claim for each in await storage.jobs.stale_claims(LEASE, 10)] == [claimed.claim]
    assert await revive(storage, claimed)


async def test_a_pod_that_dies_while_its_job_is_locked_is_silent_from_its_last_beat_on(
    manual_storage: Storage, manual_clock: ManualClock, caller: tuple[Any, Any]
) -> None:
    storage, clock = manual_storage, manual_clock
    lease = await register(storage)
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await lock(caller, claimed)
    clock.advance(LEASE)
    await beat(storage, lease, claimed)
    clock.advance(LEASE)
    [stale] = await storage.jobs.stale_claims(LEASE, 10)
    assert not await revive(storage, stale.claim), "it is locked"
    await caller[1](False)
    assert await revive(storage, stale.claim)


async def test_a_beat_that_was_noted_for_another_claim_of_the_job_does_not_count(
    manual_storage: Storage, manual_clock: ManualClock, caller: tuple[Any, Any]
) -> None:
    storage, clock = manual_storage, manual_clock
    lease = await register(storage)
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await lock(caller, claimed)
    # A late beat of a clock that has stepped back since.
    clock.advance(timedelta(seconds=1))
    await beat(storage, lease, claimed)
    await caller[1](False)
    clock.advance(-timedelta(seconds=1))
    await storage.jobs.release([claimed.claim])
    again = await claim_one(storage, lease)
    clock.advance(LEASE)
    assert [each.claim for each in await storage.jobs.stale_claims(LEASE, 10)] == [again.claim]
    assert await revive(storage, again)


async def test_a_noted_beat_that_a_clock_set_back_dated_ahead_counts_from_now(
    manual_storage: Storage, manual_clock: ManualClock, caller: tuple[Any, Any]
) -> None:
    storage, clock = manual_storage, manual_clock
    lease = await register(storage)
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await lock(caller, claimed)
    await beat(storage, lease, claimed)
    clock.advance(-timedelta(hours=1))
    await caller[1](False)
    await storage.procs.bring_back_leases()
    clock.advance(LEASE)
    assert [each.claim for each in await storage.jobs.stale_claims(LEASE, 10)] == [claimed.claim]
    assert await revive(storage, claimed)


async def test_old_notes_go(
    manual_storage: Storage, manual_clock: ManualClock, caller: tuple[Any, Any]
) -> None:
    storage, clock = manual_storage, manual_clock
    lease = await register(storage)
    for _ in range(2):
        await enqueue_one(storage)
    one, other = await claim(storage, lease, limit=2)
    await lock(caller, one, other)
    await beat(storage, lease, one)
    clock.advance(timedelta(days=2))
    await beat(storage, lease, other)
    found = await caller[0].fetch("SELECT job_id FROM forge_noted_beats")
    assert [row["job_id"] for row in found] == [other.claim.job_id]


@pytest.mark.parametrize(
    ("page", "locked_ones", "free_ones"),
    [(3, 7, 5), pytest.param(reaper.REAP_BATCH, 520, 120, marks=pytest.mark.long)],
)
async def test_the_reaper_goes_on_behind_a_page_of_locked_claims(
    manual_storage: Storage,
    manual_clock: ManualClock,
    caller: tuple[Any, Any],
    monkeypatch: pytest.MonkeyPatch,
    page: int,
    locked_ones: int,
    free_ones: int,
) -> None:
    monkeypatch.setattr(reaper, "REAP_BATCH", page)
    storage, clock = manual_storage, manual_clock
    settings = RuntimeSettings(lease=LEASE)
    lease = await register(storage)
    await storage.jobs.enqueue([new_job() for _ in range(locked_ones + free_ones)])
    locked = await claim(storage, lease, limit=locked_ones)
    clock.advance(timedelta(seconds=1))
    others = await claim(storage, lease, limit=free_ones)
    await lock(caller, *locked)
    guard = ReaperGuard(settings.lease, rest_of(settings))
    for _ in range(10):
        clock.advance(timedelta(seconds=3))
        report = await reap_once(storage.jobs, storage.procs, settings, guard, clock=clock)
        if report.revived:
            break
    assert set(report.revived) == {each.claim for each in others}
    assert report.came_back == locked_ones
    job = await get_job(storage, locked[0].claim.job_id)
    assert job.status is JobStatus.IN_PROGRESS
