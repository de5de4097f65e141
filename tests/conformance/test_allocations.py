"""Slots: who may run how many workers of a queue, and that the sum never exceeds the maximum."""

import asyncio
import itertools
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import HostId, new_host_id
from forge_jobs.model.processes import Allocation, AllocationChange, PodLease, Slots
from forge_jobs.model.queues import QueueChange, QueueSettings
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    LEASE,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim_one,
    dead,
    enqueue_one,
    finish,
    register,
)

pytestmark = pytest.mark.anyio


async def allocation_of(storage: Storage, queue: str = QUEUE) -> Allocation:
    found = {allocation.queue: allocation for allocation in await storage.procs.allocations()}
    return found[queue]


def change(allocation: Allocation, slots: dict[HostId, tuple[int, int]]) -> AllocationChange:
    """Return a change to targets and grants by host. Other pods keep theirs."""
    wished = {host: Slots(*pair) for host, pair in slots.items()}
    return AllocationChange(
        queue=allocation.queue,
        version=allocation.version,
        slots=dict(allocation.pods) | wished,
    )


async def allocate(
    storage: Storage, slots: dict[HostId, tuple[int, int]], queue: str = QUEUE
) -> bool:
    """Write ``slots`` over the present allocation."""
    wish = change(await allocation_of(storage, queue), slots)
    [written] = await storage.procs.allocate([wish])
    return written


async def set_max(storage: Storage, max_workers: int, queue: str = QUEUE) -> None:
    await storage.config.set_queue(queue, QueueChange(max_workers=max_workers))


async def grants(storage: Storage, queue: str = QUEUE) -> dict[HostId, int]:
    pods = (await allocation_of(storage, queue)).pods
    return {host: slots.grant for host, slots in pods.items()}


# -- reading -----------------------------------------------------------------------------------


async def test_allocations_name_every_queue_that_a_live_pod_declares_sorted(
    storage: Storage,
) -> None:
    await storage.config.ensure_queue("idle", QueueSettings(max_workers=3))
    first = await register(storage, queues=("b", "a"))
    second = await register(storage, queues=("b",))
    await set_max(storage, 4, "b")
    found = await storage.procs.allocations()
    assert [allocation.queue for allocation in found] == ["a", "b"]
    assert set(found[0].pods) == {first.host_id}
    assert set(found[1].pods) == {first.host_id, second.host_id}
    assert (found[0].max_workers, found[1].max_workers) == (1, 4)
    assert set(found[1].pods.values()) == {Slots(0, 0)}
    assert found[1].draining == frozenset()


async def test_a_queue_with_waiting_jobs_and_no_pod_is_among_the_allocations(
    storage: Storage,
) -> None:
    await enqueue_one(storage, queue="orphan")
    await enqueue_one(storage, queue="scheduled", delay=timedelta(days=1))
    found = {allocation.queue: allocation for allocation in await storage.procs.allocations()}
    assert set(found) == {"orphan", "scheduled"}
    assert found["orphan"].pods == {}


async def test_a_queue_whose_jobs_have_ended_needs_no_allocation(storage: Storage) -> None:
    lease = await register(storage)
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    assert await finish(storage, claimed, dead())
    await storage.procs.unregister(lease)
    assert await storage.procs.allocations() == []


async def test_grants_of_a_pod_out_of_lease_do_not_appear(
    storage: Storage, clock: ManualClock
) -> None:
    await set_max(storage, 4)
    mortal = await register(storage)
    survivor = await register(storage, lease_for=10 * LEASE)
    assert await allocate(storage, {mortal.host_id: (2, 2), survivor.host_id: (2, 2)})
    clock.advance(LEASE)
    assert await grants(storage) == {survivor.host_id: 2}


# -- writing -----------------------------------------------------------------------------------


