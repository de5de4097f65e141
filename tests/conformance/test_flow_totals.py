"""Totals: the counts of queues and their kinds since the queue exists."""

from datetime import timedelta

import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.model.metrics import MINUTE, Histogram
from forge_jobs.model.queues import QueueSettings
from forge_jobs.model.retention import Kept
from forge_jobs.model.series import MOST_KINDS, OTHER_KINDS, FlowSample, FlowTotal
from forge_jobs.storage.protocols import Storage
from tests.support.factories import QUEUE, cleaned_up, done, enqueue_one, register, run_one

pytestmark = pytest.mark.anyio


def a_flow(clock: ManualClock, kind: str) -> FlowSample:
    return FlowSample(
        queue=QUEUE,
        kind=kind,
        minute=clock.now().replace(second=0, microsecond=0),
        counts={"succeeded": 2, "failed": 1},
        delay=Histogram({0: 2, 120: 1}),
        processing=Histogram({50: 3}),
        total=Histogram({60: 3}),
    )


async def roll_up(storage: Storage, clock: ManualClock) -> None:
    clock.advance(3 * MINUTE)
    while await storage.jobs.roll_up(100):
        pass


async def test_totals_outlive_every_history_and_go_on(storage: Storage, clock: ManualClock) -> None:
    for _ in range(2):
        lease = await register(storage)
        await enqueue_one(storage)
        await run_one(storage, lease, done())
        await storage.jobs.add_flows([a_flow(clock, "a")])
        await roll_up(storage, clock)
        # All that is kept goes at once.
        clock.advance(timedelta(hours=5))
        nothing = Kept(hours=MINUTE, series=MINUTE, events=MINUTE, errors=MINUTE)
        await cleaned_up(storage, kept=nothing)
    now = clock.now()
    assert await storage.jobs.series(now - timedelta(hours=9), now, queue=QUEUE) == []
    of_queue = {"enqueued": 2, "claimed": 2, "succeeded": 2}
    assert await storage.jobs.flow_totals() == [
        FlowTotal(queue=QUEUE, kind="", counts=of_queue),
        FlowTotal(
            queue=QUEUE,
            kind="a",
            counts={"succeeded": 4, "failed": 2},
            delay=Histogram({0: 4, 120: 2}),
            processing=Histogram({50: 6}),
        ),
    ]


async def test_a_queue_has_200_kinds_in_all(storage: Storage, clock: ManualClock) -> None:
    await enqueue_one(storage)
    await storage.jobs.add_flows([a_flow(clock, f"k{n:03}") for n in range(MOST_KINDS)])
    # Another hour has room for further kinds. The total has none.
    clock.advance(timedelta(hours=2))
    await storage.jobs.add_flows([a_flow(clock, kind) for kind in ("new", "newer", "k000")])
    totals = {each.kind: each.counts["failed"] for each in await storage.jobs.flow_totals()}
    assert len(totals) == MOST_KINDS + 1
    assert (totals[OTHER_KINDS], totals["k000"], totals["k001"]) == (2, 2, 1)


async def test_a_queue_that_is_deleted_takes_its_totals_along(
    storage: Storage, clock: ManualClock
) -> None:
    name = "a'b {}"
    await storage.config.ensure_queue(name, QueueSettings())
    await storage.jobs.add_flows([structs.replace(a_flow(clock, "kind %s"), queue=name)])
    [total] = await storage.jobs.flow_totals()
    assert (total.queue, total.kind) == (name, "kind %s")
    await storage.config.delete_queue(name)
    assert await storage.jobs.flow_totals() == []
    await storage.config.ensure_queue(name, QueueSettings())
    assert await storage.jobs.flow_totals() == []


async def test_what_comes_late_for_a_deleted_queue_does_not_come_back_with_the_name(
    storage: Storage, clock: ManualClock
) -> None:
    await storage.config.ensure_queue(QUEUE, QueueSettings())
    await storage.config.delete_queue(QUEUE)
    assert not await storage.jobs.add_flows([a_flow(clock, "late")])
    assert await storage.jobs.flow_totals() == []
    await storage.config.ensure_queue(QUEUE, QueueSettings())
    assert await storage.jobs.flow_totals() == []
    assert not await storage.jobs.add_flows([a_flow(clock, "new")])
    [total] = await storage.jobs.flow_totals()
    assert total.kind == "new"
