"""Slots go to pods that know a kind, when its due jobs have had none for some seconds."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueSettings
from forge_jobs.runtime.passes.coordinator import LOOK_EVERY, CoordinateReport
from forge_jobs.runtime.passes.starvation import ASKED_AT_ONCE, KEPT_FOR, StarvedKinds
from forge_jobs.storage.protocols import Storage
from tests.support.coordinating import SETTINGS, Coordinator, Counted
from tests.support.factories import QUEUE, SECOND, claim, enqueue_one, new_job, register

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

STARVED_AFTER = timedelta(seconds=4)


class Fleet:
    """Pods whose handlers end at once, so that each gives back what is too much when asked to."""

    def __init__(self, storage: Storage, clock: ManualClock) -> None:
        self.storage = storage
        self.clock = clock
        self.coordinator = Coordinator(storage, clock)
        self.pods: list[PodLease] = []

    async def join(self, *kinds: str, queues: Sequence[str] = (QUEUE,)) -> PodLease:
        lease = await register(
            self.storage, kinds=kinds, queues=queues, lease_for=timedelta(days=1)
        )
        self.pods.append(lease)
        return lease

    async def targets(self, queue: str = QUEUE) -> dict[HostId, int]:
        found = {each.queue: each.pods for each in await self.storage.procs.allocations()}
        return {host: slots.target for host, slots in found[queue].items()}

    async def grants(self, queue: str = QUEUE) -> dict[HostId, int]:
        found = {each.queue: each.pods for each in await self.storage.procs.allocations()}
        return {host: slots.grant for host, slots in found[queue].items()}

    async def give_back(self) -> None:
        for lease in self.pods:
            beat = await self.storage.jobs.heartbeat(lease, [], timedelta(days=1))
            surplus = {
                queue: found.slots.target
                for queue, found in beat.queues.items()
                if found.slots.target < found.slots.grant
            }
            await self.storage.procs.lower_grants(lease, surplus)

    async def run_for(self, length: timedelta) -> list[CoordinateReport]:
        """Passes of the coordinator, and pods that follow, while the time goes by."""
        reports = []
        for _ in range(length // SETTINGS.coordinate_interval):
            reports.append(await self.coordinator.once())
            await self.give_back()
            self.clock.advance(SETTINGS.coordinate_interval)
        return reports


@pytest.fixture
def fleet(manual_storage: Storage, manual_clock: ManualClock) -> Fleet:
    return Fleet(manual_storage, manual_clock)


async def with_slots(fleet: Fleet, max_workers: int) -> None:
    await fleet.storage.config.ensure_queue(QUEUE, QueueSettings(max_workers=max_workers))


async def test_a_new_kind_gets_the_only_slot_that_a_pod_without_the_kind_holds(
    fleet: Fleet,
) -> None:
    await with_slots(fleet, 1)
    old = await fleet.join("old")
    await fleet.run_for(4 * SECOND)
    new = await fleet.join("old", "new")
    await fleet.run_for(4 * SECOND)
    assert await fleet.grants() == {old.host_id: 1, new.host_id: 0}

    await enqueue_one(fleet.storage, kind="new")
    reports = await fleet.run_for(STARVED_AFTER)
    assert [report.starved for report in reports if report.starved] == []
    reports = await fleet.run_for(3 * SETTINGS.coordinate_interval)

    assert [report.starved for report in reports if report.starved] == [((QUEUE, "new"),)]
    assert await fleet.grants() == {old.host_id: 0, new.host_id: 1}
    assert len(await claim(fleet.storage, new, kinds=["new"])) == 1


async def test_as_many_slots_move_as_there_are_due_jobs_and_later_they_are_equal_again(
    fleet: Fleet,
) -> None:
    await with_slots(fleet, 3)
    for _ in range(3):
        await fleet.join("old")
    await fleet.run_for(4 * SECOND)
    new = await fleet.join("old", "new")
    await fleet.storage.jobs.enqueue([new_job(kind="new") for _ in range(2)])

    await fleet.run_for(12 * SECOND)
    assert (await fleet.grants())[new.host_id] == 2
    assert sorted((await fleet.grants()).values()) == [0, 0, 1, 2]

    # The time is counted from when the last job was seen, and a look in between changes nothing.
    await fleet.run_for(KEPT_FOR)
    assert len(await claim(fleet.storage, new, kinds=["new"], limit=5)) == 2
    await fleet.run_for(8 * SECOND)
    await fleet.join("old")
    await fleet.run_for(8 * SECOND)
    assert (await fleet.grants())[new.host_id] == 2
    await fleet.run_for(KEPT_FOR + LOOK_EVERY)
    assert sorted((await fleet.grants()).values()) == [0, 0, 1, 1, 1]


async def test_a_kind_whose_pods_have_no_slot_and_no_due_jobs_moves_nothing(
    fleet: Fleet,
) -> None:
    await with_slots(fleet, 1)
    await fleet.join("old")
    await fleet.run_for(4 * SECOND)
    await fleet.join("old", "new")
    await enqueue_one(fleet.storage, kind="old")
    await enqueue_one(fleet.storage, kind="new", delay=timedelta(days=1))
    await fleet.run_for(4 * SECOND)
    before = await fleet.storage.procs.allocations()

    reports = await fleet.run_for(20 * SECOND)

    assert [report.changed for report in reports] == [0] * len(reports)
    assert await fleet.storage.procs.allocations() == before


async def test_pods_that_know_the_same_kinds_are_not_asked_for_due_jobs(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_slots(fleet, 1)
    for _ in range(3):
        await fleet.join("old")
    await enqueue_one(fleet.storage, kind="old")
    procs = Counted(fleet.storage.procs)
    monkeypatch.setattr(fleet.storage, "procs", procs)

    await fleet.run_for(20 * SECOND)

    assert "due_kinds" not in procs.calls


async def test_kinds_that_share_one_slot_take_turns(fleet: Fleet) -> None:
    await with_slots(fleet, 1)
    one, other = await fleet.join("a"), await fleet.join("b")
    for kind in "ab":
        await fleet.storage.jobs.enqueue([new_job(kind=kind) for _ in range(5)])
    holders: list[HostId] = []

    for _ in range(20):
        await fleet.run_for(2 * SECOND)
        holders += [host for host, slots in (await fleet.grants()).items() if slots]

    # Again and again, not only one after the other.
    assert set(holders[:10]) == set(holders[-10:]) == {one.host_id, other.host_id}


async def test_a_kind_with_due_jobs_keeps_a_slot_when_another_gets_some(fleet: Fleet) -> None:
    await with_slots(fleet, 2)
    for _ in range(2):
        await fleet.join("a")
    await fleet.run_for(4 * SECOND)
    other = await fleet.join("b")
    for kind in "ab":
        await fleet.storage.jobs.enqueue([new_job(kind=kind) for _ in range(5)])

    await fleet.run_for(20 * SECOND)

    grants = await fleet.grants()
    assert grants[other.host_id] == 1
    assert sum(grants.values()) == 2
    reports = await fleet.run_for(40 * SECOND)
    assert [report.changed for report in reports] == [0] * len(reports)


async def test_a_slot_that_is_not_given_back_yet_still_serves_its_kind(fleet: Fleet) -> None:
    await with_slots(fleet, 1)
    one = await fleet.join("a")
    await fleet.run_for(4 * SECOND)
    other = await fleet.join("b")
    for kind in "ab":
        await enqueue_one(fleet.storage, kind=kind)
    # The handler of the first pod goes on for long: no pod of this fleet gives anything back.
    fleet.pods.clear()

    await fleet.run_for(60 * SECOND)

    assert await fleet.targets() == {one.host_id: 0, other.host_id: 1}
    assert await fleet.grants() == {one.host_id: 1, other.host_id: 0}


async def test_a_leader_that_lost_the_lead_starts_anew(fleet: Fleet) -> None:
    starved = fleet.coordinator.memory.starved
    starved.unserved({QUEUE: frozenset({"new"})})
    for now in (0.0, 60.0):
        starved.learn([QUEUE], {QUEUE: {"new": 1}}, now)
    assert starved.queues() == [QUEUE]
    assert starved.needs() == {QUEUE: {"new": 1}}

    fleet.coordinator.memory.forget()

    assert starved.queues() == []
    assert starved.needs() == {}


def test_more_queues_than_one_pass_asks_about_take_turns() -> None:
    starved = StarvedKinds(SECOND)
    every = {f"queue-{number:03}": frozenset({"new"}) for number in range(2 * ASKED_AT_ONCE + 50)}
    starved.unserved(every)

    asked = [starved.queues() for _ in range(3)]

    assert [len(queues) for queues in asked] == [ASKED_AT_ONCE] * 3
    assert {queue for queues in asked for queue in queues} == set(every)