async def test_targets_and_grants_are_written_and_reach_the_pod_by_its_beat(
    storage: Storage,
) -> None:
    await set_max(storage, 4)
    first, second = await register(storage), await register(storage)
    assert await allocate(storage, {first.host_id: (3, 2), second.host_id: (1, 1)})
    pods = (await allocation_of(storage)).pods
    assert pods == {first.host_id: Slots(3, 2), second.host_id: Slots(1, 1)}
    beat = await storage.jobs.heartbeat(first, [], LEASE)
    assert beat.queues[QUEUE].slots == Slots(3, 2)
    states = {state.pod.host_id: state for state in await storage.procs.pods()}
    assert states[first.host_id].slots[QUEUE] == Slots(3, 2)


async def test_the_version_changes_with_every_write(storage: Storage) -> None:
    await set_max(storage, 4)
    lease = await register(storage)
    versions = [(await allocation_of(storage)).version]
    for slots in ((1, 0), (1, 1), (2, 1)):
        assert await allocate(storage, {lease.host_id: slots})
        versions.append((await allocation_of(storage)).version)
    assert len(set(versions)) == 4


async def test_a_change_to_what_is_there_is_true_and_writes_nothing(storage: Storage) -> None:
    lease = await register(storage)
    assert await allocate(storage, {lease.host_id: (1, 1)})
    before = await allocation_of(storage)
    assert await allocate(storage, {lease.host_id: (1, 1)})
    assert await allocation_of(storage) == before


async def test_a_change_by_an_old_version_writes_nothing(storage: Storage) -> None:
    await set_max(storage, 4)
    lease = await register(storage)
    stale = await allocation_of(storage)
    assert await allocate(storage, {lease.host_id: (2, 2)})
    assert await storage.procs.allocate([change(stale, {lease.host_id: (4, 4)})]) == [False]
    assert (await allocation_of(storage)).pods == {lease.host_id: Slots(2, 2)}


async def test_of_two_concurrent_changes_with_one_version_one_wins(storage: Storage) -> None:
    await set_max(storage, 1)
    first, second = await register(storage), await register(storage)
    read = await allocation_of(storage)
    written = await asyncio.gather(
        storage.procs.allocate([change(read, {first.host_id: (1, 1)})]),
        storage.procs.allocate([change(read, {second.host_id: (1, 1)})]),
    )
    assert sorted(written) == [[False], [True]]
    assert sum((await grants(storage)).values()) == 1


async def test_the_sum_of_grants_may_reach_the_maximum_and_not_exceed_it(storage: Storage) -> None:
    await set_max(storage, 5)
    first, second = await register(storage), await register(storage)
    assert not await allocate(storage, {first.host_id: (3, 3), second.host_id: (3, 3)})
    assert await grants(storage) == {first.host_id: 0, second.host_id: 0}
    assert await allocate(storage, {first.host_id: (3, 3), second.host_id: (3, 2)})
    assert await grants(storage) == {first.host_id: 3, second.host_id: 2}


async def test_grants_of_pods_that_the_change_does_not_name_count_too(storage: Storage) -> None:
    await set_max(storage, 3)
    first, second = await register(storage), await register(storage)
    assert await allocate(storage, {first.host_id: (2, 2)})
    version = (await allocation_of(storage)).version
    partial = AllocationChange(queue=QUEUE, version=version, slots={second.host_id: Slots(2, 2)})
    assert await storage.procs.allocate([partial]) == [False]
    partial = AllocationChange(queue=QUEUE, version=version, slots={second.host_id: Slots(2, 1)})
    assert await storage.procs.allocate([partial]) == [True]
    assert await grants(storage) == {first.host_id: 2, second.host_id: 1}


async def test_the_maximum_that_counts_is_the_one_stored_at_the_write(storage: Storage) -> None:
    await set_max(storage, 4)
    lease = await register(storage)
    read = await allocation_of(storage)
    await set_max(storage, 2)
    latest = await allocation_of(storage)
    for version in {read.version, latest.version}:
        wish = AllocationChange(queue=QUEUE, version=version, slots={lease.host_id: Slots(4, 4)})
        assert await storage.procs.allocate([wish]) == [False]
    assert await allocate(storage, {lease.host_id: (2, 2)})


