"""How queues stand to their objectives, read from a store."""

from datetime import datetime, timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.metrics import HOUR, MINUTE
from forge_jobs.model.queues import QueueChange, QueueSettings
from forge_jobs.model.series import FlowSample
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.snapshots.objectives import ObjectiveView
from forge_jobs.storage.protocols import Storage
from tests.support.factories import DAY, KIND, QUEUE, enqueue_one
from tests.support.faulty import Faults, faulty
from tests.support.simulated_queues import histogram

pytestmark = pytest.mark.anyio

AIM = "90% within 30s"


async def starts(storage: Storage, at: datetime, in_time: int, late: int) -> None:
    """Let so many jobs start in a minute."""
    sample = FlowSample(
        queue=QUEUE,
        kind=KIND,
        minute=at.replace(second=0, microsecond=0),
        counts={"succeeded": in_time + late},
        delay=histogram([1.0] * in_time + [100.0] * late),
        processing=histogram([1.0]),
        total=histogram([1.0]),
    )
    assert await storage.jobs.add_flows([sample]) == []


async def standing_of(storage: Storage, queue: str = QUEUE) -> ObjectiveView:
    async with Operator(storage, Actor(name="ada", access=ALL)) as operator:
        found = {each.queue: each for each in (await operator.list_objectives()).objectives}
    return found[queue]


async def test_the_share_met_the_budget_and_the_burn(storage: Storage, clock: ManualClock) -> None:
    await storage.config.ensure_queue(QUEUE, QueueSettings(objective=AIM))
    await storage.config.set_queue("quiet", QueueChange(objective=AIM))
    await storage.config.set_queue("none", QueueChange(max_workers=2))
    begun = clock.now()
    await starts(storage, begun, 100, 0)
    clock.advance(20 * DAY)
    await starts(storage, clock.now(), 60, 40)
    clock.advance(3 * HOUR)
    await starts(storage, clock.now(), 80, 20)
    clock.advance(30 * MINUTE)
    await starts(storage, clock.now(), 10, 10)

    stands = await standing_of(storage)

    assert (stands.objective, stands.by_operator) == (AIM, False)
    assert stands.met_1h == pytest.approx(90 / 120, abs=0.01)
    assert stands.met_24h == pytest.approx(150 / 220, abs=0.01)
    assert stands.met_30d == pytest.approx(250 / 320, abs=0.01)
    assert stands.budget_left == pytest.approx(1 - (70 / 320) / 0.1, abs=0.05)
    assert stands.burn_5m == pytest.approx(5.0, abs=0.05)
    assert stands.burn_1h == pytest.approx(2.5, abs=0.05)
    assert not stands.is_burning
    quiet = await standing_of(storage, "quiet")
    assert (quiet.by_operator, quiet.met_30d, quiet.budget_left) == (True, None, 1.0)


async def test_jobs_that_wait_too_long_are_late(storage: Storage, clock: ManualClock) -> None:
    await storage.config.ensure_queue(QUEUE, QueueSettings(objective=AIM))
    await enqueue_one(storage)
    clock.advance(timedelta(seconds=30))
    assert (await standing_of(storage)).met_1h is None
    clock.advance(timedelta(seconds=1))
    stands = await standing_of(storage)
    assert (stands.met_1h, stands.is_burning) == (0.0, False)
    assert stands.burn_5m == pytest.approx(10.0)


async def test_five_calls_are_enough_for_any_number_of_queues(storage: Storage) -> None:
    for number in range(30):
        await storage.config.set_queue(f"q{number:02}", QueueChange(objective=AIM))
    faults = Faults()
    reader = Actor(name="eve", access=Access(queues=frozenset({"q03", "q04"})))
    async with Operator(faulty(storage, faults), reader) as operator:
        found = await operator.list_objectives()
    assert [each.queue for each in found.objectives] == ["q03", "q04"]
    assert faults.calls == {"queues": 1, "counts": 1, "pods": 1, "now": 1, "many_series": 1}
