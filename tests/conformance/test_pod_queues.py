"""The queues of a pod change while the pod is registered."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forge_jobs.clock import ManualClock
from forge_jobs.model.processes import AllocationChange, ClaimState, Pod, PodLease, Slots
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    LEASE,
    MICROSECOND,
    QUEUE,
    SECOND,
    a_pod,
    claim_one,
    done,
    enqueue_one,
    finish,
    held,
    new_job,
    register,
    revive,
)

pytestmark = pytest.mark.anyio

OTHER, THIRD = "tenant-1", "tenant-2"


async def registered(storage: Storage, *queues: str) -> tuple[Pod, PodLease]:
    pod = a_pod(queues=queues or (QUEUE,), kinds=(KIND,))
    return pod, await storage.procs.register(pod, LEASE)


async def slots_of(storage: Storage, lease: PodLease) -> dict[str, Slots]:
    [state] = [each for each in await storage.procs.pods() if each.pod.host_id == lease.host_id]
    assert set(state.pod.queues) == set(state.slots)
    return dict(state.slots)


async def grant(storage: Storage, lease: PodLease, queue: str, slots: int = 1) -> None:
    [seen] = [each for each in await storage.procs.allocations() if each.queue == queue]
    wanted = {lease.host_id: Slots(slots, slots)}
    change = AllocationChange(queue=queue, version=seen.version, slots=wanted)
    assert await storage.procs.allocate([change]) == [True]


async def test_a_queue_that_is_added_has_no_slots_and_leaves_those_of_others(
    storage: Storage,
) -> None:
    pod, lease = await registered(storage)
    await grant(storage, lease, QUEUE)

    assert await storage.procs.change_queues(lease, replace(pod, queues=(QUEUE, OTHER)), LEASE)

    assert await slots_of(storage, lease) == {QUEUE: Slots(1, 1), OTHER: Slots(0, 0)}
    beat = await storage.jobs.heartbeat(lease, [], LEASE)
    assert beat.lease_held
    assert beat.queues.keys() == {QUEUE, OTHER}
    assert beat.queues[QUEUE].slots == Slots(1, 1)
    assert OTHER in {each.name for each in await storage.config.queues()}


async def test_jobs_of_a_queue_that_is_added_are_claimed_once_slots_are_granted(
    storage: Storage,
) -> None:
    pod, lease = await registered(storage)
    await storage.jobs.heartbeat(lease, [], LEASE)
    await storage.procs.change_queues(lease, replace(pod, queues=(QUEUE, OTHER)), LEASE)
    await grant(storage, lease, OTHER)
    job_id = await enqueue_one(storage, queue=OTHER)

    assert (await claim_one(storage, lease, queue=OTHER)).claim.job_id == job_id


async def test_a_pod_that_drains_drains_in_a_queue_that_is_added_too(storage: Storage) -> None:
    pod, lease = await registered(storage)
    await storage.procs.set_draining(lease)
    await storage.procs.change_queues(lease, replace(pod, queues=(QUEUE, OTHER)), LEASE)
    drained = {each.queue: each.draining for each in await storage.procs.allocations()}
    assert drained == {QUEUE: {lease.host_id}, OTHER: {lease.host_id}}

    await storage.procs.end_draining(lease)
    assert not any(each.draining for each in await storage.procs.allocations())


async def test_beats_know_of_a_change_that_another_program_has_made(
    storage: Storage,
) -> None:
    pod, lease = await registered(storage)
    assert (await storage.jobs.heartbeat(lease, [], LEASE)).queues.keys() == {QUEUE}

    async with await storage.reopen() as other:
        await other.procs.change_queues(lease, replace(pod, queues=(OTHER, THIRD)), LEASE)

    beat = await storage.jobs.heartbeat(lease, [], LEASE)
    assert beat.lease_held
    assert beat.queues.keys() == {OTHER, THIRD}


async def test_a_queue_that_goes_takes_its_slots_and_leaves_claims_alone(
    storage: Storage,
) -> None:
    pod, lease = await registered(storage, QUEUE, OTHER)
    await grant(storage, lease, OTHER)
    await enqueue_one(storage, queue=OTHER)
    claimed = await claim_one(storage, lease, queue=OTHER)

    assert await storage.procs.change_queues(lease, replace(pod, queues=(QUEUE,)), LEASE)

    assert await slots_of(storage, lease) == {QUEUE: Slots(0, 0)}
    beat = await storage.jobs.heartbeat(lease, [held(claimed)], LEASE)
    assert beat.lease_held
    assert beat.queues.keys() == {QUEUE}
    assert list(beat.claims) == [claimed.claim]


@pytest.mark.parametrize("left", [(QUEUE,), ()])
async def test_a_claim_whose_reply_was_lost_is_known_after_the_queue_has_gone(
    storage: Storage, left: tuple[str, ...]
) -> None:
    pod, lease = await registered(storage, QUEUE, OTHER)
    await storage.config.set_queue(OTHER, QueueChange(max_workers=2))
    await grant(storage, lease, OTHER, 2)
    await enqueue_one(storage, queue=OTHER)
    listed = await claim_one(storage, lease, queue=OTHER)
    await storage.jobs.heartbeat(lease, [held(listed)], LEASE)
    await enqueue_one(storage, queue=OTHER)
    lost_reply = await claim_one(storage, lease, queue=OTHER)

    assert await storage.procs.change_queues(lease, replace(pod, queues=left), LEASE)

    for _ in range(2):
        beat = await storage.jobs.heartbeat(lease, [held(listed)], LEASE)
        assert (beat.lease_held, beat.unknown) == (True, (lost_reply.claim,))
        assert beat.claims == {listed.claim: ClaimState.HELD}
        assert beat.queues.keys() == {*left}
    assert await finish(storage, listed, done())
    beat = await storage.jobs.heartbeat(lease, [], LEASE)
    assert beat.unknown == (lost_reply.claim,)
    assert await storage.jobs.release([lost_reply.claim]) == [True]
    for _ in range(2):
        beat = await storage.jobs.heartbeat(lease, [], LEASE)
        assert (beat.lease_held, beat.unknown) == (True, ())
        assert beat.queues.keys() == {*left}


async def test_a_claim_that_was_revived_is_lost_after_the_queue_has_gone(
    storage: Storage, clock: ManualClock
) -> None:
    pod, lease = await registered(storage, QUEUE, OTHER)
    await grant(storage, lease, OTHER)
    await enqueue_one(storage, queue=OTHER)
    claimed = await claim_one(storage, lease, queue=OTHER)
    assert await storage.procs.change_queues(lease, replace(pod, queues=(QUEUE,)), LEASE)
    for _ in range(4):
        clock.advance(LEASE / 2)
        await storage.jobs.heartbeat(lease, [], LEASE)
    assert await revive(storage, claimed)
    other = await register(storage, queues=(OTHER,))
    await grant(storage, other, OTHER)
    await claim_one(storage, other, queue=OTHER)

    beat = await storage.jobs.heartbeat(lease, [held(claimed)], LEASE)

    assert beat.claims == {claimed.claim: ClaimState.LOST}
    assert (beat.lease_held, beat.unknown) == (True, ())


async def test_a_pod_may_declare_no_queue_for_a_while(storage: Storage) -> None:
    pod, lease = await registered(storage)

    assert await storage.procs.change_queues(lease, replace(pod, queues=()), LEASE)
    assert (await storage.jobs.heartbeat(lease, [], LEASE)).lease_held
    assert await slots_of(storage, lease) == {}

    assert await storage.procs.change_queues(lease, pod, LEASE)
    assert (await storage.jobs.heartbeat(lease, [], LEASE)).queues.keys() == {QUEUE}


async def test_a_repeat_changes_nothing(storage: Storage) -> None:
    pod, lease = await registered(storage)
    changed = replace(pod, queues=(QUEUE, OTHER))
    await storage.procs.change_queues(lease, changed, LEASE)
    await grant(storage, lease, OTHER)

    assert await storage.procs.change_queues(lease, changed, LEASE)

    assert await slots_of(storage, lease) == {QUEUE: Slots(0, 0), OTHER: Slots(1, 1)}


async def test_the_coordinator_wakes_and_sees_a_new_version(storage: Storage) -> None:
    pod, lease = await registered(storage)
    before = {each.queue: each.version for each in await storage.procs.allocations()}
    await storage.jobs.wait_for_work(frozenset(), timedelta(0))

    await storage.procs.change_queues(lease, replace(pod, queues=(OTHER,)), LEASE)

    assert (await storage.jobs.wait_for_work(frozenset(), timedelta(seconds=20))).fleet
    await enqueue_one(storage)
    after = {each.queue: each.version for each in await storage.procs.allocations()}
    assert after[QUEUE] > before[QUEUE]
    assert OTHER in after


async def test_a_lease_of_before_changes_nothing(storage: Storage) -> None:
    pod, old = await registered(storage)
    await storage.procs.register(pod, LEASE)

    assert not await storage.procs.change_queues(old, replace(pod, queues=(OTHER,)), LEASE)

    [state] = await storage.procs.pods()
    assert state.pod.queues == (QUEUE,)
    assert [each.name for each in await storage.config.queues()] == [QUEUE]


async def test_a_lease_that_ran_out_changes_nothing(storage: Storage, clock: ManualClock) -> None:
    pod, lease = await registered(storage)
    clock.advance(LEASE - SECOND)
    assert await storage.procs.change_queues(lease, pod, LEASE)
    clock.advance(SECOND + MICROSECOND)

    assert not await storage.procs.change_queues(lease, replace(pod, queues=(OTHER,)), LEASE)

    [state] = await storage.procs.pods()
    assert state.pod.queues == (QUEUE,)


async def test_a_queue_that_no_pod_declares_any_more_can_be_deleted(storage: Storage) -> None:
    pod, lease = await registered(storage, QUEUE, OTHER)
    await storage.procs.change_queues(lease, replace(pod, queues=(QUEUE,)), LEASE)

    await storage.config.delete_queue(OTHER)

    assert [each.name for each in await storage.config.queues()] == [QUEUE]


@pytest.mark.long
async def test_a_thousand_queues_are_added_and_taken_away(storage: Storage) -> None:
    names = tuple(f"tenant-{number}" for number in range(1000))
    pod, lease = await registered(storage)

    assert await storage.procs.change_queues(lease, replace(pod, queues=names), LEASE)
    assert (await storage.jobs.heartbeat(lease, [], LEASE)).queues.keys() == set(names)

    await storage.jobs.enqueue([new_job(queue=names[7])])
    assert await storage.procs.change_queues(lease, replace(pod, queues=names[:1]), LEASE)
    assert (await storage.jobs.heartbeat(lease, [], LEASE)).queues.keys() == {names[0]}
