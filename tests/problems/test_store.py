"""Problems of the store and of its connections, read from gauges and from the store's report."""

from datetime import datetime
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.processes import PodGauges, PodLease, StoreCall
from forge_jobs.operating.health.examining import examine
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.policy.judgement.problems.problem import Code, Problem
from forge_jobs.storage.protocols import Storage, StoreReport
from tests.problems.conftest import MINUTE, SECOND, Fleet
from tests.support.factories import new_job
from tests.support.faulty import Faults, faulty

pytestmark = pytest.mark.anyio


async def measured(storage: Storage, lease: PodLease, now: datetime, **gauges: Any) -> None:
    minute = now.replace(second=0, microsecond=0)
    await storage.procs.record_gauges(lease, minute, PodGauges(**gauges))


@pytest.fixture
async def lease(fleet: Fleet, clock: ManualClock) -> PodLease:
    """A pod, at the begin of a minute."""
    clock.advance(60 - clock.now().second - clock.now().microsecond / 1e6)
    return await fleet.start()


async def test_a_pool_that_is_used_up_for_longer_than_a_moment(
    storage: Storage, fleet: Fleet, clock: ManualClock, lease: PodLease
) -> None:
    begun = clock.now()
    full = {"pool_size": 5, "pool_in_use": 5}
    await measured(storage, lease, clock.now(), **full, pool_waits=7)
    clock.advance(50 * SECOND)
    # All may be in use for a moment, of which the measurement was one.
    assert await fleet.codes() == []
    clock.advance(10 * SECOND)
    await measured(storage, lease, clock.now(), **full, pool_waits=9)
    found = await fleet.the_problem(Code.POOL_EXHAUSTED, begun)
    assert "All 5 connections of pod" in found.evidence
    clock.advance(MINUTE)
    # In use, but no call had to wait since.
    await measured(storage, lease, clock.now(), pool_size=5, pool_in_use=4, pool_waits=9)
    assert await fleet.codes() == []
    clock.advance(MINUTE)
    for _ in range(2):
        await measured(storage, lease, clock.now(), **full, pool_waits=9)
        clock.advance(MINUTE)
    assert await fleet.codes() == []


async def test_the_minute_in_which_a_pod_starts_counts_too(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    clock.advance(68 - clock.now().second - clock.now().microsecond / 1e6)
    begun, lease = clock.now(), await fleet.start()
    full = {"pool_size": 5, "pool_in_use": 5}
    await measured(storage, lease, clock.now(), **full, pool_waits=7)
    clock.advance(52 * SECOND)
    await measured(storage, lease, clock.now(), **full, pool_waits=9)
    await fleet.the_problem(Code.POOL_EXHAUSTED, begun)


async def test_a_store_whose_calls_are_slow(
    storage: Storage, fleet: Fleet, clock: ManualClock, lease: PodLease
) -> None:
    well = (StoreCall("exchange", 500, 0, 2.0, 999.0), StoreCall("cleanup", 1, 0, 4000.0, 4000.0))
    await measured(storage, lease, clock.now(), calls=well)
    clock.advance(MINUTE)
    begun = clock.now()
    for calls in (
        (StoreCall("exchange", 500, 0, 2.0, 1500.0), StoreCall("cleanup", 3, 0, 2.0, 9000.0)),
        (StoreCall("heartbeat", 3, 0, 1100.0, 1200.0), StoreCall("exchange", 19, 0, 2.0, 5000.0)),
    ):
        assert await fleet.codes() == []
        await measured(storage, lease, clock.now(), calls=calls)
        clock.advance(MINUTE)
    found = await fleet.the_problem(Code.STORE_SLOW, begun)
    assert "calls of heartbeat takes longer than 1.2 s" in found.evidence
    await measured(storage, lease, clock.now(), calls=well)
    assert await fleet.codes() == []


@pytest.mark.parametrize(
    ("report", "used"),
    [
        (StoreReport(memory_bytes=900, memory_bound=1000), "90%"),
        (StoreReport(memory_bytes=899, memory_bound=1000), ""),
        (StoreReport(memory_bytes=899), ""),
        (StoreReport(size_bytes=1800, wal_bytes=100, disk_free=100), "95%"),
        (StoreReport(size_bytes=1800, wal_bytes=100, disk_free=1000), ""),
        (StoreReport(size_bytes=1800), ""),
    ],
)
async def test_a_store_whose_room_is_nearly_used(
    storage: Storage,
    fleet: Fleet,
    clock: ManualClock,
    lease: PodLease,
    report: StoreReport,
    used: str,
) -> None:
    async def told() -> StoreReport:
        return report

    storage.report = told
    found: list[Problem] = await fleet.all()
    assert [each.code for each in found] == ([Code.STORE_FULL] if used else [])
    assert all(used in each.evidence for each in found)


async def test_an_examination_reads_one_job_of_a_late_queue_and_few_queues(
    storage: Storage, fleet: Fleet, clock: ManualClock, lease: PodLease
) -> None:
    names = [f"late{number:02}" for number in range(12)]
    await fleet.start(*names)
    for name in names:
        await storage.jobs.enqueue([new_job(queue=name) for _ in range(20)])
    clock.advance(60 * MINUTE)
    faults = Faults()

    found = await examine(Reader(faulty(storage, faults)))

    late = [each.text for each in found if each.check == "oldest due"]
    assert len(late) == 6
    assert late[-1] == "and 7 queues more"
    assert faults.calls["list"] <= 10
    assert faults.calls.total() <= 25, faults.calls
