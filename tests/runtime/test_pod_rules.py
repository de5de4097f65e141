"""Rules of a pod, each alone: grants, held claims, the fence, wake-ups, the lead.

None of them depends on the store, so they are tried on one.
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec import structs

from forge_jobs.clock import EPOCH, ManualClock
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import new_host_id
from forge_jobs.model.jobs import Claim, JobStatus
from forge_jobs.model.processes import Beat, ClaimState, QueueBeat, Slots
from forge_jobs.model.transitions import Finalization
from forge_jobs.policy.liveness import ReaperGuard
from forge_jobs.runtime.heartbeat.receiver import BeatReceiver
from forge_jobs.runtime.passes.reaper import reap_once
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.queue.run import Run, StopReason
from forge_jobs.storage.protocols import Storage
from tests.runtime.test_wakeups import RARE, noting_handlers, settled
from tests.support.backends import BACKENDS
from tests.support.factories import LEASE, enqueue_one, get_job, register
from tests.support.faulty import Faults, faulty
from tests.support.queue_loops import Bench, bench
from tests.support.runtimes import (
    QUEUE,
    a_runtime,
    ended,
    found_no_work,
    job_when,
    quick_settings,
    seconds,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncGenerator[Storage]:
    async with BACKENDS["sqlite"](tmp_path, None) as opened:
        yield opened


@pytest.fixture
async def manual_storage(tmp_path: Path, manual_clock: ManualClock) -> AsyncGenerator[Storage]:
    async with BACKENDS["sqlite"](tmp_path, manual_clock) as opened:
        yield opened


# -- grants ----------------------------------------------------------------------------------


def _tell(it: Bench, *, target: int, grant: int, sent_at: float) -> None:
    it.pool.apply(QueueBeat(slots=Slots(target, grant), state=it.state, next_due_in=None), sent_at)


async def _has_lowered(it: Bench) -> None:
    await wait_until(lambda: it.loop.outbox.lower_to is None, description="the store is told")


async def test_a_beat_from_before_a_grant_was_lowered_does_not_raise_it(storage: Storage) -> None:
    clock = ManualClock()
    async with bench(storage, clock) as it:
        _tell(it, target=2, grant=2, sent_at=clock.elapsed())
        early = clock.elapsed()
        clock.advance(1)
        _tell(it, target=1, grant=2, sent_at=clock.elapsed())
        await _has_lowered(it)
        assert it.pool.grant == 1

        clock.advance(1)
        _tell(it, target=2, grant=2, sent_at=early)
        assert it.pool.grant == 1
        _tell(it, target=2, grant=2, sent_at=clock.elapsed())
        assert it.pool.grant == 2


async def test_a_grant_that_is_being_lowered_is_raised_by_no_beat(storage: Storage) -> None:
    clock = ManualClock()
    async with bench(storage, clock) as it:
        _tell(it, target=2, grant=2, sent_at=clock.elapsed())
        _tell(it, target=1, grant=2, sent_at=clock.elapsed())
        clock.advance(1)
        # The loop has had no turn yet: the store does not know of the lower grant.
        assert it.loop.outbox.lower_to == 1
        _tell(it, target=2, grant=2, sent_at=clock.elapsed())
        assert it.pool.grant == 1
        await _has_lowered(it)


async def test_a_grant_is_given_back_when_its_handler_has_ended_and_not_before(
    storage: Storage,
) -> None:
    async with bench(storage) as it:
        jobs = await it.claim(2)
        it.beat(2)
        it.arrive(jobs)
        await wait_until(lambda: len(it.started) == 2, description="both run")
        _tell(it, target=1, grant=2, sent_at=it.clock.elapsed())
        assert (it.pool.grant, it.loop.outbox.lower_to) == (2, None)
        it.doors[0].set()
        await wait_until(lambda: it.pool.grant == 1, description="one has ended")


async def test_a_grant_is_void_with_its_lease(storage: Storage) -> None:
    async with bench(storage) as it:
        jobs = await it.claim(1)
        it.beat(2)
        it.arrive(jobs)
        await wait_until(lambda: it.started == [0], description="it runs")
        it.pool.void_grant(it.clock.elapsed())
        assert it.pool.grant == 0
        assert it.pool.running == 1
        # There is nothing to give back: others may have the slots.
        assert it.loop.outbox.lower_to is None


async def test_an_empty_claim_is_repeated_a_moment_after_a_cool_down_and_not_later(
    storage: Storage,
) -> None:
    clock = ManualClock()
    async with bench(storage, clock) as it:
        cooling = structs.replace(it.state, cooldown_remaining=seconds(5))
        slots = Slots(1, 1)
        it.pool.apply(QueueBeat(slots=slots, state=cooling, next_due_in=None), 0.0)
        clock.advance(5)
        # The store's clock has ended the cool-down, as this beat says.
        it.beat(1)
        await it.at_rest()
        looks: list[bool] = []
        for passed in (0.5, 60.0):
            clock.advance(passed)
            it.pool._look_at = None
            it.arrive([])
            looks.append(it.pool._look_at is not None)
        assert looks == [True, False]


# -- held claims -----------------------------------------------------------------------------


async def test_claims_given_back_are_no_longer_held(storage: Storage) -> None:
    async with bench(storage) as it:
        claims = [job.claim for job in await it.claim(2)]
        it.services.held.add(claims)
        it.loop.outbox.release(claims)
        assert len(it.services.held) == 2
        await wait_until(lambda: it.loop.is_idle, description="the store has them")
        assert len(it.services.held) == 0


async def test_a_claim_is_held_from_its_arrival_until_the_store_has_its_end(
    storage: Storage,
) -> None:
    faults = Faults()
    async with bench(faulty(storage, faults)) as it:
        [job, ahead] = await it.claim(2)
        it.beat(1)
        it.arrive([job, ahead])
        assert job.claim in it.services.held
        await wait_until(lambda: it.started == [0], description="it runs")
        await it.at_rest()
        workers = {held.claim: held.worker_id for held in it.services.held.snapshot()}
        assert workers[job.claim] != ""
        assert workers.get(ahead.claim, "") == ""

        faults.hold_replies("exchange")
        it.doors[0].set()
        await wait_until(lambda: faults.waiting["exchange"] > 0, description="its end is stored")
        held_before_the_answer = job.claim in it.services.held
        faults.let_go("exchange")
        await wait_until(lambda: it.loop.is_idle, description="it is answered")
        assert held_before_the_answer
        assert job.claim not in it.services.held
        it.doors[1].set()


async def test_the_call_that_brings_an_end_asks_for_the_next_claim(storage: Storage) -> None:
    faults = Faults()
    async with bench(faulty(storage, faults)) as it:
        jobs = await it.claim(1)
        it.beat(1)
        it.arrive(jobs)
        await wait_until(lambda: it.started == [0], description="it runs")
        await it.at_rest()
        it.pool._may_have_work = False
        calls = it.loop.calls_begun
        # Enqueued by another process: the end of the first job is the only wake-up.
        await enqueue_one(storage, kind="enters", payload='{"n":1}')
        it.doors[0].set()
        await wait_until(lambda: it.started == [0, 1], description="the next one runs")
        assert it.loop.calls_begun == calls + 1
        it.doors[1].set()


async def test_a_drain_gives_back_what_is_held_ahead_at_once(storage: Storage) -> None:
    async with bench(storage) as it:
        jobs = await it.claim(3)
        it.beat(1)
        # At this pace the pod would hold on to them.
        it.pool._pace.record(0.0001, it.clock.elapsed())
        it.arrive(jobs)
        assert it.pool.held_ahead == 2
        it.pool.drain()
        assert it.pool.held_ahead == 0
        assert it.pool.running == 1


async def test_an_end_that_meets_a_closed_storage_is_beaten_for_no_longer(
    storage: Storage,
) -> None:
    closing = await storage.reopen()
    async with bench(closing) as it:
        [job] = await it.claim(1)
        it.beat(1)
        it.arrive([job])
        await wait_until(lambda: it.started == [0], description="it runs")
        await it.at_rest()
        await closing.aclose()
        it.doors[0].set()
        await wait_until(lambda: it.loop.outbox.is_cut_off, description="its end fails")
        assert job.claim not in it.services.held
        assert job.claim in it.services.given_up


async def test_of_ends_that_are_refused_together_only_the_guilty_is_lost(storage: Storage) -> None:
    faults = Faults()
    async with bench(faulty(storage, faults)) as it:
        jobs = await it.claim(4)
        it.beat(4)
        faults.refused[jobs[1].claim.job_id] = InvalidInput("value", "is wrong", "give another")
        it.arrive(jobs)
        await wait_until(lambda: len(it.started) == 4, description="all run")
        for door in it.doors:
            door.set()
        await wait_until(lambda: len(it.services.held) == 0, description="all have ended")
        states = [(await get_job(storage, job.claim.job_id)).status for job in jobs]
    kept, lost = JobStatus.DONE, JobStatus.IN_PROGRESS
    assert states == [kept, lost, kept, kept]


# -- the fence -------------------------------------------------------------------------------


async def _a_moment_later(handle: QueueHandle) -> float:
    """Wait a little, and return ``Clock.elapsed`` before the wait."""
    clock = handle._pod.services.clock
    now = clock.elapsed()
    await wait_until(lambda: clock.elapsed() > now + 0.02, description="time passes")
    return now


async def test_the_fence_counts_from_the_sending_of_a_beat_and_not_from_its_answer(
    storage: Storage,
) -> None:
    faults = Faults()
    async with a_runtime(
        faulty(storage, faults), noting_handlers(), settings=RARE
    ).start() as handle:
        await settled(handle, 1)
        heart, fence = handle._pod.heartbeat, handle._pod.services.fence
        before = heart.last_success
        faults.hold_replies("heartbeat")
        heart.wake()
        await wait_until(lambda: faults.waiting["heartbeat"], description="a beat is on its way")
        sent_before = await _a_moment_later(handle)
        first = faults._gates["heartbeat"]
        faults.hold_replies("heartbeat")
        first.set()
        await wait_until(lambda: heart.last_success != before, description="it is answered")
        counted_from = fence._renewed_at
        faults.let_go("heartbeat")
        assert before is not None
        assert before < counted_from <= sent_before


async def test_the_fence_counts_from_before_a_lease_was_asked_for_again(storage: Storage) -> None:
    faults = Faults()
    async with a_runtime(
        faulty(storage, faults), noting_handlers(), settings=RARE
    ).start() as handle:
        await settled(handle, 1)
        services = handle._pod.services
        lease = services.lease
        faults.hold_replies("register")
        await storage.procs.unregister(lease)
        handle._pod.heartbeat.wake()
        await wait_until(lambda: faults.waiting["register"], description="it registers again")
        sent_before = await _a_moment_later(handle)
        faults.hold_replies("heartbeat")
        faults.let_go("register")
        await wait_until(lambda: services.lease != lease, description="it has its lease")
        counted_from = services.fence._renewed_at
        faults.let_go("heartbeat")
        assert counted_from <= sent_before


async def test_a_pod_past_its_fence_accepts_nothing_before_it_is_told(storage: Storage) -> None:
    clock = ManualClock()
    async with bench(storage, clock) as it:
        it.beat(1)
        assert it.pool.accepts(it.clock.elapsed())
        clock.advance(it.services.settings.lease)
        assert not it.pool.accepts(it.clock.elapsed())
        assert not it.pool._fenced


# -- wake-ups --------------------------------------------------------------------------------


async def test_a_wake_up_that_was_lost_is_made_up_for(storage: Storage) -> None:
    faults = Faults()
    async with a_runtime(
        faulty(storage, faults), noting_handlers(), settings=RARE
    ).start() as handle:
        await settled(handle, 1)
        await found_no_work(handle)
        faults.lose_replies("wait_for_work")
        job_id = await enqueue_one(storage, kind="nothing")
        async with asyncio.timeout(30):  # no beat is sent for a minute
            await ended(storage, job_id)
        assert faults.lost("wait_for_work")


# -- a run -----------------------------------------------------------------------------------


async def test_a_lost_claim_beats_every_other_reason_to_stop(storage: Storage) -> None:
    async with bench(storage) as it:
        [job] = await it.claim(1)
        handler = it.handlers.get(job.kind)
        assert handler is not None
        run = Run(job, handler, "w", 0.0, asyncio.get_running_loop(), patience=1.0)
        reasons: list[StopReason | None] = []
        for reason in (StopReason.CANCEL, StopReason.SHUTDOWN, StopReason.LOST):
            run.stop(reason)
            reasons.append(run.stop_reason)
        assert reasons == [StopReason.CANCEL, StopReason.CANCEL, StopReason.LOST]


class _UncancellableRun:
    """The task of a handler that swallows cancellations."""

    def __init__(self) -> None:
        self.cancels = 0

    def cancel(self) -> None:
        self.cancels += 1


async def test_a_handler_is_cancelled_once_and_again_after_its_patience(storage: Storage) -> None:
    async with bench(storage) as it:
        [job] = await it.claim(1)
        handler = it.handlers.get(job.kind)
        assert handler is not None
        run = Run(job, handler, "w", 0.0, asyncio.get_running_loop(), patience=0.2)
        task = _UncancellableRun()
        run.begin(task)  # type: ignore[arg-type]
        for reason in (StopReason.CANCEL, StopReason.TIMEOUT, StopReason.SHUTDOWN):
            run.stop(reason)
        assert task.cancels == 1
        await wait_until(lambda: task.cancels == 2, description="its patience ends", timeout=5)
        run.finish()


async def test_the_end_of_a_lost_claim_is_not_even_sent(storage: Storage) -> None:
    async with bench(storage) as it:
        jobs = await it.claim(1)
        it.beat(1)
        sent: list[Finalization] = []
        it.loop.outbox.end = sent.append  # type: ignore[method-assign, assignment]
        it.arrive(jobs)
        await wait_until(lambda: it.started == [0], description="it runs")
        it.pool.stop_claim(jobs[0].claim, ClaimState.LOST)
        await wait_until(lambda: it.pool.running == 0, description="its handler ends")
        assert sent == []
        assert jobs[0].claim not in it.services.held
        assert it.services.lost_claims == 1


async def test_a_beat_brings_no_news_of_claims_that_have_ended_since_it_was_sent(
    storage: Storage,
) -> None:
    async with bench(storage) as it:
        running, ended_since = await it.claim(2)
        it.beat(1)
        it.arrive([running])
        told: list[Claim] = []
        it.pool.stop_claim = lambda claim, state: told.append(claim)  # type: ignore[method-assign]
        receiver = BeatReceiver(
            it.services, {running.claim.queue: it.loop}, lambda: None, lambda: None
        )
        lost = {job.claim: ClaimState.LOST for job in (running, ended_since)}
        beat = Beat(lease_held=True, claims=lost, unknown=(), queues={}, handovers=False, now=EPOCH)
        receiver.beat_arrived(beat, it.clock.elapsed())
        assert told == [running.claim]


# -- the fleet -------------------------------------------------------------------------------


async def test_a_reaper_that_does_not_trust_its_clocks_forgets_no_pod(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    lease = await register(manual_storage)
    manual_clock.advance(10 * LEASE)
    settings = quick_settings(lease=LEASE)
    guard = ReaperGuard(settings.lease, settings.reap_interval)
    report = await reap_once(
        manual_storage.jobs, manual_storage.procs, settings, guard, clock=manual_clock
    )
    assert (report.allowed, report.dropped) == (False, ())
    assert [each.pod.host_id for each in await manual_storage.procs.pods()] == [lease.host_id]


async def test_a_pod_that_stops_gives_the_lead_up(storage: Storage) -> None:
    settings = quick_settings(leader_lease=seconds(60))
    async with a_runtime(storage, HandlerRegistry(), settings=settings).start() as handle:
        await wait_until(handle._pod.loops.memory.is_leader, description="it leads")
    other = new_host_id()
    assert (await storage.cron.lead(other, seconds(60))).host_id == other


async def test_a_stop_tells_the_store_of_an_end_before_the_pod_leaves(storage: Storage) -> None:
    faults = Faults()
    handlers = HandlerRegistry()
    inside, out = asyncio.Event(), asyncio.Event()

    @handlers.job("waits")
    async def waits() -> None:
        inside.set()
        await out.wait()

    async with a_runtime(faulty(storage, faults), handlers).start() as handle:
        job_id = await enqueue_one(storage, kind="waits", queue=QUEUE)
        await inside.wait()
        stop = asyncio.ensure_future(handle.stop())
        await wait_until(lambda: handle._pod.draining, description="it drains")
        out.set()
        report = await stop
    assert report.is_clean
    assert (await job_when(storage, job_id, JobStatus.DONE)).crashes == 0
