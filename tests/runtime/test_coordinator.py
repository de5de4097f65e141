"""A pod leads, shares slots out evenly, and writes nothing while nothing changes."""

import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Allocation, AllocationChange, PodLease
from forge_jobs.model.queues import QueueChange, QueueSettings
from forge_jobs.policy.slots.plan import plan_allocations
from forge_jobs.runtime.passes import coordinator
from forge_jobs.runtime.passes.coordinator import LOOK_EVERY, UNSERVED_FOR
from forge_jobs.storage.protocols import Storage
from tests.support.coordinating import SETTINGS, Coordinator, Counted
from tests.support.factories import LEASE, QUEUE, SECOND, enqueue_one, new_job, register

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

LEADER_LEASE = SETTINGS.leader_lease


@pytest.fixture
def a_coordinator(manual_storage: Storage, manual_clock: ManualClock) -> Coordinator:
    return Coordinator(manual_storage, manual_clock)


async def declare(storage: Storage, queues: Sequence[str], max_workers: int) -> None:
    for queue in queues:
        await storage.config.ensure_queue(queue, QueueSettings(max_workers=max_workers))


async def grants(storage: Storage) -> dict[HostId, int]:
    """Return the sum of the grants over all queues, per pod."""
    totals: dict[HostId, int] = {}
    for allocation in await storage.procs.allocations():
        for host_id, slots in allocation.pods.items():
            totals[host_id] = totals.get(host_id, 0) + slots.grant
    return totals


async def test_fifty_queues_of_one_worker_go_five_to_each_of_ten_pods(
    a_coordinator: Coordinator,
) -> None:
    queues = [f"q{number}" for number in range(50)]
    await declare(a_coordinator.storage, queues, 1)
    for _ in range(10):
        await register(a_coordinator.storage, queues=queues)

    await a_coordinator.once()

    assert sorted((await grants(a_coordinator.storage)).values()) == [5] * 10


async def test_ten_workers_go_four_three_three_to_three_pods(a_coordinator: Coordinator) -> None:
    await declare(a_coordinator.storage, [QUEUE], 10)
    for _ in range(3):
        await register(a_coordinator.storage)

    await a_coordinator.once()

    assert sorted((await grants(a_coordinator.storage)).values()) == [3, 3, 4]