async def test_grants_that_do_not_rise_may_exceed_a_lowered_maximum(storage: Storage) -> None:
    await set_max(storage, 4)
    first, second = await register(storage), await register(storage)
    assert await allocate(storage, {first.host_id: (2, 2), second.host_id: (2, 1)})
    await set_max(storage, 1)
    assert await allocate(storage, {first.host_id: (1, 2), second.host_id: (0, 1)})
    pods = (await allocation_of(storage)).pods
    assert pods == {first.host_id: Slots(1, 2), second.host_id: Slots(0, 1)}
    assert not await allocate(storage, {first.host_id: (1, 2), second.host_id: (0, 2)})


async def test_a_change_never_lowers_a_grant(storage: Storage) -> None:
    await set_max(storage, 4)
    first, second = await register(storage), await register(storage)
    assert await allocate(storage, {first.host_id: (2, 2), second.host_id: (2, 2)})
    assert not await allocate(storage, {first.host_id: (3, 3), second.host_id: (1, 1)})
    assert not await allocate(storage, {first.host_id: (1, 1)})
    assert await grants(storage) == {first.host_id: 2, second.host_id: 2}


async def test_a_lease_that_ran_out_since_the_reading_refuses_the_change(
    storage: Storage, clock: ManualClock
) -> None:
    await set_max(storage, 4)
    mortal = await register(storage)
    survivor = await register(storage, lease_for=10 * LEASE)
    read = await allocation_of(storage)
    clock.advance(LEASE)
    wish = change(read, {mortal.host_id: (2, 2), survivor.host_id: (2, 2)})
    assert await storage.procs.allocate([wish]) == [False]
    assert await grants(storage) == {survivor.host_id: 0}


async def test_slots_of_a_dead_pod_go_to_others_and_never_come_back(
    storage: Storage, clock: ManualClock
) -> None:
    await set_max(storage, 4)
    mortal = await register(storage)
    survivor = await register(storage, lease_for=100 * LEASE)
    assert await allocate(storage, {mortal.host_id: (2, 2), survivor.host_id: (2, 2)})
    clock.advance(LEASE)
    assert await allocate(storage, {survivor.host_id: (4, 4)})
    await register(storage, host_id=mortal.host_id)
    assert await grants(storage) == {mortal.host_id: 0, survivor.host_id: 4}
    assert not await allocate(storage, {mortal.host_id: (1, 1)})


async def test_slots_given_to_others_do_not_come_back_when_the_clock_steps_back(
    storage: Storage, clock: ManualClock
) -> None:
    await set_max(storage, 4)
    mortal = await register(storage)
    survivor = await register(storage, lease_for=100 * LEASE)
    assert await allocate(storage, {mortal.host_id: (2, 2), survivor.host_id: (2, 2)})
    clock.advance(LEASE)
    assert await allocate(storage, {survivor.host_id: (4, 4)})
    clock.step_wall(-SECOND)
    assert sum((await grants(storage)).values()) == 4
    beat = await storage.jobs.heartbeat(mortal, [], LEASE)
    assert all(queue.slots.grant == 0 for queue in beat.queues.values())


async def test_a_pod_that_registers_again_has_lost_its_grants(storage: Storage) -> None:
    await set_max(storage, 4)
    lease = await register(storage)
    assert await allocate(storage, {lease.host_id: (4, 4)})
    stale = await allocation_of(storage)
    again = await register(storage, host_id=lease.host_id)
    assert await grants(storage) == {lease.host_id: 0}
    beat = await storage.jobs.heartbeat(again, [], LEASE)
    assert beat.queues[QUEUE].slots.grant == 0
    assert await storage.procs.allocate([change(stale, {})]) == [False]


