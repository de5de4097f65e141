"""Pods and their leases, workers, gauges: the first half of ``ProcStore``."""

import asyncio
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import HostId, new_host_id
from forge_jobs.model.jobs import Hold
from forge_jobs.model.processes import PodGauges, PodLease, PodState
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    LEASE,
    MICROSECOND,
    QUEUE,
    SECOND,
    a_pod,
    claim,
    claim_one,
    done,
    enqueue_one,
    finish,
    get_job,
    held,
    register,
)

pytestmark = pytest.mark.anyio

GAUGES = PodGauges(
    cpu_percent=12.5,
    memory_bytes=2**33,
    disk_free_bytes=2**41,
    store_latency_ms=0.75,
    loop_lag_ms=1.25,
    running=3,
)


async def pod_states(storage: Storage) -> dict[HostId, PodState]:
    return {state.pod.host_id: state for state in await storage.procs.pods()}


async def live_hosts(storage: Storage, queue: str = QUEUE) -> set[HostId]:
    for allocation in await storage.procs.allocations():
        if allocation.queue == queue:
            return set(allocation.pods)
    return set()


async def forget_hints(storage: Storage) -> None:
    await storage.jobs.wait_for_work(frozenset(), timedelta(0))


async def assert_fleet_wakes(storage: Storage) -> None:
    wake = await storage.jobs.wait_for_work(frozenset(), timedelta(seconds=20))
    assert wake.fleet


# -- registration ------------------------------------------------------------------------------


async def test_a_registered_pod_is_listed_as_it_described_itself(
    storage: Storage, clock: ManualClock
) -> None:
    pod = a_pod(
        label="web-worker-3.1-ab12",
        queues=("gh", "slack: %s {}"),
        kinds=("gh.sync", "a'b"),
        version="3.1",
        process_id=77,
    )
    lease = await storage.procs.register(pod, LEASE)
    assert lease.host_id == pod.host_id
    [state] = await storage.procs.pods()
    assert state.pod.host_id == pod.host_id
    assert (state.pod.label, state.pod.version, state.pod.process_id) == (
        "web-worker-3.1-ab12",
        "3.1",
        77,
    )
    assert sorted(state.pod.queues) == sorted(pod.queues)
    assert sorted(state.pod.kinds) == sorted(pod.kinds)
    assert state.started_at == state.last_beat_at == clock.now()
    assert state.lease_remaining == LEASE
    assert not state.draining
    assert state.gauges is None
    assert not any(state.in_progress.values())


async def test_each_registration_gives_another_epoch(storage: Storage) -> None:
    host_id = new_host_id()
    epochs = {(await register(storage, host_id=host_id)).epoch for _ in range(5)}
    assert len(epochs) == 5
    assert len(await storage.procs.pods()) == 1


async def test_registering_again_renews_the_lease_and_replaces_the_description(
    storage: Storage, clock: ManualClock
) -> None:
    first = await register(storage, queues=("a",), kinds=("x",))
    clock.advance(LEASE)
    await register(storage, queues=("b",), kinds=("y",), host_id=first.host_id)
    [state] = await storage.procs.pods()
    assert (state.pod.queues, state.pod.kinds) == (("b",), ("y",))
    assert state.lease_remaining == LEASE
    assert await live_hosts(storage, "a") == set()
    assert await live_hosts(storage, "b") == {first.host_id}


async def test_registering_again_with_other_queues_leaves_the_old_ones_at_once(
    storage: Storage,
) -> None:
    first = await register(storage, queues=("a", "b"))
    again = await register(storage, queues=("b", "c"), host_id=first.host_id)
    assert [await live_hosts(storage, queue) for queue in "abc"] == [
        set(),
        {again.host_id},
        {again.host_id},
    ]


async def test_registering_again_ends_draining(storage: Storage) -> None:
    lease = await register(storage)
    await storage.procs.set_draining(lease)
    await register(storage, host_id=lease.host_id)
    [state] = await storage.procs.pods()
    assert not state.draining


async def test_the_old_epoch_is_worthless_after_a_registration(storage: Storage) -> None:
    old = await register(storage)
    await enqueue_one(storage)
    new = await register(storage, host_id=old.host_id)
    assert await claim(storage, old) == []
    assert not (await storage.jobs.heartbeat(old, [], LEASE)).lease_held
    assert len(await claim(storage, new)) == 1


async def test_registration_creates_unknown_queues_and_leaves_known_ones(storage: Storage) -> None:
    await storage.config.set_queue("known", QueueChange(max_workers=7))
    await register(storage, queues=("known", "new"))
    queues = {state.name: state.settings.max_workers for state in await storage.config.queues()}
    assert queues == {"known": 7, "new": 1}


