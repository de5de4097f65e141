"""Incidents of the store, by what pods measure and what the store reports of itself."""

from collections.abc import Callable
from datetime import timedelta

import httpx

from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.processes import OutboxGauge, StoreCall
from forge_jobs.storage.protocols import StoreReport
from tests.support.drills import Drill, Planted, asked
from tests.support.factories import QUEUE, claim_one, done, enqueue_one, finish
from tests.support.fleets import MINUTE


async def slow(drill: Drill) -> Planted:
    lease = await drill.pod()
    since = drill.next_minute()
    calls = (StoreCall("heartbeat", 3, 0, 1100.0, 1200.0),)
    await drill.gauges(lease, calls=calls)

    async def end(caller: httpx.AsyncClient) -> None:
        # A pause takes load off without losing work.
        await asked(caller, "POST", f"/queues/{QUEUE}/pause")
        drill.next_minute()
        await drill.gauges(lease, calls=(StoreCall("heartbeat", 60, 0, 2.0, 5.0),))

    return Planted(since, end)


async def exhausted(drill: Drill) -> Planted:
    lease = await drill.pod()
    since = drill.next_minute()
    for waits in (7, 9):
        await drill.gauges(lease, pool_size=5, pool_in_use=5, pool_waits=waits)
        # A pool may be used up at the moment of one measurement: two count.
        drill.clock.advance(MINUTE)

    async def end(_: httpx.AsyncClient) -> None:
        await drill.gauges(lease, pool_size=10, pool_in_use=5, pool_waits=9)

    return Planted(since, end)


def _reporting(drill: Drill, report: Callable[[], StoreReport]) -> None:
    async def told() -> StoreReport:
        return report()

    drill.storage.report = told


async def full(drill: Drill) -> Planted:
    await drill.pod()
    lease = await drill.fleet.start("kept")
    await enqueue_one(drill.storage, queue="kept")
    assert await finish(drill.storage, await claim_one(drill.storage, lease, queue="kept"), done())

    async def jobs_kept() -> int:
        counts = await drill.storage.jobs.counts(["kept"])
        return counts["kept"].by_status.get(JobStatus.DONE, 0)

    async def told() -> StoreReport:
        return StoreReport(memory_bytes=850 + 100 * await jobs_kept(), memory_bound=1000)

    drill.storage.report = told

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "POST", "/jobs/delete", {"q": "queue:kept status:done"})

    return Planted(drill.clock.now(), end)


async def old_transaction(drill: Drill) -> Planted:
    await drill.pod()
    since = drill.clock.now()
    _reporting(drill, lambda: StoreReport(oldest_transaction=drill.clock.now() - since))

    async def end(_: httpx.AsyncClient) -> None:
        _reporting(drill, lambda: StoreReport(oldest_transaction=timedelta(0)))

    return Planted(since, end)


async def outbox_waits(drill: Drill) -> Planted:
    lease = await drill.pod()
    since = drill.clock.now()
    drill.next_minute()
    gauge = OutboxGauge(name="jobs", waiting=3, waiting_since=since)
    await drill.gauges(lease, outboxes=(gauge,))

    async def end(_: httpx.AsyncClient) -> None:
        await drill.gauges(lease, outboxes=(OutboxGauge(name="jobs"),))

    return Planted(since, end)


async def outbox_refused(drill: Drill) -> Planted:
    first, second = await drill.pod(), await drill.pod()
    since = drill.clock.now()
    drill.next_minute()
    gauge = OutboxGauge(name="jobs", set_aside=1, aside_since=since)
    await drill.gauges(first, outboxes=(gauge,))
    await drill.gauges(second, outboxes=(OutboxGauge(name="jobs"),))

    async def end(_: httpx.AsyncClient) -> None:
        await drill.gauges(first, outboxes=(OutboxGauge(name="jobs"),))

    return Planted(since, end)