async def test_a_steady_fleet_is_neither_read_nor_written(
    a_coordinator: Coordinator, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = a_coordinator.storage
    await declare(storage, [QUEUE], 10)
    for _ in range(3):
        await register(storage, lease_for=timedelta(hours=1))
    await a_coordinator.once()
    await a_coordinator.once()
    versions = [each.version for each in await storage.procs.allocations()]
    procs = Counted(storage.procs)
    monkeypatch.setattr(storage, "procs", procs)

    for _ in range(LOOK_EVERY // SETTINGS.coordinate_interval - 1):
        manual_clock.advance(SETTINGS.coordinate_interval)
        assert not (await a_coordinator.once()).looked
    assert procs.calls == {}

    manual_clock.advance(SETTINGS.coordinate_interval)
    report = await a_coordinator.once()
    assert (report.looked, report.changed) == (True, 0)
    assert procs.calls == {"allocations": 1, "live_pods": 1}
    assert [each.version for each in await storage.procs.allocations()] == versions


async def test_a_pod_that_joins_gets_slots_as_the_others_give_them_back(
    a_coordinator: Coordinator,
) -> None:
    storage = a_coordinator.storage
    await declare(storage, [QUEUE], 4)
    first = await register(storage)
    await a_coordinator.once()
    second = await register(storage)

    await a_coordinator.once()
    assert await grants(storage) == {first.host_id: 4, second.host_id: 0}

    await storage.procs.lower_grants(first, {QUEUE: 2})
    await a_coordinator.once()
    assert await grants(storage) == {first.host_id: 2, second.host_id: 2}


async def test_the_slots_of_a_dead_pod_go_to_the_living(
    a_coordinator: Coordinator, manual_clock: ManualClock
) -> None:
    storage = a_coordinator.storage
    await declare(storage, [QUEUE], 4)
    await register(storage)
    living = await register(storage, lease_for=timedelta(hours=1))
    await a_coordinator.once()

    manual_clock.advance(LEASE)
    await a_coordinator.once()

    assert await grants(storage) == {living.host_id: 4}


async def test_only_one_pod_leads(manual_storage: Storage, manual_clock: ManualClock) -> None:
    one, other = (Coordinator(manual_storage, manual_clock) for _ in range(2))

    assert (await one.once()).leading
    assert not (await other.once()).leading
    assert one.memory.is_leader()
    assert not other.memory.is_leader()


async def test_a_killed_coordinator_is_replaced_within_its_lease(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    killed, other = (Coordinator(manual_storage, manual_clock) for _ in range(2))
    first = await killed.once()
    manual_clock.advance(LEADER_LEASE - timedelta(microseconds=1))
    assert not (await other.once()).leading

    manual_clock.advance(timedelta(microseconds=1))
    report = await other.once()

    assert report.leading
    assert report.term > first.term


async def test_after_a_clean_stop_another_pod_leads_at_once(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    stopped, other = (Coordinator(manual_storage, manual_clock) for _ in range(2))
    await stopped.once()
    assert not (await other.once()).leading

    await stopped.resign()
    assert not stopped.memory.is_leader()

    assert not stopped.memory.is_leader()
    assert (await other.once()).leading


async def test_a_pod_that_does_not_lead_resigns_nothing(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    leader, other = (Coordinator(manual_storage, manual_clock) for _ in range(2))
    await leader.once()
    await other.once()

    await other.resign()

    assert (await leader.once()).leading


async def test_a_leader_stops_trusting_itself_before_its_lease_is_over(
    a_coordinator: Coordinator, manual_clock: ManualClock
) -> None:
    await a_coordinator.once()
    manual_clock.advance(2 * SETTINGS.coordinate_interval)
    assert a_coordinator.memory.is_leader()

    manual_clock.advance(LEADER_LEASE - 2 * SETTINGS.coordinate_interval - SECOND)

    assert not a_coordinator.memory.is_leader()
    leadership = await a_coordinator.storage.cron.leader()
    assert leadership is not None
    assert leadership.remaining > timedelta(0)


async def test_trust_counts_from_before_the_lease_was_asked_for(
    a_coordinator: Coordinator, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cron = a_coordinator.storage.cron
    lead = cron.lead

    async def answered_late(host_id: HostId, lease_for: timedelta) -> object:
        leadership = await lead(host_id, lease_for)
        manual_clock.advance(LEADER_LEASE)
        return leadership

    monkeypatch.setattr(cron, "lead", answered_late)

    assert not (await a_coordinator.once()).leading
    assert not a_coordinator.memory.is_leader()


async def test_a_coordinator_that_slept_past_its_term_writes_nothing(
    manual_storage: Storage, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await declare(manual_storage, [QUEUE], 2)
    await register(manual_storage, lease_for=timedelta(hours=1))
    sleeper, other = (Coordinator(manual_storage, manual_clock) for _ in range(2))
    procs = manual_storage.procs
    read, write = procs.allocations, procs.allocate
    written: list[str] = []

    async def allocations_then_sleep() -> list[Allocation]:
        found = await read()
        monkeypatch.setattr(procs, "allocations", read)
        manual_clock.advance(2 * LEADER_LEASE)
        assert (await other.once()).leading
        written.clear()
        return found

    async def allocate(changes: Sequence[AllocationChange]) -> list[bool]:
        written.extend(change.queue for change in changes)
        return await write(changes)

    monkeypatch.setattr(procs, "allocations", allocations_then_sleep)
    monkeypatch.setattr(procs, "allocate", allocate)
    await sleeper.once()
    before = [each.version for each in await read()]

    assert written == []
    assert not sleeper.memory.is_leader()
    assert not (await sleeper.once()).leading
    assert [each.version for each in await read()] == before


async def test_a_write_whose_record_moved_on_is_refused_and_planned_again(
    a_coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = a_coordinator.storage
    await declare(storage, [QUEUE], 4)
    pods: list[PodLease] = [await register(storage)]
    read = storage.procs.allocations

    async def allocations_then_join() -> list[Allocation]:
        found = await read()
        monkeypatch.setattr(storage.procs, "allocations", read)
        pods.append(await register(storage))
        return found

    monkeypatch.setattr(storage.procs, "allocations", allocations_then_join)
    report = await a_coordinator.once()
    assert report.refused == 0
    await a_coordinator.once()

    granted = await grants(storage)
    assert set(granted) == {pod.host_id for pod in pods}
    assert sum(granted.values()) <= 4
    targets = {
        host_id: slots.target for each in await read() for host_id, slots in each.pods.items()
    }
    assert set(targets.values()) == {2}


async def test_a_queue_with_jobs_that_no_pod_declares_is_warned_about_once(
    a_coordinator: Coordinator, manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await enqueue_one(a_coordinator.storage, queue="orphans")
    with caplog.at_level(logging.WARNING):
        for _ in range(8):
            report = await a_coordinator.once()
            manual_clock.advance(UNSERVED_FOR / 3)
            a_coordinator.memory.look_again()

    assert report.unserved == ("orphans",)
    warnings = [each.getMessage() for each in caplog.records]
    assert sum("orphans" in text for text in warnings) == 1
    assert "no live pod serves the queue (FORGE_QUEUES)" in caplog.text

    await register(a_coordinator.storage, queues=["orphans"])
    assert (await a_coordinator.once()).unserved == ()


async def test_thousands_of_queues_that_no_pod_declares_are_a_few_lines(
    a_coordinator: Coordinator, manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"tenant-{number:04}" for number in range(1_000)]
    await a_coordinator.storage.jobs.enqueue([new_job(queue=name) for name in names])
    with caplog.at_level(logging.WARNING):
        for _ in range(8):
            await a_coordinator.once()
            manual_clock.advance(UNSERVED_FOR / 3)
            a_coordinator.memory.look_again()
    warnings = [each.getMessage() for each in caplog.records]
    assert len(warnings) == 6
    assert "995 further queues" in warnings[-1]


async def test_queues_that_a_pod_serves_within_seconds_are_not_warned_about(
    a_coordinator: Coordinator, manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("tenant-1", "tenant-2"):
        await enqueue_one(a_coordinator.storage, queue=name)
    with caplog.at_level(logging.WARNING):
        assert (await a_coordinator.once()).unserved == ("tenant-1", "tenant-2")
        manual_clock.advance(UNSERVED_FOR / 2)
        # As a pod does that serves what appears.
        await register(a_coordinator.storage, queues=["tenant-1"])
        for _ in range(3):
            assert (await a_coordinator.once()).unserved == ("tenant-2",)
            manual_clock.advance(UNSERVED_FOR / 2)
    warned = [each.getMessage() for each in caplog.records if "no live pod" in each.getMessage()]
    assert len(warned) == 1
    assert "tenant-2" in warned[0]


async def test_a_declared_queue_without_any_slot_is_told(
    a_coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    await register(a_coordinator.storage)
    await a_coordinator.storage.config.set_queue(QUEUE, QueueChange(max_workers=0))
    with caplog.at_level(logging.WARNING):
        report = await a_coordinator.once()

    assert report.slotless == (QUEUE,)
    assert "no pod has a slot" in caplog.text

    await a_coordinator.storage.config.set_queue(QUEUE, QueueChange(max_workers=1))
    assert (await a_coordinator.once()).slotless == ()


async def test_beginning_a_term_is_one_event(a_coordinator: Coordinator) -> None:
    await a_coordinator.once()
    await a_coordinator.once()
    await a_coordinator.events.flush_once()

    found = await a_coordinator.storage.jobs.events()
    assert [event.kind for event in found] == [EventKind.LEADER]


async def test_a_leader_that_is_alone_rests_longer_and_not_once_another_pod_is_there(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    mine = await register(manual_storage)
    one = Coordinator(manual_storage, manual_clock, mine.host_id)
    await one.once()
    alone = (await one.once()).next_in
    assert alone > SETTINGS.coordinate_interval
    # Should one renewal fail, there is time for another before another pod may lead.
    assert 2 * alone <= LEADER_LEASE - LEADER_LEASE / 5
    await register(manual_storage)
    assert (await one.once()).next_in == SETTINGS.coordinate_interval


async def test_a_pod_that_does_not_lead_tries_when_the_lease_ends(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    one, two = (Coordinator(manual_storage, manual_clock) for _ in range(2))
    await one.once()
    report = await two.once()
    while not report.leading:
        assert report.next_in > timedelta(0)
        manual_clock.advance(report.next_in)
        report = await two.once()
    assert manual_clock.elapsed() == LEADER_LEASE.total_seconds()


@pytest.mark.parametrize(("most", "on_the_loop"), [(2, True), (1, False)])
async def test_a_large_plan_is_made_on_a_thread_of_its_own(
    a_coordinator: Coordinator,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    on_the_loop: bool,
) -> None:
    makers: list[threading.Thread] = []

    def planned(*args: Any) -> list[AllocationChange]:
        makers.append(threading.current_thread())
        return plan_allocations(*args)

    monkeypatch.setattr(coordinator, "plan_allocations", planned)
    monkeypatch.setattr(coordinator, "_SLOTS_ON_THE_LOOP", most)
    for _ in range(2):
        await register(a_coordinator.storage)

    assert (await a_coordinator.once()).changed == 1

    assert [maker is threading.current_thread() for maker in makers] == [on_the_loop]