async def test_registration_frees_held_jobs_of_the_kinds_it_knows_and_no_others(
    storage: Storage,
) -> None:
    lease = await register(storage)
    known_soon = await enqueue_one(storage, kind="known.soon")
    unknown = await enqueue_one(storage, kind="unknown")
    assert await claim(storage, lease, limit=5) == []
    assert (await get_job(storage, known_soon)).hold == Hold.UNKNOWN_KIND
    assert (await get_job(storage, unknown)).hold == Hold.UNKNOWN_KIND
    await register(storage, queues=("other",), kinds=("known.soon",))
    assert (await get_job(storage, known_soon)).hold is None
    assert (await get_job(storage, unknown)).hold == Hold.UNKNOWN_KIND
    taken = await claim(storage, lease, limit=5, kinds=("known.soon",))
    assert [job.claim.job_id for job in taken] == [known_soon]


async def test_a_kind_of_a_registered_pod_is_not_put_on_hold(storage: Storage) -> None:
    lease = await register(storage)
    await register(storage, kinds=("elsewhere",))
    job_id = await enqueue_one(storage, kind="elsewhere")
    assert await claim(storage, lease) == []
    assert (await get_job(storage, job_id)).hold is None


async def test_a_pod_registers_with_any_number_of_queues_and_kinds(storage: Storage) -> None:
    queues = tuple(f"queue-{number:04}" for number in range(120))
    kinds = tuple(f"kind-{number:04}" for number in range(1_200))
    await storage.procs.register(a_pod(queues=queues, kinds=kinds), LEASE)
    [state] = await storage.procs.pods()
    assert sorted(state.pod.queues) == list(queues)
    assert sorted(state.pod.kinds) == list(kinds)


async def test_two_pods_that_register_at_once_are_both_admitted(storage: Storage) -> None:
    leases = await asyncio.gather(*(register(storage) for _ in range(8)))
    assert await live_hosts(storage) == {lease.host_id for lease in leases}


async def test_registration_wakes_the_coordinator(storage: Storage) -> None:
    await forget_hints(storage)
    await register(storage)
    await assert_fleet_wakes(storage)


# -- leases ------------------------------------------------------------------------------------


async def test_a_lease_runs_out_at_its_last_microsecond(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage)
    clock.advance(LEASE - MICROSECOND)
    assert (await pod_states(storage))[lease.host_id].lease_remaining == MICROSECOND
    assert await live_hosts(storage) == {lease.host_id}
    clock.advance(MICROSECOND)
    assert (await pod_states(storage))[lease.host_id].lease_remaining == timedelta(0)
    assert await live_hosts(storage) == set()
    clock.advance(3600)
    assert (await pod_states(storage))[lease.host_id].lease_remaining == timedelta(0)


async def test_a_beat_renews_the_lease_to_now_plus_its_length(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage)
    clock.advance(LEASE - MICROSECOND)
    beat = await storage.jobs.heartbeat(lease, [], 2 * LEASE)
    assert beat.lease_held
    state = (await pod_states(storage))[lease.host_id]
    assert state.lease_remaining == 2 * LEASE
    assert state.last_beat_at == clock.now()
    assert state.started_at == clock.now() - (LEASE - MICROSECOND)


async def test_a_lease_that_ran_out_is_not_renewed(storage: Storage, clock: ManualClock) -> None:
    lease = await register(storage)
    clock.advance(LEASE)
    assert not (await storage.jobs.heartbeat(lease, [], LEASE)).lease_held
    assert await live_hosts(storage) == set()
    assert (await pod_states(storage))[lease.host_id].lease_remaining == timedelta(0)


async def test_a_beat_of_another_epoch_renews_nothing(storage: Storage, clock: ManualClock) -> None:
    lease = await register(storage)
    clock.advance(SECOND)
    forged = PodLease(lease.host_id, lease.epoch + "x")
    assert not (await storage.jobs.heartbeat(forged, [], LEASE)).lease_held
    assert (await pod_states(storage))[lease.host_id].lease_remaining == LEASE - SECOND


async def test_a_beat_tells_of_every_queue_the_pod_declares_and_of_no_other(
    storage: Storage,
) -> None:
    lease = await register(storage, queues=("a", "b"))
    await register(storage, queues=("c",))
    beat = await storage.jobs.heartbeat(lease, [], LEASE)
    assert set(beat.queues) == {"a", "b"}
    assert beat.queues["a"].state.name == "a"
    assert (beat.queues["a"].slots.target, beat.queues["a"].slots.grant) == (0, 0)