async def test_a_pod_that_leaves_has_lost_its_grants(storage: Storage) -> None:
    await set_max(storage, 2)
    leaver, stayer = await register(storage), await register(storage)
    assert await allocate(storage, {leaver.host_id: (2, 2)})
    await storage.procs.unregister(leaver)
    assert await grants(storage) == {stayer.host_id: 0}
    assert await allocate(storage, {stayer.host_id: (2, 2)})


async def test_an_unknown_pod_or_queue_refuses_the_change(storage: Storage) -> None:
    await register(storage)
    assert not await allocate(storage, {new_host_id(): (1, 1)})
    nowhere = AllocationChange(queue="nowhere", version=0, slots={new_host_id(): Slots(1, 1)})
    assert await storage.procs.allocate([nowhere]) == [False]


async def test_a_pod_gets_no_slots_of_a_queue_it_does_not_declare(storage: Storage) -> None:
    await register(storage, queues=("a",))
    stranger = await register(storage, queues=("b",))
    assert not await allocate(storage, {stranger.host_id: (1, 1)}, "a")


async def test_the_items_of_one_call_are_independent(storage: Storage) -> None:
    lease = await register(storage, queues=("a", "b", "c"))
    found = {allocation.queue: allocation for allocation in await storage.procs.allocations()}
    wishes = [
        change(found["a"], {lease.host_id: (1, 1)}),
        change(found["b"], {lease.host_id: (2, 2)}),
        change(found["c"], {lease.host_id: (1, 1)}),
    ]
    assert await storage.procs.allocate(wishes) == [True, False, True]
    assert [await grants(storage, queue) for queue in "abc"] == [
        {lease.host_id: 1},
        {lease.host_id: 0},
        {lease.host_id: 1},
    ]


async def test_allocating_nothing_is_fine(storage: Storage) -> None:
    assert await storage.procs.allocate([]) == []


async def test_pods_are_woken_when_slots_were_written_and_not_otherwise(storage: Storage) -> None:
    lease = await register(storage)
    for expected in (True, False):
        await storage.jobs.wait_for_work(frozenset(), timedelta(0))
        assert await allocate(storage, {lease.host_id: (1, 1)})
        wake = await storage.jobs.wait_for_work(frozenset(), timedelta(milliseconds=100))
        assert wake.beat is expected


# -- giving back -------------------------------------------------------------------------------


async def test_a_pod_lowers_its_grants_and_wakes_the_coordinator(storage: Storage) -> None:
    await set_max(storage, 4)
    lease = await register(storage)
    assert await allocate(storage, {lease.host_id: (1, 4)})
    await storage.jobs.wait_for_work(frozenset(), timedelta(0))
    await storage.procs.lower_grants(lease, {QUEUE: 1, "unknown": 0})
    assert (await allocation_of(storage)).pods == {lease.host_id: Slots(1, 1)}
    wake = await storage.jobs.wait_for_work(frozenset(), timedelta(seconds=20))
    assert wake.fleet


async def test_lowering_never_raises_and_touches_only_its_own_pod(storage: Storage) -> None:
    await set_max(storage, 4)
    lease, other = await register(storage), await register(storage)
    assert await allocate(storage, {lease.host_id: (2, 2), other.host_id: (2, 2)})
    before = await allocation_of(storage)
    await storage.procs.lower_grants(lease, {QUEUE: 3})
    await storage.procs.lower_grants(lease, {QUEUE: 2})
    await storage.procs.lower_grants(lease, {})
    assert await allocation_of(storage) == before
    await storage.procs.lower_grants(lease, {QUEUE: 0})
    assert await grants(storage) == {lease.host_id: 0, other.host_id: 2}


async def test_lowering_moves_the_version_so_that_an_older_reading_raises_nothing(
    storage: Storage,
) -> None:
    await set_max(storage, 2)
    lease = await register(storage)
    assert await allocate(storage, {lease.host_id: (1, 2)})
    stale = await allocation_of(storage)
    await storage.procs.lower_grants(lease, {QUEUE: 1})
    assert await storage.procs.allocate([change(stale, {})]) == [False]
    assert await grants(storage) == {lease.host_id: 1}


