"""A minute with so many ends that a roll-up by single jobs would be cut off."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.metrics import Histogram, LatencySample
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.storage.protocols import Storage
from tests.support.factories import KIND, QUEUE, done, failed, new_job, only, register

pytestmark = pytest.mark.anyio

ROUNDS = 3
BATCH = 500
PODS = 3
MEASURED = 60_000
"""Ends that each pod tells the durations of."""
MINUTE = timedelta(minutes=1)


async def test_every_end_of_a_busy_minute_is_counted_once_for_every_pod(
    storage: Storage, clock: ManualClock
) -> None:
    minute = clock.now()
    leases = [await register(storage, lease_for=10 * MINUTE) for _ in range(PODS)]
    demand = Demand(worker_ids=(), limit=BATCH, kinds=frozenset({KIND}))
    ends: list[Finalization] = []
    for number in range(ROUNDS):
        await storage.jobs.enqueue([new_job() for _ in range(BATCH)])
        lease = leases[number % PODS]
        taken = await storage.jobs.exchange(QUEUE, ends, demand, lease)
        ends = [Finalization(each.claim, done()) for each in taken.claimed]
        ends[0] = Finalization(ends[0].claim, failed(MINUTE))
    await storage.jobs.finalize(ends)
    for lease in leases:
        histogram = Histogram({7: MEASURED})
        sample = LatencySample(queue=QUEUE, minute=minute, processing=histogram, total=histogram)
        await storage.jobs.add_latencies(lease.host_id, [sample])
    expected = {
        "enqueued": ROUNDS * BATCH,
        "claimed": ROUNDS * BATCH,
        "succeeded": ROUNDS * (BATCH - 1),
        "failed": ROUNDS,
    }

    async def told() -> tuple[dict[str, int], dict[int, int]]:
        [bucket] = await storage.jobs.metrics(QUEUE, minute, minute + MINUTE)
        return {str(name): count for name, count in bucket.counts.items() if count}, dict(
            bucket.processing.counts
        )

    assert await told() == (expected, {7: PODS * MEASURED})

    # Days pass without a roll-up. Then one comes, in small portions.
    clock.advance(3 * 24 * 60 * MINUTE)
    while await storage.jobs.roll_up(2):
        assert await told() == (expected, {7: PODS * MEASURED})

    await storage.jobs.delete(only(ends[1].claim.job_id))
    assert await told() == (expected, {7: PODS * MEASURED})


@pytest.mark.long
async def test_a_minute_of_sixty_thousand_ends_is_exact_in_series_and_totals(
    storage: Storage, clock: ManualClock
) -> None:
    minute = clock.now().replace(second=0, microsecond=0)
    lease = await register(storage, lease_for=10 * MINUTE)
    demand = Demand(worker_ids=(), limit=BATCH, kinds=frozenset({KIND}))
    ends: list[Finalization] = []
    for _ in range(MEASURED // BATCH):
        await storage.jobs.enqueue([new_job(keep_result=False) for _ in range(BATCH)])
        taken = await storage.jobs.exchange(QUEUE, ends, demand, lease)
        ends = [Finalization(each.claim, done()) for each in taken.claimed]
        assert len(ends) == BATCH
    await storage.jobs.finalize(ends)
    assert clock.now() < minute + MINUTE

    clock.advance(2 * MINUTE)
    while await storage.jobs.roll_up(100):
        pass

    wanted = {"enqueued": MEASURED, "claimed": MEASURED, "succeeded": MEASURED}
    [step] = await storage.jobs.series(minute, minute + MINUTE, queue=QUEUE)
    [whole] = await storage.jobs.series(minute, minute + MINUTE)
    [total] = [each for each in await storage.jobs.flow_totals() if not each.kind]
    for counted in (step, whole, total):
        assert {name: count for name, count in counted.counts.items() if count} == wanted