async def test_a_beat_tells_when_the_next_job_of_each_queue_falls_due(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage, queues=("none", "due", "later", "both", "held"))
    await enqueue_one(storage, queue="due")
    await enqueue_one(storage, queue="later", delay=90 * SECOND)
    await enqueue_one(storage, queue="later", delay=80 * SECOND, priority=5)
    await enqueue_one(storage, queue="both", delay=70 * SECOND, priority=-5)
    await enqueue_one(storage, queue="both", priority=5)
    await enqueue_one(storage, queue="held", kind="unknown")
    assert await claim(storage, lease, queue="held") == []
    clock.advance(SECOND)
    beat = await storage.jobs.heartbeat(lease, [], LEASE)
    assert {name: queue.next_due_in for name, queue in beat.queues.items()} == {
        "none": None,
        "due": timedelta(0),
        "later": 79 * SECOND,
        "both": timedelta(0),
        "held": None,
    }


# -- draining and leaving ----------------------------------------------------------------------


async def test_to_say_again_that_a_pod_drains_changes_nothing(storage: Storage) -> None:
    lease = await register(storage)
    await storage.procs.set_draining(lease)
    [before] = await storage.procs.allocations()

    await storage.procs.set_draining(lease)

    [after] = await storage.procs.allocations()
    assert (after.version, set(after.draining)) == (before.version, {lease.host_id})


async def test_a_draining_pod_is_shown_as_such_and_wakes_the_coordinator(storage: Storage) -> None:
    lease, other = await register(storage), await register(storage)
    await forget_hints(storage)
    await storage.procs.set_draining(lease)
    await assert_fleet_wakes(storage)
    states = await pod_states(storage)
    assert states[lease.host_id].draining
    assert not states[other.host_id].draining
    [allocation] = await storage.procs.allocations()
    assert allocation.draining == {lease.host_id}
    assert set(allocation.pods) == {lease.host_id, other.host_id}


async def test_an_old_epoch_cannot_drain_a_pod(storage: Storage) -> None:
    old = await register(storage)
    await register(storage, host_id=old.host_id)
    await storage.procs.set_draining(old)
    [state] = await storage.procs.pods()
    assert not state.draining


async def test_unregister_forgets_the_pod_and_wakes_the_coordinator(storage: Storage) -> None:
    lease, other = await register(storage), await register(storage)
    await forget_hints(storage)
    await storage.procs.unregister(lease)
    await assert_fleet_wakes(storage)
    assert set(await pod_states(storage)) == {other.host_id}
    assert await live_hosts(storage) == {other.host_id}
    assert not (await storage.jobs.heartbeat(lease, [], LEASE)).lease_held


async def test_unregister_is_a_no_op_for_another_epoch_and_when_repeated(storage: Storage) -> None:
    old = await register(storage)
    new = await register(storage, host_id=old.host_id)
    await storage.procs.unregister(old)
    assert set(await pod_states(storage)) == {new.host_id}
    assert await live_hosts(storage) == {new.host_id}
    await storage.procs.unregister(new)
    await storage.procs.unregister(new)
    assert await storage.procs.pods() == []


# -- listing -----------------------------------------------------------------------------------


async def test_pods_are_listed_oldest_first_those_out_of_lease_too(
    storage: Storage, clock: ManualClock
) -> None:
    hosts = []
    for _ in range(3):
        hosts.append((await register(storage)).host_id)
        clock.advance(LEASE)
    assert [state.pod.host_id for state in await storage.procs.pods()] == hosts
    # The same boot of the same pod, admitted anew, counts from the first registration.
    await register(storage, host_id=hosts[0])
    assert [state.pod.host_id for state in await storage.procs.pods()] == hosts


async def test_pods_show_their_claims_per_queue(storage: Storage) -> None:
    lease, other = await register(storage, queues=("a", "b")), await register(storage)
    for queue in ("a", "a", "b"):
        await enqueue_one(storage, queue=queue)
    await claim(storage, lease, queue="a", limit=2)
    await claim_one(storage, lease, queue="b", ahead=True)
    states = await pod_states(storage)
    assert {q: n for q, n in states[lease.host_id].in_progress.items() if n} == {"a": 2, "b": 1}
    assert not any(states[other.host_id].in_progress.values())


