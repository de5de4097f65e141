"""Stale claims are revived, live ones never. Of a reaper and any other call one wins."""

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.events import EventKind
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.processes import ClaimState, PodLease
from forge_jobs.model.transitions import Revival, StaleClaims
from forge_jobs.policy.liveness import ReaperGuard
from forge_jobs.policy.transitions import stale_transition
from forge_jobs.runtime.passes import reaper
from forge_jobs.runtime.passes.reaper import ReapReport, reap_once, rest_of
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.storage.protocols import JobStore, Storage
from tests.support.factories import (
    KIND,
    LEASE,
    SECOND,
    claim,
    claim_one,
    counters,
    done,
    enqueue_one,
    finish,
    get_job,
    held,
    register,
    revive,
)

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

SETTINGS = RuntimeSettings()


class Reaper:
    """A pod's reaper, with the memory between passes."""

    def __init__(self, storage: Storage, clock: ManualClock, *, rests: bool = False) -> None:
        self.storage = storage
        self.clock = clock
        interval = rest_of(SETTINGS) if rests else SETTINGS.reap_interval
        self.guard = ReaperGuard(SETTINGS.lease, interval)
        self.events = EventBuffer(storage.jobs, clock=clock)
        self.registry: HandlerRegistry | None = None

    async def reap(self) -> ReapReport:
        return await reap_once(
            self.storage.jobs,
            self.storage.procs,
            SETTINGS,
            self.guard,
            self.registry,
            clock=self.clock,
            events=self.events,
        )

    async def reap_through(self, duration: timedelta) -> ReapReport:
        """Make pass after pass, and return the report of the last."""
        report = await self.reap()
        for _ in range(duration // SETTINGS.reap_interval):
            self.clock.advance(SETTINGS.reap_interval)
            report = await self.reap()
        return report


@pytest.fixture
def a_reaper(manual_storage: Storage, manual_clock: ManualClock) -> Reaper:
    return Reaper(manual_storage, manual_clock)


async def beat(storage: Storage, lease: PodLease, claims: Sequence[object]) -> None:
    await storage.jobs.heartbeat(lease, [held(each) for each in claims], LEASE)  # type: ignore[arg-type]


async def test_a_silent_claim_is_revived_once_its_lease_is_over(a_reaper: Reaper) -> None:
    lease = await register(a_reaper.storage)
    job_id = await enqueue_one(a_reaper.storage)
    await claim_one(a_reaper.storage, lease)

    early = await a_reaper.reap_through(LEASE - SETTINGS.reap_interval)
    assert (await get_job(a_reaper.storage, job_id)).status is JobStatus.IN_PROGRESS
    assert early.revived == ()

    late = await a_reaper.reap_through(SETTINGS.reap_interval)
    job = await get_job(a_reaper.storage, job_id)
    assert [each.job_id for each in late.revived] == [job_id]
    assert (job.status, job.cause, job.crashes) == (JobStatus.PENDING, Cause.CRASHED, 1)


async def test_a_claim_that_beats_is_kept_for_hours(a_reaper: Reaper) -> None:
    lease = await register(a_reaper.storage)
    job_id = await enqueue_one(a_reaper.storage)
    claimed = await claim_one(a_reaper.storage, lease)

    for _ in range(3 * 3600 // 10):
        a_reaper.clock.advance(SETTINGS.reap_interval)
        await beat(a_reaper.storage, lease, [claimed])
        report = await a_reaper.reap()
        assert report.revived == ()

    assert report.allowed
    job = await get_job(a_reaper.storage, job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.IN_PROGRESS, 1, 0)


async def test_the_beat_of_a_pod_keeps_no_claim_alive_that_it_does_not_name(
    a_reaper: Reaper,
) -> None:
    lease = await register(a_reaper.storage)
    await enqueue_one(a_reaper.storage)
    await claim_one(a_reaper.storage, lease)

    revived = 0
    for _ in range(6):
        a_reaper.clock.advance(SETTINGS.reap_interval)
        await beat(a_reaper.storage, lease, [])
        revived += len((await a_reaper.reap()).revived)

    assert revived == 1


async def test_nothing_is_revived_within_a_lease_of_the_start(a_reaper: Reaper) -> None:
    await register(a_reaper.storage)
    lease = await register(a_reaper.storage)
    await enqueue_one(a_reaper.storage)
    await claim_one(a_reaper.storage, lease)
    a_reaper.clock.advance(timedelta(hours=1))

    early = await a_reaper.reap_through(LEASE - SETTINGS.reap_interval)
    assert len(await a_reaper.storage.procs.pods()) == 2
    late = await a_reaper.reap_through(SETTINGS.reap_interval)

    assert (early.allowed, early.revived) == (False, ())
    assert len(late.revived) == 1
    assert late.dropped


async def test_after_a_suspend_the_living_have_a_lease_of_time_to_beat_again(
    a_reaper: Reaper,
) -> None:
    lease = await register(a_reaper.storage)
    job_id = await enqueue_one(a_reaper.storage)
    claimed = await claim_one(a_reaper.storage, lease)
    for _ in range(6):
        a_reaper.clock.advance(SETTINGS.reap_interval)
        await beat(a_reaper.storage, lease, [claimed])
        assert (await a_reaper.reap()).revived == ()

    a_reaper.clock.advance(timedelta(hours=8))
    first = await a_reaper.reap()
    await beat(a_reaper.storage, lease, [claimed])
    second = await a_reaper.reap()

    assert not first.allowed
    assert second.revived == ()
    assert (await get_job(a_reaper.storage, job_id)).status is JobStatus.IN_PROGRESS


async def test_a_step_of_the_wall_clock_is_no_crash(a_reaper: Reaper) -> None:
    lease = await register(a_reaper.storage)
    await enqueue_one(a_reaper.storage)
    claimed = await claim_one(a_reaper.storage, lease)
    for _ in range(6):
        a_reaper.clock.advance(SETTINGS.reap_interval)
        await beat(a_reaper.storage, lease, [claimed])
        await a_reaper.reap()

    a_reaper.clock.advance(SECOND)
    a_reaper.clock.step_wall(timedelta(hours=1))
    report = await a_reaper.reap()

    assert not report.allowed
    assert report.revived == ()


@pytest.mark.parametrize("step", [timedelta(seconds=20), timedelta(hours=-1)])
async def test_a_step_of_the_stores_clock_is_no_crash(
    a_reaper: Reaper, manual_clock: ManualClock, step: timedelta
) -> None:
    # The pod's own clock, by which the store is none the wiser.
    a_reaper.clock = ManualClock()
    lease = await register(a_reaper.storage)
    job_id = await enqueue_one(a_reaper.storage)
    claimed = await claim_one(a_reaper.storage, lease)

    async def pass_after(pause: timedelta) -> ReapReport:
        manual_clock.advance(pause)
        a_reaper.clock.advance(pause)
        await beat(a_reaper.storage, lease, [claimed])
        return await a_reaper.reap()

    for _ in range(6):
        assert (await pass_after(SETTINGS.reap_interval)).revived == ()

    manual_clock.step_wall(step)
    manual_clock.advance(SECOND)
    a_reaper.clock.advance(SECOND)
    stepped = await a_reaper.reap()
    later = [await pass_after(SETTINGS.reap_interval) for _ in range(5)]

    assert [report.allowed for report in (stepped, *later)] == [False] * 5 + [True]
    assert all(report.revived == () for report in (stepped, *later))
    job = await get_job(a_reaper.storage, job_id)
    assert (job.status, job.crashes) == (JobStatus.IN_PROGRESS, 0)


async def test_many_jobs_dated_ahead_are_brought_back_over_several_passes(
    a_reaper: Reaper, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "BRING_BACK_BATCH", 2)
    monkeypatch.setattr(reaper, "BUDGET", timedelta(0))
    lease = await register(a_reaper.storage)
    ids = [await enqueue_one(a_reaper.storage) for _ in range(5)]
    manual_clock.step_wall(-timedelta(hours=1))

    brought_back = []
    for _ in range(4):
        brought_back.append((await a_reaper.reap()).brought_back)
        manual_clock.advance(SETTINGS.reap_interval)

    assert brought_back == [2, 2, 1, 0]
    assert not a_reaper.guard.must_look
    claimed = await claim(a_reaper.storage, lease, limit=10)
    assert [each.claim.job_id for each in claimed] == ids


class StepsBetween:
    """The jobs of a store whose clock steps between two readings of one pass."""

    def __init__(self, jobs: JobStore, clock: ManualClock, step: timedelta) -> None:
        self._jobs = jobs
        self._clock = clock
        self._step = step
        self._readings = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._jobs, name)

    async def stale_claims(self, stale_after: timedelta, limit: int) -> StaleClaims:
        self._readings += 1
        if self._readings == 2:
            self._clock.step_wall(self._step)
        return await self._jobs.stale_claims(stale_after, limit)


async def test_a_step_of_the_stores_clock_within_a_pass_is_no_crash_either(
    a_reaper: Reaper, manual_clock: ManualClock
) -> None:
    a_reaper.clock = ManualClock()
    lease = await register(a_reaper.storage)
    await enqueue_one(a_reaper.storage)
    claimed = await claim_one(a_reaper.storage, lease)
    for number in range(9):
        for clock in (manual_clock, a_reaper.clock):
            clock.advance(SETTINGS.reap_interval)
        if number < 6:
            # From then on silent, for so long that a pass looks twice.
            await beat(a_reaper.storage, lease, [claimed])
        report = await a_reaper.reap()
    assert (report.allowed, report.revived) == (True, ())
    stepping = StepsBetween(a_reaper.storage.jobs, manual_clock, timedelta(seconds=20))
    report = await reap_once(
        cast("JobStore", stepping),
        a_reaper.storage.procs,
        SETTINGS,
        a_reaper.guard,
        clock=a_reaper.clock,
    )
    assert (report.allowed, report.revived) == (False, ())


async def test_a_claim_that_ends_between_reading_and_reviving_stays_ended(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    lease = await register(manual_storage)
    job_id = await enqueue_one(manual_storage)
    claimed = await claim_one(manual_storage, lease)
    manual_clock.advance(LEASE)
    stale = await manual_storage.jobs.stale_claims(LEASE, 10)

    assert await finish(manual_storage, claimed, done())
    revivals = [Revival(each.claim, stale_transition(each, 3, LEASE)) for each in stale]
    assert len(revivals) == 1
    assert await manual_storage.jobs.revive(revivals, LEASE) == [False]

    assert (await get_job(manual_storage, job_id)).status is JobStatus.DONE
    assert "crashed" not in await counters(manual_storage)


async def test_a_claim_that_beats_between_reading_and_reviving_is_kept(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    lease = await register(manual_storage)
    await enqueue_one(manual_storage)
    claimed = await claim_one(manual_storage, lease)
    manual_clock.advance(LEASE)
    [stale] = await manual_storage.jobs.stale_claims(LEASE, 10)
    beaten = await manual_storage.jobs.heartbeat(lease, [held(claimed)], LEASE)

    assert beaten.claims[claimed.claim] is ClaimState.HELD
    assert not await revive(manual_storage, stale.claim)


async def test_after_a_revival_the_old_owner_ends_and_beats_in_vain(a_reaper: Reaper) -> None:
    storage = a_reaper.storage
    lease = await register(storage)
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    report = await a_reaper.reap_through(LEASE)
    assert report.revived == (claimed.claim,)

    assert not await finish(storage, claimed, done())
    after = await storage.jobs.heartbeat(lease, [held(claimed)], LEASE)
    assert after.claims[claimed.claim] is ClaimState.LOST
    assert (await get_job(storage, job_id)).status is JobStatus.PENDING


async def test_two_reapers_that_read_the_same_revive_once(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    lease = await register(manual_storage)
    job_id = await enqueue_one(manual_storage)
    await claim_one(manual_storage, lease)
    manual_clock.advance(LEASE)
    [one] = await manual_storage.jobs.stale_claims(LEASE, 10)
    [other] = await manual_storage.jobs.stale_claims(LEASE, 10)

    assert await revive(manual_storage, one.claim)
    assert not await revive(manual_storage, other.claim)
    assert (await get_job(manual_storage, job_id)).crashes == 1
    assert (await counters(manual_storage))["crashed"] == 1


async def test_a_thousand_claims_are_revived_in_bounded_batches(
    a_reaper: Reaper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "REAP_BATCH", 7)
    lease = await register(a_reaper.storage)
    for _ in range(20):
        await enqueue_one(a_reaper.storage)
    assert len(await claim(a_reaper.storage, lease, limit=20)) == 20

    report = await a_reaper.reap_through(LEASE)

    assert len(report.revived) == 20
    assert len(a_reaper.events) >= 20


async def test_a_handlers_own_bound_of_crashes_wins_over_the_setting(a_reaper: Reaper) -> None:
    a_reaper.registry = HandlerRegistry()

    @a_reaper.registry.job(KIND, max_crashes=1)
    def kill() -> None: ...

    lease = await register(a_reaper.storage)
    job_id = await enqueue_one(a_reaper.storage)
    await claim_one(a_reaper.storage, lease)
    await a_reaper.reap_through(LEASE)

    job = await get_job(a_reaper.storage, job_id)
    assert (job.status, job.cause) == (JobStatus.DEAD, Cause.CRASHED)
    assert "suspected" in job.errors[-1].message


async def test_the_third_crash_makes_a_job_dead(a_reaper: Reaper) -> None:
    job_id = await enqueue_one(a_reaper.storage, max_attempts=None)
    for _ in range(3):
        lease = await register(a_reaper.storage)
        claimed = await claim_one(a_reaper.storage, lease)
        await a_reaper.storage.jobs.record_start([claimed.claim])
        await a_reaper.reap_through(LEASE)
        # The pause after the second crash.
        await a_reaper.reap_through(LEASE)

    assert (await get_job(a_reaper.storage, job_id)).status is JobStatus.DEAD


async def test_expired_jobs_are_cancelled_also_while_nothing_may_be_revived(
    a_reaper: Reaper,
) -> None:
    expires_at = a_reaper.clock.now() + SECOND
    job_id = await enqueue_one(a_reaper.storage, expires_at=expires_at)
    a_reaper.clock.advance(SECOND)

    report = await a_reaper.reap()

    assert not report.allowed
    assert report.expired == 1
    job = await get_job(a_reaper.storage, job_id)
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.EXPIRED)


async def test_a_dead_pod_is_forgotten_and_told_after_another_lease(a_reaper: Reaper) -> None:
    lease = await register(a_reaper.storage)

    report = await a_reaper.reap_through(2 * LEASE)

    assert report.dropped == (lease.host_id,)
    assert await a_reaper.storage.procs.pods() == []
    await a_reaper.events.flush_once()
    kinds = {event.kind for event in await a_reaper.storage.jobs.events()}
    assert EventKind.POD_LOST in kinds


@pytest.mark.parametrize("offset", range(6))
async def test_a_reaper_that_rests_finds_a_crash_as_soon_as_one_that_does_not(
    manual_storage: Storage, manual_clock: ManualClock, offset: int
) -> None:
    living = await register(manual_storage)
    await enqueue_one(manual_storage)
    kept = await claim_one(manual_storage, living)
    a_reaper = Reaper(manual_storage, manual_clock, rests=True)
    rests: list[timedelta] = []
    dies_at = SETTINGS.lease.total_seconds() * 2 + offset
    lost = None
    next_pass, revived_after = 0.0, None
    while revived_after is None:
        await beat(manual_storage, living, [kept])
        if lost is None and manual_clock.elapsed() >= dies_at:
            doomed = await register(manual_storage)
            await enqueue_one(manual_storage)
            lost = await claim_one(manual_storage, doomed)
        if manual_clock.elapsed() >= next_pass:
            report = await a_reaper.reap()
            rests.append(report.next_in)
            next_pass = manual_clock.elapsed() + report.next_in.total_seconds()
            if report.revived:
                assert lost is not None
                assert report.revived == (lost.claim,)
                revived_after = manual_clock.elapsed() - dies_at
        manual_clock.advance(SECOND)
    assert revived_after <= (SETTINGS.lease + SETTINGS.reap_interval).total_seconds()
    assert rests[0] > SETTINGS.reap_interval


async def test_a_reaper_of_a_short_lease_does_not_rest(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    short = RuntimeSettings(lease=3 * SETTINGS.heartbeat_interval, fence_margin=SECOND)
    assert rest_of(short) == short.reap_interval
    assert rest_of(SETTINGS) > SETTINGS.reap_interval