async def test_another_epoch_cannot_lower_grants(storage: Storage) -> None:
    old = await register(storage)
    new = await register(storage, host_id=old.host_id)
    assert await allocate(storage, {new.host_id: (1, 1)})
    await storage.procs.lower_grants(old, {QUEUE: 0})
    await storage.procs.lower_grants(PodLease(new_host_id(), new.epoch), {QUEUE: 0})
    assert await grants(storage) == {new.host_id: 1}


# -- the fleet's version -----------------------------------------------------------------------


async def fleet_version(storage: Storage) -> str:
    return (await storage.cron.lead(HostId("01JZZZZZZZZZZZZZZZZZZZZZZZ"), LEASE)).fleet_version


async def test_the_fleet_version_stays_while_nothing_changes(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage)
    await enqueue_one(storage, queue="orphan")
    assert await allocate(storage, {lease.host_id: (1, 1)})
    before = await fleet_version(storage)
    clock.advance(LEASE - MICROSECOND)
    await storage.jobs.heartbeat(lease, [], LEASE)
    clock.advance(LEASE - MICROSECOND)
    assert await allocate(storage, {lease.host_id: (1, 1)})
    await storage.procs.lower_grants(lease, {QUEUE: 1})
    await enqueue_one(storage)
    await enqueue_one(storage, queue="orphan")
    assert await fleet_version(storage) == before
    leadership = await storage.cron.leader()
    assert leadership is not None
    assert leadership.fleet_version == before


async def test_the_fleet_version_differs_whenever_the_allocations_do(
    storage: Storage, clock: ManualClock
) -> None:
    async def seen() -> tuple[str, object]:
        version = await fleet_version(storage)
        return version, await storage.procs.allocations()

    history = [await seen()]
    await set_max(storage, 3)
    first = await register(storage)
    history.append(await seen())
    second = await register(storage, lease_for=3 * LEASE)
    history.append(await seen())
    assert await allocate(storage, {first.host_id: (2, 0), second.host_id: (1, 0)})
    history.append(await seen())
    assert await allocate(storage, {first.host_id: (2, 2), second.host_id: (1, 1)})
    history.append(await seen())
    await storage.procs.lower_grants(first, {QUEUE: 1})
    history.append(await seen())
    await storage.procs.set_draining(second)
    history.append(await seen())
    await set_max(storage, 5)
    history.append(await seen())
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=6))
    history.append(await seen())
    await enqueue_one(storage, queue="orphan")
    history.append(await seen())
    clock.advance(LEASE)
    history.append(await seen())
    await storage.procs.unregister(second)
    history.append(await seen())
    await register(storage, queues=("orphan",))
    history.append(await seen())
    versions = [version for version, _ in history]
    assert len(set(versions)) == len(versions)
    for (_, before), (_, after) in itertools.pairwise(history):
        assert before != after


async def test_one_pod_dropped_while_another_falls_silent_changes_the_fleet_version(
    storage: Storage, clock: ManualClock
) -> None:
    await register(storage)
    await register(storage, lease_for=2 * LEASE)
    clock.advance(LEASE)
    before = await fleet_version(storage)
    clock.advance(LEASE)
    assert len(await storage.procs.drop_dead_pods(LEASE - SECOND, 1)) == 1
    assert await fleet_version(storage) != before


async def test_a_maximum_declared_by_code_changes_the_fleet_version(storage: Storage) -> None:
    await storage.config.ensure_queue(QUEUE, QueueSettings(max_workers=1))
    await register(storage)
    before = await fleet_version(storage)
    await storage.config.ensure_queue(QUEUE, QueueSettings(max_workers=1))
    assert await fleet_version(storage) == before
    await storage.config.ensure_queue(QUEUE, QueueSettings(max_workers=2))
    assert await fleet_version(storage) != before