async def test_workers_are_those_whose_start_is_known(storage: Storage, clock: ManualClock) -> None:
    lease, other = await register(storage), await register(storage)
    for _ in range(3):
        await enqueue_one(storage)
    started, waiting = await claim(storage, lease, limit=2)
    [elsewhere] = await claim(storage, other)
    assert await storage.procs.workers() == []
    clock.advance(SECOND)
    await storage.jobs.heartbeat(lease, [held(started, "worker-1"), held(waiting)], LEASE)
    await storage.jobs.heartbeat(other, [held(elsewhere, "worker-2")], LEASE)
    [worker] = await storage.procs.workers(lease.host_id)
    assert (worker.host_id, worker.queue, worker.kind) == (lease.host_id, QUEUE, KIND)
    assert worker.job_id == started.claim.job_id
    assert worker.worker_id == "worker-1"
    assert worker.started_at == clock.now()
    assert not worker.cancel_requested
    await storage.jobs.cancel(JobFilter(ids=(worker.job_id,)))
    [worker] = await storage.procs.workers(lease.host_id)
    assert worker.cancel_requested
    everyone = await storage.procs.workers()
    assert {found.host_id for found in everyone} == {lease.host_id, other.host_id}
    assert await storage.procs.workers(new_host_id()) == []
    assert await finish(storage, started, done())
    assert await storage.procs.workers(lease.host_id) == []


# -- dropping the dead -------------------------------------------------------------------------


async def test_a_dead_pod_is_dropped_once_it_has_been_dead_long_enough(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage)
    dead_for = timedelta(seconds=30)
    clock.advance(LEASE + dead_for - MICROSECOND)
    assert await storage.procs.drop_dead_pods(dead_for, 10) == []
    assert len(await storage.procs.pods()) == 1
    clock.advance(MICROSECOND)
    assert await storage.procs.drop_dead_pods(dead_for, 10) == [lease.host_id]
    assert await storage.procs.pods() == []
    assert await storage.procs.drop_dead_pods(dead_for, 10) == []


async def test_a_live_pod_is_never_dropped(storage: Storage, clock: ManualClock) -> None:
    await register(storage)
    clock.advance(LEASE - MICROSECOND)
    assert await storage.procs.drop_dead_pods(timedelta(0), 10) == []
    clock.advance(MICROSECOND)
    assert len(await storage.procs.drop_dead_pods(timedelta(0), 10)) == 1


async def test_a_dead_pod_that_holds_a_claim_is_kept(storage: Storage, clock: ManualClock) -> None:
    lease, idle = await register(storage), await register(storage)
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease, ahead=True)
    clock.advance(2 * LEASE)
    assert await storage.procs.drop_dead_pods(LEASE, 10) == [idle.host_id]
    assert await finish(storage, claimed, done())
    assert await storage.procs.drop_dead_pods(LEASE, 10) == [lease.host_id]


async def test_dropping_is_bounded_and_takes_the_longest_dead_first(
    storage: Storage, clock: ManualClock
) -> None:
    hosts = []
    for _ in range(5):
        hosts.append((await register(storage)).host_id)
        clock.advance(SECOND)
    clock.advance(LEASE)
    assert await storage.procs.drop_dead_pods(timedelta(0), 2) == hosts[:2]
    assert await storage.procs.drop_dead_pods(timedelta(0), 10) == hosts[2:]


# -- gauges ------------------------------------------------------------------------------------


async def test_gauges_come_back_in_a_half_open_range_oldest_first(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage)
    start = clock.now()
    minutes = [start + timedelta(minutes=number) for number in range(4)]
    for minute in reversed(minutes):
        await storage.procs.record_gauges(lease, minute, GAUGES)
    found = await storage.procs.gauges(minutes[1], minutes[3])
    assert [row.minute for row in found] == minutes[1:3]
    assert all(row.host_id == lease.host_id and row.gauges == GAUGES for row in found)
    assert await storage.procs.gauges(minutes[1], minutes[1]) == []


async def test_gauges_of_one_minute_are_replaced_and_kept_per_pod(
    storage: Storage, clock: ManualClock
) -> None:
    lease, other = await register(storage), await register(storage)
    minute = clock.now()
    newer = PodGauges(cpu_percent=99.0)
    await storage.procs.record_gauges(lease, minute, GAUGES)
    await storage.procs.record_gauges(other, minute, GAUGES)
    await storage.procs.record_gauges(lease, minute, newer)
    found = await storage.procs.gauges(minute, minute + SECOND)
    assert {row.host_id: row.gauges for row in found} == {
        lease.host_id: newer,
        other.host_id: GAUGES,
    }


async def test_a_pod_shows_its_newest_gauges(storage: Storage, clock: ManualClock) -> None:
    lease = await register(storage)
    older = PodGauges(running=1)
    await storage.procs.record_gauges(lease, clock.now(), GAUGES)
    await storage.procs.record_gauges(lease, clock.now() - timedelta(minutes=1), older)
    assert (await pod_states(storage))[lease.host_id].gauges == GAUGES


async def test_gauges_outlive_their_pod(storage: Storage, clock: ManualClock) -> None:
    lease = await register(storage)
    minute = clock.now()
    await storage.procs.record_gauges(lease, minute, GAUGES)
    await storage.procs.unregister(lease)
    assert len(await storage.procs.gauges(minute, minute + SECOND)) == 1
