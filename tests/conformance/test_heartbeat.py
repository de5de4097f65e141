"""JobStore.heartbeat and record_start."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import new_host_id, new_job_id
from forge_jobs.model.jobs import After, Claim, ClaimedJob
from forge_jobs.model.processes import AllocationChange, ClaimState, PodLease, Slots
from forge_jobs.model.queues import QueueSettings
from forge_jobs.model.transitions import Cooldown
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    LEASE,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim,
    claim_one,
    dead,
    done,
    enqueue_one,
    finish,
    get_job,
    held,
    new_job,
    only,
    register,
    revive,
    run_one,
    snoozed,
)

pytestmark = pytest.mark.anyio


async def claimed_one(storage: Storage, lease: PodLease, *, ahead: bool = False) -> ClaimedJob:
    await enqueue_one(storage)
    return await claim_one(storage, lease, ahead=ahead)


async def test_a_beat_renews_the_lease_from_the_stores_now(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    clock.advance(LEASE - MICROSECOND)
    beat = await storage.jobs.heartbeat(lease, [], 2 * LEASE)
    assert beat.lease_held
    assert beat.silent == beat.admitted == frozenset()
    [pod] = await storage.procs.pods()
    assert (pod.lease_remaining, pod.last_beat_at) == (2 * LEASE, clock.now())
    clock.advance(2 * LEASE - MICROSECOND)
    await enqueue_one(storage)
    assert len(await claim(storage, lease)) == 1


async def test_a_lease_that_ran_out_is_not_renewed_but_claims_are(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    clock.advance(LEASE)
    beat = await storage.jobs.heartbeat(lease, [held(claimed, "w")], LEASE)
    assert not beat.lease_held
    assert beat.claims == {claimed.claim: ClaimState.HELD}
    assert await storage.jobs.stale_claims(LEASE, 10) == []
    assert (await get_job(storage, claimed.claim.job_id)).heartbeat_at == clock.now()
    [pod] = await storage.procs.pods()
    assert pod.lease_remaining == 0 * SECOND
    await enqueue_one(storage)
    assert await claim(storage, lease) == []


async def test_the_lease_of_another_epoch_is_not_renewed_but_claims_are(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    await register(storage, host_id=lease.host_id)
    clock.advance(5)
    beat = await storage.jobs.heartbeat(lease, [held(claimed)], 100 * LEASE)
    assert not beat.lease_held
    assert beat.claims == {claimed.claim: ClaimState.HELD}
    [pod] = await storage.procs.pods()
    assert pod.lease_remaining == LEASE - 5 * SECOND


@pytest.mark.parametrize("who", ["unregistered", "never registered"])
async def test_an_unknown_pod_has_no_lease(storage: Storage, lease: PodLease, who: str) -> None:
    if who == "unregistered":
        await storage.procs.unregister(lease)
        stranger = lease
    else:
        stranger = PodLease(new_host_id(), "epoch")
    beat = await storage.jobs.heartbeat(stranger, [], LEASE)
    assert not beat.lease_held
    assert await claim(storage, stranger) == []


async def test_a_beat_renews_each_claim_it_lists_and_no_other(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    listed, silent = await claimed_one(storage, lease), await claimed_one(storage, lease)
    clock.advance(10)
    await storage.jobs.heartbeat(lease, [held(listed, "w")], LEASE)
    clock.advance(5)
    stale = await storage.jobs.stale_claims(LEASE, 10)
    assert [s.claim for s in stale] == [silent.claim]
    clock.advance(10)
    stale = await storage.jobs.stale_claims(LEASE, 10)
    assert [s.claim for s in stale] == [silent.claim, listed.claim]


async def test_the_states_of_claims_are_told_apart(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(5)])
    good, asked, ended, deleted, revived = await claim(storage, lease, limit=5)
    await storage.jobs.cancel(only(asked.claim.job_id))
    for claimed in (ended, deleted):
        await finish(storage, claimed, done())
    await storage.jobs.delete(only(deleted.claim.job_id))
    clock.advance(LEASE)
    assert await revive(storage, revived)
    unknown = Claim(QUEUE, new_job_id(), 1, lease.host_id)
    wrong = replace(good.claim, token=good.claim.token + 1)
    claims = [held(c) for c in (good, asked, ended, deleted, revived, unknown, wrong)]
    beat = await storage.jobs.heartbeat(lease, claims, LEASE)
    lost = {c.claim: ClaimState.LOST for c in claims[2:]}
    assert beat.claims == {
        good.claim: ClaimState.HELD,
        asked.claim: ClaimState.CANCEL_REQUESTED,
        **lost,
    }


async def test_a_lost_claim_does_not_renew_or_start_its_successor(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    old = await claimed_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, old)
    rival = await register(storage)
    new = await claim_one(storage, rival)
    before = await get_job(storage, new.claim.job_id)
    clock.advance(10)
    beat = await storage.jobs.heartbeat(lease, [held(old, "old-worker")], LEASE)
    assert beat.claims == {old.claim: ClaimState.LOST}
    assert await get_job(storage, new.claim.job_id) == before
    clock.advance(5)
    assert [s.claim for s in await storage.jobs.stale_claims(LEASE, 10)] == [new.claim]


async def test_a_beat_without_a_worker_keeps_the_one_of_the_claim(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    before = await get_job(storage, claimed.claim.job_id)
    assert before.worker_id
    clock.advance(1)
    beat = await storage.jobs.heartbeat(lease, [held(claimed)], LEASE)
    assert beat.claims == {claimed.claim: ClaimState.HELD}
    after = await get_job(storage, claimed.claim.job_id)
    assert (after.worker_id, after.started_at) == (before.worker_id, before.started_at)
    assert after.heartbeat_at == clock.now()


async def test_a_beat_with_a_worker_records_the_start_once(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease, ahead=True)
    await storage.jobs.heartbeat(lease, [held(claimed)], LEASE)
    assert (await get_job(storage, claimed.claim.job_id)).started_at is None
    assert await storage.procs.workers() == []
    clock.advance(1)
    started = clock.now()
    for _ in range(2):
        await storage.jobs.heartbeat(lease, [held(claimed, "w1")], LEASE)
        clock.advance(1)
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.started_at, job.worker_id) == (started, "w1")
    [worker] = await storage.procs.workers(lease.host_id)
    assert (worker.worker_id, worker.job_id, worker.started_at) == (
        "w1",
        claimed.claim.job_id,
        started,
    )
    assert (await storage.jobs.counts())[QUEUE].running == 1


async def test_claims_the_pod_did_not_list_are_named(storage: Storage, lease: PodLease) -> None:
    listed, lost_reply = await claimed_one(storage, lease), await claimed_one(storage, lease)
    rival = await register(storage)
    await claimed_one(storage, rival)
    beat = await storage.jobs.heartbeat(lease, [held(listed)], LEASE)
    assert beat.unknown == (lost_reply.claim,)
    assert (await storage.jobs.release([lost_reply.claim])) == [True]
    beat = await storage.jobs.heartbeat(lease, [held(listed)], LEASE)
    assert beat.unknown == ()


async def test_a_beat_without_claims_names_those_it_should_have_listed(
    storage: Storage, lease: PodLease
) -> None:
    lost_reply = await claimed_one(storage, lease)
    for _ in range(2):
        beat = await storage.jobs.heartbeat(lease, [], LEASE)
        assert (beat.lease_held, beat.claims, beat.unknown) == (True, {}, (lost_reply.claim,))
    assert (await storage.jobs.release([lost_reply.claim])) == [True]
    assert (await storage.jobs.heartbeat(lease, [], LEASE)).unknown == ()


@pytest.mark.parametrize("last", ["earlier", "current"])
async def test_a_claim_listed_beside_an_earlier_one_of_its_job_is_known(
    storage: Storage, lease: PodLease, last: str
) -> None:
    earlier = await claimed_one(storage, lease)
    await storage.jobs.release([earlier.claim])
    current = await claim_one(storage, lease)
    both = [held(earlier, "w"), held(current, "w")]
    beat = await storage.jobs.heartbeat(lease, both if last == "current" else both[::-1], LEASE)
    assert beat.claims == {earlier.claim: ClaimState.LOST, current.claim: ClaimState.HELD}
    assert beat.unknown == ()


async def test_a_beat_for_three_hundred_claims(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(300)])
    claimed = await claim(storage, lease, limit=300)
    clock.advance(10)
    beat = await storage.jobs.heartbeat(lease, [held(c, "w") for c in claimed], LEASE)
    assert beat.claims == {c.claim: ClaimState.HELD for c in claimed}
    clock.advance(14)
    assert await storage.jobs.stale_claims(LEASE, 1_000) == []


async def test_a_beat_tells_each_declared_queues_slots_and_state(storage: Storage) -> None:
    await storage.config.ensure_queue("a", QueueSettings(max_workers=3))
    lease = await register(storage, queues=["a", "b"])
    await storage.config.set_paused("b", True)
    [allocation] = [x for x in await storage.procs.allocations() if x.queue == "a"]
    change = AllocationChange(
        queue="a", version=allocation.version, slots={lease.host_id: Slots(3, 2)}
    )
    assert await storage.procs.allocate([change]) == [True]
    beat = await storage.jobs.heartbeat(lease, [], LEASE)
    assert set(beat.queues) == {"a", "b"}
    assert (beat.queues["a"].slots, beat.queues["b"].slots) == (Slots(3, 2), Slots(0, 0))
    assert (beat.queues["a"].state.paused, beat.queues["b"].state.paused) == (False, True)
    assert beat.queues["a"].state.settings.max_workers == 3


async def test_a_beat_tells_of_a_cool_down(storage: Storage, lease: PodLease) -> None:
    await enqueue_one(storage)
    await run_one(storage, lease, snoozed(cooldown=Cooldown(60 * SECOND, 4)))
    state = (await storage.jobs.heartbeat(lease, [], LEASE)).queues[QUEUE].state
    assert (state.cooldown_remaining, state.cooldown_level) == (60 * SECOND, 4)


async def test_each_queue_has_a_due_time_of_its_own(storage: Storage) -> None:
    due_in = {"due": timedelta(0), "empty": None, "late": 9 * SECOND, "soon": 2 * SECOND}
    lease = await register(storage, queues=list(due_in))
    for queue, wait in due_in.items():
        for priority in (-1, 0) if wait is not None else ():
            await enqueue_one(storage, queue=queue, delay=wait, priority=priority)
    await enqueue_one(storage, queue="of another pod")
    beat = await storage.jobs.heartbeat(lease, [], LEASE)
    assert {name: each.next_due_in for name, each in beat.queues.items()} == due_in


async def test_a_beat_tells_when_the_next_job_falls_due(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    async def next_due_in() -> object:
        beat = await storage.jobs.heartbeat(lease, [], LEASE)
        return beat.queues[QUEUE].next_due_in

    assert await next_due_in() is None
    await enqueue_one(storage, delay=9 * SECOND)
    await enqueue_one(storage, delay=5 * SECOND, priority=3)
    assert await next_due_in() == 5 * SECOND
    clock.advance(4)
    assert await next_due_in() == SECOND
    clock.advance(2)
    assert await next_due_in() == 0 * SECOND
    await claim_one(storage, lease)
    assert await next_due_in() == 3 * SECOND


async def test_a_beat_tells_of_waiting_handovers(storage: Storage, lease: PodLease) -> None:
    parent = await enqueue_one(storage)
    await enqueue_one(storage, after=(After(parent),))
    assert not (await storage.jobs.heartbeat(lease, [], LEASE)).handovers
    await run_one(storage, lease, done())
    assert (await storage.jobs.heartbeat(lease, [], LEASE)).handovers


async def test_a_cancel_is_told_by_every_beat_until_the_claim_ends(
    storage: Storage, lease: PodLease
) -> None:
    claimed = await claimed_one(storage, lease)
    await storage.jobs.cancel(only(claimed.claim.job_id))
    for _ in range(2):
        beat = await storage.jobs.heartbeat(lease, [held(claimed, "w")], LEASE)
        assert beat.claims == {claimed.claim: ClaimState.CANCEL_REQUESTED}
    await finish(storage, claimed, dead())
    beat = await storage.jobs.heartbeat(lease, [held(claimed, "w")], LEASE)
    assert beat.claims == {claimed.claim: ClaimState.LOST}


async def test_a_recorded_start_is_seen_by_the_reaper(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    ahead, started = (
        await claimed_one(storage, lease, ahead=True),
        await claimed_one(storage, lease),
    )
    assert await storage.jobs.record_start([started.claim]) == [True]
    assert (await get_job(storage, started.claim.job_id)).started_at == clock.now()
    clock.advance(LEASE)
    stale = {s.claim: s.started for s in await storage.jobs.stale_claims(LEASE, 10)}
    assert stale == {ahead.claim: False, started.claim: True}


async def test_record_start_answers_per_item_and_touches_no_lost_claim(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(3)])
    lost, good, ended = await claim(storage, lease, limit=3)
    await finish(storage, ended, done())
    clock.advance(LEASE)
    assert await revive(storage, lost)
    successor = await claim_one(storage, await register(storage), ahead=False)
    before = await get_job(storage, successor.claim.job_id)
    unknown = Claim(QUEUE, new_job_id(), 1, lease.host_id)
    items = [lost.claim, good.claim, unknown, ended.claim, good.claim]
    assert await storage.jobs.record_start(items) == [False, True, False, False, True]
    assert await get_job(storage, successor.claim.job_id) == before


async def test_a_repeated_start_keeps_the_first_instant(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    first = clock.now()
    for _ in range(2):
        assert await storage.jobs.record_start([claimed.claim]) == [True]
        clock.advance(1)
    assert (await get_job(storage, claimed.claim.job_id)).started_at == first


async def test_a_start_belongs_to_its_claim_and_not_to_the_next(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    await storage.jobs.record_start([claimed.claim])
    await finish(storage, claimed, snoozed())
    again = await claim_one(storage, lease, ahead=True)
    assert (await get_job(storage, again.claim.job_id)).started_at is None
    clock.advance(DAY)
    [stale] = await storage.jobs.stale_claims(LEASE, 10)
    assert not stale.started


async def test_a_claim_belongs_to_the_pod_that_made_it(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    other = await register(storage)
    clock.advance(1)
    beat = await storage.jobs.heartbeat(other, [held(claimed, "w")], LEASE)
    assert beat.claims == {claimed.claim: ClaimState.LOST}
    assert beat.unknown == ()
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.heartbeat_at, job.started_at) == (job.claimed_at, None)


async def test_the_start_of_a_claim_for_a_worker_is_unknown_until_it_is_told(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    assert (await get_job(storage, claimed.claim.job_id)).started_at is None
    assert await storage.procs.workers() == []
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].running == 0
    clock.advance(1)
    await storage.jobs.heartbeat(lease, [held(claimed, "w")], LEASE)
    assert (await get_job(storage, claimed.claim.job_id)).started_at == clock.now()
